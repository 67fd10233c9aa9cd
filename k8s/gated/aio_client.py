"""``AsyncGatedApiClient``: the same as ``GatedApiClient`` for ``kubernetes.aio``, with the same arguments."""

from __future__ import annotations

from backoff_ctrl.k8s.gate.aio import AsyncGate

from .aio_since_37 import AioSince37, AsyncWaitTimeout
from .gating import GatedClient
from .waiting import waiting

__all__ = ["AsyncGatedApiClient", "AsyncWaitTimeout", "waiting"]


class AsyncGatedApiClient(GatedClient[AsyncGate], AioSince37):
    """An aio ``ApiClient`` that gates namespaced creates; everything else passes straight through.

    Its arguments are those of ``GatedApiClient``, and both kinds of client share one ledger.
    """

    _kind = AsyncGate

    async def close(self) -> None:
        """Cancel what waits and log what that was, wait for the answers to what was sent, then close the client."""
        self._gating.cancel()
        await self._gating.gate.drain()
        self._gating.share.release()
        await super().close()  # type: ignore[no-untyped-call]
