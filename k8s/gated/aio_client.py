"""``AsyncGatedApiClient``: the same as ``GatedApiClient`` for ``kubernetes.aio`` and ``kubernetes_asyncio``."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Self

from backoff_ctrl.k8s.gate.aio import AsyncGate

from .adapters import asyncio_adapter, asyncio_package
from .errors import AsyncWaitTimeout
from .gating import GatedClient
from .waiting import waiting

if TYPE_CHECKING:
    from .aio_since_37 import AioSince37 as Adapter
else:
    Adapter = object  # which one is decided when a client is made

__all__ = ["AsyncGatedApiClient", "AsyncWaitTimeout", "waiting"]


class AsyncGatedApiClient(GatedClient[AsyncGate], Adapter):
    """An ``ApiClient`` for asyncio that gates namespaced creates; everything else passes straight through.

    Its arguments are those of ``GatedApiClient``, and both kinds of client share one ledger. It is a client of the
    package that the configuration is of, ``kubernetes.aio`` or ``kubernetes_asyncio``; without a configuration, of the
    one that the program uses.
    """

    _kind = AsyncGate

    def __new__(cls, configuration: Any = None, *_: Any, **__: Any) -> Self:
        """Make a client of the package that is meant."""
        adapter = asyncio_adapter(asyncio_package(configuration))
        made: Self = super().__new__(_with_adapter(cls, adapter))  # type: ignore[arg-type]  # types are hashable
        return made

    async def close(self) -> None:
        """Cancel what waits and log what that was, wait for the answers to what was sent, then close the client."""
        self._gating.cancel()
        await self._gating.gate.drain()
        self._gating.share.release()
        await super().close()  # type: ignore[no-untyped-call]


@cache
def _with_adapter(cls: Any, adapter: type) -> Any:
    """Return ``cls`` (or a caller's subclass of it) on this adapter, under its own name."""
    if issubclass(cls, adapter):
        return cls
    return type(cls.__name__, (cls, adapter), {"__module__": cls.__module__, "__doc__": cls.__doc__})
