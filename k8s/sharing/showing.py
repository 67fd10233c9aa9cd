"""Shows the status of the ledgers that this process shares: if the environment asks for it, or the program does."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.gate.any_gate import AnyGate
    from backoff_ctrl.k8s.gate.ledger import Ledger
    from backoff_ctrl.k8s.status.documents.pages import Documents
    from backoff_ctrl.k8s.status.server import StatusServer
    from backoff_ctrl.k8s.watching.status import WatchRecord

log = logging.getLogger(__name__)

_shared: list[tuple[Ledger, str, Callable[[], WatchRecord | None]]] = []
_asked = False  # the program asked for the status of whatever is shared


def show(ledger: Ledger, server: str, watch: Callable[[], WatchRecord | None]) -> None:
    """Show a ledger that the process shares from now on, if that is wanted. Never raises."""
    _shared.append((ledger, server, watch))
    notify(ledger)
    trace(ledger)
    listen = os.environ.get("BACKOFF_CTRL_STATUS")
    if not listen and not _asked:
        return
    try:
        from backoff_ctrl.k8s.status.serving import SERVICE  # noqa: PLC0415 - costs nothing where it is not wanted

        SERVICE.add(ledger, server, watch)
        if listen:
            SERVICE.serve(listen)
    except Exception as error:  # noqa: BLE001 - law 18: status only helps
        log.warning("the status of this gate is not served: %s", error)


def notify(ledger: Ledger) -> None:
    """Tell the receivers of the file in ``BACKOFF_CTRL_NOTIFY`` of a ledger's creates, if it is set. Never raises."""
    file = os.environ.get("BACKOFF_CTRL_NOTIFY")
    if not file:
        return
    try:
        from backoff_ctrl.k8s.notifying.notifier import Notifier  # noqa: PLC0415 - costs nothing where not wanted
        from backoff_ctrl.k8s.notifying.receivers import read_receivers  # noqa: PLC0415
        from backoff_ctrl.k8s.status.sources import gate_name  # noqa: PLC0415

        ledger.subscribe(Notifier(ledger, read_receivers(Path(file)), gate_name()))
    except Exception as error:  # noqa: BLE001 - law 18: notifications only help
        log.error("nobody is notified of creates that wait: %s", error)  # noqa: TRY400 - a sentence, no traceback


def trace(ledger: Ledger) -> None:
    """Make spans of a ledger's creates, if ``BACKOFF_CTRL_TRACES=1`` is set. Never raises."""
    if os.environ.get("BACKOFF_CTRL_TRACES", "").strip().lower() not in ("1", "true", "yes", "on"):
        return
    try:
        from backoff_ctrl.k8s.tracing.spans import Spans  # noqa: PLC0415 - costs nothing where not wanted

        ledger.subscribe(Spans())
    except ImportError:
        log.error("creates are not traced: pip install 'backoff-ctrl[otel]'")  # noqa: TRY400
    except Exception as error:  # noqa: BLE001 - law 18: traces only help
        log.error("creates are not traced: %s", error)  # noqa: TRY400


def serve_status(*gates: AnyGate, listen: str = "127.0.0.1:9095", exact: bool = False) -> StatusServer:
    """Serve the status of these gates over HTTP; without any, of whatever the gated clients of this process share.

    Returns the server: ``url`` is where it is, ``close()`` ends it, and so does the end of the process. If the port is
    in use, the next free one is taken; with ``exact`` that raises ``OSError``. Raises ``ValueError`` for an address
    that other machines could reach.
    """
    from backoff_ctrl.k8s.status.address import read_address  # noqa: PLC0415
    from backoff_ctrl.k8s.status.serving import SERVICE  # noqa: PLC0415

    read_address(listen)
    _add(gates)
    return SERVICE.serve(listen, exact=exact)


def shown() -> Documents:
    """Begin to count what is shared, and return its documents: for a program that serves them itself."""
    from backoff_ctrl.k8s.status.serving import SERVICE  # noqa: PLC0415

    _add(())
    return SERVICE.documents


def status_collector(*gates: AnyGate, series_max: int = 50_000) -> Any:
    """Return a collector for a registry of prometheus-client: ``REGISTRY.register(status_collector())``.

    It has the metrics of these gates; without any, of whatever the gated clients of this process share.
    """
    from backoff_ctrl.k8s.status.metrics import collector  # noqa: PLC0415
    from backoff_ctrl.k8s.status.serving import SERVICE  # noqa: PLC0415

    _add(gates)
    return collector(SERVICE.documents, series_max)


def _add(gates: tuple[AnyGate, ...]) -> None:
    global _asked  # noqa: PLW0603 - one status per process
    from backoff_ctrl.k8s.status.serving import SERVICE  # noqa: PLC0415

    for gate in gates:
        SERVICE.add(gate.ledger)
    if not gates:
        _asked = True
        for ledger, server, watch in _shared:
            SERVICE.add(ledger, server, watch)
