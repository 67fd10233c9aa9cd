"""``GatedApiClient``: the official client for threads, whose creates wait their turn instead of failing with 403.

core = client.CoreV1Api(GatedApiClient())

``AsyncGatedApiClient`` is in ``aio_client``.
"""

from __future__ import annotations

import threading
from typing import Final

from backoff_ctrl.k8s.gate.threads import Gate

from .gating import GatedClient, waiting
from .generations import is_since_37

if is_since_37("kubernetes"):  # says what to do if it is missing; else the client can be imported
    from .threads import Since37 as Adapter
else:
    from .threads import Until36 as Adapter

from kubernetes.client.rest import RESTClientObject

from .threads import ThreadTransport, WaitTimeout

__all__ = ["GatedApiClient", "WaitTimeout", "waiting"]

_LEFT_BEHIND: Final[list[RESTClientObject]] = []
"""The connections of a forked child's parent: to close them takes locks, which a thread of the parent may have held."""


class GatedApiClient(GatedClient[Gate], Adapter):
    """An ``ApiClient`` that gates namespaced creates; everything else passes straight through.

    Without ``gate`` it shares one ledger with every other client of this process and API server, sync or async.
    A create under a full quota waits; ``waiting(...)`` limits the wait and sets priority and idempotency key.
    ``events``: whether to write Kubernetes events (None: if ``BACKOFF_CTRL_EVENTS=1`` is set). All other arguments
    are those of ``ApiClient``. Closing the client cancels what waits (``GateClosed``) and logs what that was.
    """

    kind = Gate
    transport = ThreadTransport

    def renew(self) -> None:
        """Forget the pool of ``async_req`` in a forked child, where no thread would take a step, and the connections.

        On a connection of both, each would read the other's answers.
        """
        state = vars(self)
        if "_pool_lock" in state:  # another thread may have held it
            state["_pool_lock"] = threading.Lock()
        state["_pool"] = None
        if type(self.rest_client) is RESTClientObject:  # else it is the caller's own
            _LEFT_BEHIND.append(self.rest_client)
            self.rest_client = RESTClientObject(self.configuration)

    def close(self) -> None:
        """Cancel what waits and log what that was, then do as ``ApiClient`` does."""
        self._gating.gate.cancel_own("the client was closed")
        self._gating.share.release()
        super().close()  # type: ignore[no-untyped-call]
