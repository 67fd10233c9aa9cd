"""What ``serve`` answers at each URL below ``/v1``."""

from __future__ import annotations

import time
from heapq import merge
from itertools import groupby, islice
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from backoff_ctrl.api.commands.instance.reading import read
from backoff_ctrl.k8s.status.asked import ProblemError, cursor, wanted
from backoff_ctrl.k8s.status.explaining.bodies import (
    checked_name,
    confirm_wanted,
    namespace_of,
    read_manifest,
)
from backoff_ctrl.k8s.status.routes import PAGING
from backoff_ctrl.k8s.status.shapes.documents import Gate, Overload, PolicyDocument, Waiting
from backoff_ctrl.k8s.status.sources import shown

from .access import HOLDERS, token_of, while_permitted
from .answering import Answering
from .answers import answer, asked_of, read_body
from .connected.gates import checked
from .explaining import Explaining


class Endpoints(Answering):
    """Answers for one cluster and its gates, as documents."""

    # -- of the cluster ---------

    async def ceilings(self, request: Request) -> Response:
        """A page of ceilings, as the quotas themselves show them, else as gates know them, with what the gates hold."""
        names = ("namespace", "quota", "resource")
        asked = asked_of(request, *names, *PAGING)
        where = {name: wanted(asked.query, name) for name in names}
        await self.permit(request, where["namespace"])
        after, limit = asked.after("ceilings"), asked.limit()
        if where["namespace"]:
            await self._gates.renew(where["namespace"])
        page = await run_in_threadpool(self._cluster.documents.ceilings, where, after, limit)
        seen = await run_in_threadpool(self._overview.unwatched.page, page.items, where, after, limit)
        following = None
        if len(seen) > limit or page.next:
            last = seen[limit - 1]
            following = cursor("ceilings", [0, last.namespace, last.quota, last.resource])
        return self._listed(request, seen[:limit], following)

    async def namespaces(self, request: Request) -> Response:
        """A page of the namespaces with a quota, by name."""
        asked = asked_of(request, *PAGING)
        await self.permit(request, None)
        after, limit = asked.after("namespaces"), asked.limit()
        return await run_in_threadpool(self._namespaces, request, "" if after is None else str(after[1]), limit)

    def _namespaces(self, request: Request, after: str, limit: int) -> Response:
        told = (name for name in self._overview.unwatched.names() if name > after)
        every = (name for name, _ in groupby(merge(self._cluster.source.namespaces(after), told)))
        names = list(islice(every, limit + 1))
        items = [vars(self._overview.seen(name)) for name in names[:limit]]
        following = cursor("namespaces", [0, names[limit - 1]]) if len(names) > limit else None
        return self._listed(request, items, following)

    async def explain(self, request: Request) -> Response:
        """What would happen to the manifest in the body."""
        asked = asked_of(request, "namespace", "confirm")
        confirm = confirm_wanted(asked.query)
        body = await read_body(request)
        manifest = await run_in_threadpool(read_manifest, body, request.headers.get("content-type", ""))
        namespace = namespace_of(manifest, wanted(asked.query, "namespace"))
        await self.permit(request, namespace)
        explaining = Explaining(self._cluster, self._gates)
        found = await explaining.explain(manifest, namespace)
        if confirm:
            await explaining.confirm(manifest, namespace, found, token_of(request.headers, request.cookies))
        return answer(request, vars(found))

    async def holders(self, request: Request) -> Response:
        """Who holds the quotas of a namespace."""
        asked = asked_of(request, "namespace", "quota")
        namespace = wanted(asked.query, "namespace")
        if namespace is None:
            raise ProblemError(400, "say of which namespace: ?namespace=", "#/query/namespace")
        checked_name(namespace, "#/query/namespace")
        await self.permit(request, namespace)
        await self.permit(request, namespace, HOLDERS)
        found = await run_in_threadpool(self._cluster.holders, namespace, wanted(asked.query, "quota"))
        return answer(request, found)

    # -- of the gates ---------

    async def waiting(self, request: Request) -> Response:
        """A page of the creates that wait, gate by gate."""
        asked = asked_of(request, "namespace", *PAGING)
        namespace, limit = wanted(asked.query, "namespace"), asked.limit()
        start = asked.after("merged") or [0, ""]
        await self.permit(request, namespace)
        query = {"namespace": namespace} if namespace else {}
        items, following = await self._gates.page("/v1/waiting", Waiting, query, start, limit)
        return self._listed(request, items, None if following is None else cursor("merged", following))

    async def history(self, request: Request) -> Response:
        """What happened to one create."""
        asked_of(request)
        found = await self._gates.request(request.path_params["id"])
        await self.permit(request, str(found.get("namespace", "")) or None)
        return answer(request, found)

    async def decisions(self, request: Request) -> Response:
        """The decisions of all gates, as server-sent events."""
        asked = asked_of(request, "namespace", "after")
        namespace = wanted(asked.query, "namespace")
        await self.permit(request, namespace)
        seq, first = self._merged.place(request.headers.get("last-event-id") or asked.query.get("after"))
        if self._merged.listeners >= self._merged.listeners_max:
            raise ProblemError(503, "too many listen to decisions already; try again later")
        heard = while_permitted(
            self._merged.listen(seq, first, namespace), lambda: self.permit(request, namespace), time.monotonic
        )
        return StreamingResponse(heard, media_type="text/event-stream")

    async def gates(self, request: Request) -> Response:
        """The gates that are connected, as each tells of itself, and those that do not answer."""
        return await self._of_gates(request, "/v1/gates", Gate)

    async def overload(self, request: Request) -> Response:
        """How many creates each gate may have in flight, by server, credential and priority level."""
        return await self._of_gates(request, "/v1/overload", Overload)

    async def policy(self, request: Request) -> Response:
        """The settings in force at each gate."""
        asked_of(request)
        await self.permit(request, None)
        items = []
        for gate, found in await self._gates.each("/v1/policy"):
            try:
                read(PolicyDocument, found)
            except ValueError as error:
                gate.why = str(error)
            else:
                items.append({"gate_url": gate.url, "mode": found["mode"], "policy": found["policy"]})
        return self._listed(request, items, None)

    async def _of_gates(self, request: Request, path: str, shape: type) -> Response:
        """Return the items of a list that each gate has, with the URL of the gate."""
        asked_of(request)
        await self.permit(request, None)
        items: list[Any] = []
        for gate, found in await self._gates.each(path):
            try:
                items += [{**each, "gate_url": gate.url} for each in checked(shape, found["items"])]
            except (KeyError, TypeError, ValueError) as error:
                gate.why = str(error) or "it is not a gate"
        return self._listed(request, items, None)

    def _listed(self, request: Request, items: list[Any], following: str | None) -> Response:
        """Return a page, and which gates it lacks."""
        return answer(
            request,
            {
                "as_of": self._now(),
                "items": items,
                "next": following,
                "unreachable": self._gates.unreachable(),
                "note": self._gates.note(),
            },
        )

    def _now(self) -> str:
        return shown(self._cluster.source.clock.wall())
