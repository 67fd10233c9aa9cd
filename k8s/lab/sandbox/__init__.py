"""An embedded Kubernetes API server with quota admission: the cluster for tests and the demo.

It keeps objects in memory and answers as the real server does, as far as creators, ``kubectl`` and the official
Python client can see: messages, status codes, versions, watches, and above all quota admission with its races.
It computes charges independently of the gate (``admission/charges``), so that it can prove the gate's footprint wrong.
It has no nodes, no scheduler, no RBAC and no authentication. It listens on 127.0.0.1; keep no secrets in it.

``cluster`` is the way in; ``core`` wires the parts; ``quota_file`` loads the objects to start with. A request arrives
in ``http``, its verb is done in ``verbs``, a write passes ``admission``, and ends in the store of ``objects``, whose
listeners (the quota ledger, the controllers, watches) learn of it at once. ``faults`` are what goes wrong on purpose.
``kubelet``, which runs pods, on real servers too, and ``job_controller``, which makes those of Jobs, are no part of the
server: they are clients.
"""

from backoff_ctrl.k8s.lab.sandbox.objects.answers import ApiError

from .cluster import BackgroundSandbox, Sandbox, running_sandbox
from .faults import Counters, CreateCounts, FaultError, Faults

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
