"""Creates wait their turn at a Kubernetes ResourceQuota instead of failing.

    from backoff_ctrl import GatedApiClient, waiting

The names below are loaded when they are first used: threads alone never load asyncio's client.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from backoff_ctrl.engine.errors import GangError
    from backoff_ctrl.k8s.gate.aio import AsyncGate
    from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
    from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
    from backoff_ctrl.k8s.gate.clients.gangs import GangFailed, create_gang, gang
    from backoff_ctrl.k8s.gate.clients.gating import waiting
    from backoff_ctrl.k8s.gate.creates.creation import KeyReusedError, OptionError
    from backoff_ctrl.k8s.gate.gangs import GangRefused
    from backoff_ctrl.k8s.gate.ledger import waiting_now
    from backoff_ctrl.k8s.gate.threads import Gate
    from backoff_ctrl.k8s.kube.answers.answer import GateClosed, WaitedTooLong
    from backoff_ctrl.k8s.status.showing import serve_status, status_collector

    from .engine import Controller

if not (Path(__file__).parent / "k8s" / "__init__.py").is_file():  # a clone without links, or an sdist
    raise ImportError("backoff_ctrl/k8s and backoff_ctrl/api are missing: see CONTRIBUTING.md, Set up", name=__name__)

__all__ = [
    "AsyncGate",
    "AsyncGatedApiClient",
    "Controller",
    "GangError",
    "GangFailed",
    "GangRefused",
    "Gate",
    "GateClosed",
    "GatedApiClient",
    "KeyReusedError",
    "OptionError",
    "WaitedTooLong",
    "create_gang",
    "gang",
    "serve_status",
    "status_collector",
    "waiting",
    "waiting_now",
]

_HOMES: Final = {
    "AsyncGate": "k8s.gate.aio",
    "AsyncGatedApiClient": "k8s.gate.clients.aio_client",
    "Controller": "engine",
    "GangError": "engine",
    "GangFailed": "k8s.gate.clients.gangs",
    "GangRefused": "k8s.gate.gangs",
    "Gate": "k8s.gate.threads",
    "GateClosed": "k8s.kube.answers.answer",
    "GatedApiClient": "k8s.gate.clients.client",
    "KeyReusedError": "k8s.gate.creates.creation",
    "OptionError": "k8s.gate.creates.creation",
    "WaitedTooLong": "k8s.kube.answers.answer",
    "create_gang": "k8s.gate.clients.gangs",
    "gang": "k8s.gate.clients.gangs",
    "serve_status": "k8s.status.showing",
    "status_collector": "k8s.status.showing",
    "waiting": "k8s.gate.clients.gating",
    "waiting_now": "k8s.gate.ledger",
}


def __getattr__(name: str) -> Any:
    """Load the module that a public name lives in (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found  # the next use finds it at once
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
