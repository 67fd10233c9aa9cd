"""What ``serve`` answers at each URL below ``/v1``, for one cluster and its gates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool

from backoff_ctrl.k8s.gate.settings import settings
from backoff_ctrl.k8s.kube.cluster.address import is_loopback
from backoff_ctrl.k8s.status import endpoints, shapes
from backoff_ctrl.k8s.status.actions import ACTIONS, read_action
from backoff_ctrl.k8s.status.asked import Anything, ProblemError, cursor, read_cursor
from backoff_ctrl.k8s.status.bodies import checked_name, namespace_of, read_manifest
from backoff_ctrl.k8s.status.client import read
from backoff_ctrl.k8s.status.conversation import EVENTS, Answer
from backoff_ctrl.k8s.status.documents import Documents
from backoff_ctrl.k8s.status.metrics import CONTENT_TYPE, exposition
from backoff_ctrl.k8s.status.serving import SERVICE, own_version
from backoff_ctrl.k8s.status.sources import shown
from backoff_ctrl.k8s.status.streams import Streams
from backoff_ctrl.k8s.status.token import read_token

from .access import EDITING, HOLDERS, Access, while_permitted
from .explaining import confirmed, explained
from .gate import Gate, GateError
from .gates import Gates, Merged, MergedDecision, checked
from .gates_found import Finder
from .observing import Cluster
from .overview import Overview
from .routing import Caller
from .served_tasks import ServedTasks

THERE: Final = "act at the gate itself, with its own token: backoff-ctrl act --gate {}"


@dataclass(frozen=True, slots=True)
class Served:
    """What ``serve`` consists of. ``tasks`` None: it has no store."""

    cluster: Cluster
    gates: Gates
    merged: Merged
    streams: Streams[MergedDecision]
    overview: Overview
    finder: Finder
    access: Access
    tasks: ServedTasks | None


class Endpoints:
    """A method for each name of ``k8s/status/endpoints``."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self._cluster = served.cluster
        self._gates = served.gates
        self._overview = served.overview

    # -- of the cluster ---------

    async def ceilings(self, query: endpoints.OfCeilings, caller: Caller) -> dict[str, Any]:
        """A page of ceilings, as the quotas themselves show them, else as gates know them, with what the gates hold."""
        await caller.permit(query.namespace)
        if query.namespace:
            await self._gates.renew(query.namespace)
        seen, following = await run_in_threadpool(self._overview.unwatched.page, query), None
        if len(seen) > query.limit:
            last = seen[query.limit - 1]
            following = cursor("ceilings", [0, last.namespace, last.quota, last.resource])
        return self._listed(seen[: query.limit], following)

    async def namespaces(self, query: endpoints.OfPage, caller: Caller) -> dict[str, Any]:
        """A page of the namespaces with a quota, by name."""
        after = read_cursor(query.after, "namespaces")
        await caller.permit(None)
        return await run_in_threadpool(self._namespaces, "" if after is None else str(after[1]), query.limit)

    def _namespaces(self, after: str, limit: int) -> dict[str, Any]:
        told = (name for name in self._overview.unwatched.names() if name > after)
        every = (name for name, _ in groupby(merge(self._cluster.source.namespaces(after), told)))
        names = list(islice(every, limit + 1))
        items = [vars(self._overview.seen(name)) for name in names[:limit]]
        following = cursor("namespaces", [0, names[limit - 1]]) if len(names) > limit else None
        return self._listed(items, following)

    async def explain(self, query: endpoints.OfExplain, caller: Caller) -> shapes.Explained:
        """What would happen to the manifest in the body."""
        body = await caller.body()
        manifest = await run_in_threadpool(read_manifest, body, caller.headers.get("content-type", ""))
        namespace = namespace_of(manifest, query.namespace)
        await caller.permit(namespace)
        found = await explained(self._cluster, self._gates, manifest, namespace)
        if query.confirm:
            await confirmed(self._cluster, manifest, namespace, found, caller.token)
        return found

    async def holders(self, query: endpoints.OfHolders, caller: Caller) -> dict[str, Any]:
        """Who holds the quotas of a namespace."""
        if query.namespace is None:
            raise ProblemError(400, "choose a namespace with ?namespace=", "#/query/namespace")
        checked_name(query.namespace, "#/query/namespace")
        await caller.permit(query.namespace)
        await caller.permit(query.namespace, HOLDERS)
        await self._gates.renew(query.namespace)
        waiting = None if self._gates.unlisted else self._overview.waiting(query.namespace)
        return await run_in_threadpool(self._cluster.holders, query.namespace, query.quota, waiting)

    # -- of the gates ---------

    async def waiting(self, query: endpoints.OfNamespace, caller: Caller) -> dict[str, Any]:
        """A page of the creates that wait, gate by gate."""
        start = read_cursor(query.after, "merged") or [0, ""]
        await caller.permit(query.namespace)
        wanted = {"namespace": query.namespace} if query.namespace else {}
        items, following = await self._gates.page("/v1/waiting", shapes.Waiting, wanted, start, query.limit)
        return self._listed(items, None if following is None else cursor("merged", following))

    async def request(self, query: endpoints.OfRequest, caller: Caller) -> dict[str, Any]:
        """What happened to one create."""
        found = await self._gates.request(query.id)
        await caller.permit(str(found.get("namespace", "")) or None)
        return found

    async def decisions(self, query: endpoints.OfDecisions, caller: Caller) -> Answer:
        """The decisions of all gates, as server-sent events."""
        await caller.permit(query.namespace)
        pieces = self.served.streams.begin(query.namespace, caller.headers.get("last-event-id") or query.after)
        heard = while_permitted(pieces, lambda: caller.permit(query.namespace), time.monotonic)
        return Answer(content_type=EVENTS, stream=heard)

    async def gates(self, _: endpoints.Nothing, caller: Caller) -> dict[str, Any]:
        """The connected gates, as each describes itself, and those that do not answer."""
        return await self._of_gates(caller, "/v1/gates", _items_of(shapes.Gate))

    async def overload(self, _: endpoints.Nothing, caller: Caller) -> dict[str, Any]:
        """How many creates each gate may have in flight, by server, credential and priority level."""
        return await self._of_gates(caller, "/v1/overload", _items_of(shapes.Overload))

    async def policy(self, _: endpoints.Nothing, caller: Caller) -> dict[str, Any]:
        """The settings in force at each gate."""

        def of_gate(gate: Gate, found: Any) -> list[Any]:
            read(shapes.PolicyDocument, found)
            return [{"gate_url": gate.url, "mode": found["mode"], "policy": found["policy"]}]

        return await self._of_gates(caller, "/v1/policy", of_gate)

    async def _of_gates(self, caller: Caller, path: str, items: Callable[[Gate, Any], list[Any]]) -> dict[str, Any]:
        """Return the items that each gate's document at a path has."""
        await caller.permit(None)
        return self._listed(await self._gates.each(path, items), None)

    def _listed(self, items: list[Any], following: str | None) -> dict[str, Any]:
        """Return a page, and the gates that it lacks."""
        return {
            "as_of": shown(self._cluster.source.clock.wall()),
            "items": items,
            "next": following,
            "unreachable": self._gates.unreachable(),
            "note": self._gates.note(),
        }

    # -- actions ---------

    async def act(self, query: endpoints.OfAction, caller: Caller) -> shapes.Acted:
        """Do what an operator wants: see docs/status-api.md."""
        name = query.action
        if name not in ACTIONS:
            raise ProblemError(404, f"unknown action: choose from {', '.join(ACTIONS)}", "#/path/action")
        if not self._gates.gates and (none := self._gates.note()) is not None:
            raise ProblemError(409, none)
        self._check_local(caller)
        wanted = read_action(caller.headers.get("content-type", ""), await caller.body(), ACTIONS[name])
        who = await caller.name()  # empty on this machine
        namespace = wanted.get("namespace") or (await self._gates.request(wanted["id"]))["namespace"]
        await caller.permit(namespace, EDITING)
        told = {**wanted, "by": who} if who else wanted  # not what the body says: the audit line names this user
        gates = [gate for gate in self._gates.gates if self.served.access.asks_for_token or gate.own is not None]
        found = await asyncio.gather(*(self._tell(gate, name, told) for gate in gates))
        done = [text for text, _ in found if text]
        if not done:
            raise _undone([error for _, error in found if error is not None])
        missing = [f"not at {error}" for _, error in found if error is not None and error.status != 404]
        return shapes.Acted(shown(self._cluster.source.clock.wall()), name, "; ".join([*done, *missing]))

    def _check_local(self, caller: Caller) -> None:
        """Raise ``ProblemError`` on this machine for a caller without the token of this process' own gate."""
        if self.served.access.asks_for_token:
            return
        own = self._gates.own
        if own is None:
            raise ProblemError(403, THERE.format(self._gates.gates[0].url), "#/headers/Authorization")
        own.token.check(caller.headers.get("authorization", ""))

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

    # -- probes, version, metrics ---------

    async def livez(self, _: Anything, __: Caller) -> Answer:
        """Whether the program runs."""
        return Answer([b"ok\n"])

    async def readyz(self, _: Anything, __: Caller) -> Answer:
        """Whether all quotas are watched and gates were looked for, with the reasons why not; and missing rights."""
        reasons = [*self._cluster.unready(), *self._gates.unready()]
        gates_in, asks_who = self.served.finder.namespaces, self.served.access.asks_for_token
        lacking = await run_in_threadpool(self._cluster.lacking, gates_in, asks_who=asks_who)
        return Answer(
            [f"{line}\n".encode() for line in (*(reasons or ["ok"]), *lacking)], status=503 if reasons else 200
        )

    async def version(self, _: Anything, __: Caller) -> dict[str, str]:
        """The version of this program."""
        return {"version": own_version()}

    async def metrics(self, _: Anything, caller: Caller) -> Answer:
        """Metrics of the cluster's ceilings, and of the tasks and their gate where there are any, for Prometheus."""
        await caller.permit(None)
        tasks = self.served.tasks
        documents = Documents([*(SERVICE.sources if tasks else []), self._cluster.source], own_version())
        more = list(tasks.samples()) if tasks else []  # here: the loop owns the tasks
        pieces = await run_in_threadpool(exposition, documents, None, settings().series_max, more)
        return Answer(pieces, CONTENT_TYPE)


def _items_of(shape: type) -> Callable[[Gate, Any], list[Any]]:
    """Return who reads the items of a gate's list, and adds the URL of the gate."""
    return lambda gate, found: [{**each, "gate_url": gate.url} for each in checked(shape, found["items"])]


def _undone(errors: list[GateError]) -> ProblemError:
    """Return the problem if no gate did it: that of the first gate that knew the target."""
    known = next((each for each in errors if each.status != 404), errors[0])
    status = known.status if known.status in (404, 409) else 502
    return ProblemError(status, str(known))
