"""Opens the room of held creates for a sidecar: with the ledger, the watch and the settings of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.sharing.environment import environment
from backoff_ctrl.k8s.sharing.process import Share

from .account import OwnAccount
from .holding import Holding

if TYPE_CHECKING:
    from backoff_ctrl.k8s.proxy.messages import Request, Response
    from backoff_ctrl.k8s.proxy.upstream import ApiServer

    from .settings import HoldSettings


class AsProxy:
    """The upstream, asked with the proxy's own credentials."""

    def __init__(self, server: ApiServer) -> None:
        """Each ``ask`` goes to ``server`` under the account of its place, whoever the caller of the proxy is."""
        self._server = server

    async def ask(self, request: Request, limit: int = 3 * 2**20) -> Response:
        """Send a request of the proxy's own; raises as ``Upstream.ask`` does."""
        return await self._server.ask_as_proxy(request, limit)


def open_holding(server: ApiServer, settings: HoldSettings | None = None) -> Holding:
    """Return the creates of a sidecar in front of ``server``.

    Quotas are watched with the proxy's own account once a create waits for one, where it may; ``BACKOFF_CTRL_MODE``,
    ``BACKOFF_CTRL_MEMORY``, ``BACKOFF_CTRL_EVENTS`` and the others count as for gated clients, but for
    ``BACKOFF_CTRL_TIMEOUT``: how long a create is held is the sidecar's own setting. Raises ``OptionError``.
    """
    place = server.place
    share = Share(OwnAccount(place), None)
    gate = AsyncGate(ledger=share.ledger, mode=environment().mode or None)
    has_account = bool(place.token or place.basic or place.certificate)
    own = AsProxy(server) if has_account else None
    return Holding(server, gate, place.url, settings, own=own, at_end=share.release, lends=server.uses_own)
