"""The status of what this process gates, for programs that ask for it: served over HTTP, as documents, as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.gate.any_gate import AnyGate
from backoff_ctrl.k8s.gate.sharing.process import show_shared
from backoff_ctrl.k8s.kube.cluster.address import read_address

from .documents import Documents
from .metrics import collector
from .serving import SERVICE

if TYPE_CHECKING:
    from .server import StatusServer  # loads aiohttp.web


def serve_status(
    *gates: AnyGate, listen: str = "127.0.0.1:9095", exact: bool = False, shared: bool = False
) -> StatusServer:
    """Serve the status of these gates over HTTP; without arguments, of all that the gated clients of this process
    share.

    Returns the server: ``url`` is where it is, ``close()`` ends it, and so does the end of the process. If the port is
    in use, the next free one is taken; with ``exact`` that raises ``OSError``, unless both processes say ``shared``.
    Raises ``ValueError`` for an address that other machines could reach.
    """
    read_address(listen)
    _add(gates)
    return SERVICE.serve(listen, exact=exact, shared=shared)


def shown() -> Documents:
    """Begin to count what is shared, and return its documents: for a program that serves them itself."""
    _add(())
    return SERVICE.documents


def status_collector(*gates: AnyGate, series_max: int = 50_000) -> Any:
    """Return a collector for a registry of prometheus-client: ``REGISTRY.register(status_collector())``.

    It has the metrics of these gates; without arguments, of all that the gated clients of this process share. Raises
    ``ImportError`` without prometheus-client.
    """
    _add(gates)
    try:
        return collector(SERVICE.documents, series_max)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise ImportError("status_collector needs a further package: pip install 'backoff-ctrl[metrics]'") from None


def _add(gates: tuple[AnyGate, ...]) -> None:
    for gate in gates:
        SERVICE.add(gate.ledger)
    if not gates:
        show_shared()
