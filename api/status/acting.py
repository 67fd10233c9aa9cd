"""``POST /v1/actions/...`` of ``serve``: whoever may edit the quotas of a namespace acts there, at the gates.

The API server says who asks and what he may; a gate only knows its own token, which ``serve`` has if it runs beside the
gate or was given the same variable. On this machine nobody is known, so the gate itself is the place to act.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool

from backoff_ctrl.k8s.acting.token import read_token
from backoff_ctrl.k8s.status.actions import ACTIONS, read_action
from backoff_ctrl.k8s.status.address import is_loopback
from backoff_ctrl.k8s.status.asked import ProblemError
from backoff_ctrl.k8s.status.endpoints import OfAction
from backoff_ctrl.k8s.status.shapes.documents import Acted
from backoff_ctrl.k8s.status.sources import shown

from .access import EDITING, Access
from .gates import GateError, Gates
from .observing import Cluster
from .routing import Caller

if TYPE_CHECKING:
    from .gates import Gate

LOCAL: Final = "actions need the header Authorization: Bearer TOKEN; it is in {}"
THERE: Final = "act at the gate itself, with its own token: backoff-ctrl act --server {}"


class Acting:
    """Passes actions on to the gates."""

    def __init__(self, cluster: Cluster, gates: Gates, access: Access) -> None:
        self._cluster = cluster
        self._gates = gates
        self._access = access

    async def act(self, query: OfAction, caller: Caller) -> Acted:
        """Do what an operator wants: see docs/status-api.md."""
        name = query.action
        if name not in ACTIONS:
            raise ProblemError(404, f"there are {', '.join(ACTIONS)}", "#/path/action")
        if (none := self._gates.note()) is not None:
            raise ProblemError(409, none)
        self._check_local(caller)
        wanted = read_action(caller.headers.get("content-type", ""), await caller.body(), ACTIONS[name])
        who = await caller.name()  # nobody is known on this machine
        namespace = wanted.get("namespace") or (await self._gates.request(wanted["id"]))["namespace"]
        await caller.permit(namespace, EDITING)
        told = {**wanted, "by": who} if who else wanted  # whatever the body says: the audit line names who was checked
        gates = [gate for gate in self._gates.gates if self._access.asks_for_token or gate.own is not None]
        found = await asyncio.gather(*(self._tell(gate, name, told) for gate in gates))
        done = [text for text, _ in found if text]
        if not done:
            raise _undone([error for _, error in found if error is not None])
        missing = [f"not at {error}" for _, error in found if error is not None and error.status != 404]
        return Acted(shown(self._cluster.source.clock.wall()), name, "; ".join([*done, *missing]))

    def _check_local(self, caller: Caller) -> None:
        """Raise ``ProblemError`` on this machine for whoever has not the token of this process' own gate."""
        if self._access.asks_for_token:
            return
        own = self._gates.own
        if own is None:
            raise ProblemError(403, THERE.format(self._gates.gates[0].url), "#/headers/Authorization")
        if not own.token.allows(caller.headers.get("authorization", "")):
            raise ProblemError(401, LOCAL.format(own.token.where), "#/headers/Authorization")

    async def _tell(self, gate: Gate, name: str, wanted: dict[str, Any]) -> tuple[str, GateError | None]:
        """Return what a gate did, or why it did not."""
        parts = urlsplit(gate.url)
        local = (is_loopback(parts.netloc) or gate.own is not None) and not gate.pod
        token = await run_in_threadpool(read_token, parts.port or 0) if local else ""
        if not token:
            return "", GateError(f"{gate.url}: serve has no token to act there; {THERE.format(gate.url)}")
        try:
            found = await self._gates.ask(gate, f"/v1/actions/{name}", body=wanted, token=token)
            return str(found["done"]), None
        except (GateError, KeyError, TypeError) as error:
            return "", GateError(f"{gate.url}: {error}", error.status if isinstance(error, GateError) else 0)


def _undone(errors: list[GateError]) -> ProblemError:
    """Return the problem where no gate did it: the first that knew what was meant says why."""
    known = next((each for each in errors if each.status != 404), errors[0])
    status = known.status if known.status in (404, 409) else 502
    return ProblemError(status, str(known))
