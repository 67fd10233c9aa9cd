"""An embedded Kubernetes API server with quota admission: the cluster for tests and the demo.

It keeps objects in memory and answers as the real server does, as far as creators, ``kubectl`` and the official
Python client can see: messages, status codes, versions, watches, and above all quota admission with its races.
It computes charges independently of the gate (``quotas/charges``), so that it can prove the gate's footprint wrong.
It has no nodes, no scheduler, no RBAC and no authentication. It listens on 127.0.0.1; keep no secrets in it.

``cluster`` is the way in; ``background`` runs it in a thread, ``quota_file`` loads the objects to start with.
"""

from backoff_ctrl.k8s.sandbox.kinds.answers import ApiError
from backoff_ctrl.k8s.sandbox.wire.counters import Counters, CreateCounts
from backoff_ctrl.k8s.sandbox.wire.faults import FaultError, Faults

from .background import BackgroundSandbox, running_sandbox
from .cluster import Sandbox

__all__ = [
    "ApiError",
    "BackgroundSandbox",
    "Counters",
    "CreateCounts",
    "FaultError",
    "Faults",
    "Sandbox",
    "running_sandbox",
]

if not __name__.startswith("backoff_ctrl."):  # docs/decisions/import-names.md
    raise ImportError("import this room as part of backoff_ctrl", name=__name__)
