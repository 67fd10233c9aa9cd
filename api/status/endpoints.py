"""What ``serve`` answers at each URL below ``/v1``."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from backoff_ctrl.k8s.status.asked import ProblemError, cursor, wanted
from backoff_ctrl.k8s.status.explaining.bodies import BODY_MAX, namespace_of, read_manifest, too_large
from backoff_ctrl.k8s.status.explaining.document import explained_by
from backoff_ctrl.k8s.status.routes import PAGING, as_found
from backoff_ctrl.k8s.status.sources import shown

from .access import HOLDERS
from .answering import Answering
from .answers import answer, answer_found, asked_of
from .gates import GateError


class Endpoints(Answering):
    """Answers for one cluster and its gates, as documents."""

    # -- of the cluster ---------

    async def ceilings(self, request: Request) -> Response:
        """A page of ceilings, as the quotas themselves show them."""
        names = ("namespace", "quota", "resource")
        asked = asked_of(request, *names, *PAGING)
        where = {name: wanted(asked.query, name) for name in names}
        await self.permit(request, where["namespace"])
        after, limit = asked.after("ceilings"), asked.limit()
        return await run_in_threadpool(
            lambda: answer_found(request, as_found(self._cluster.documents.ceilings(where, after, limit)))
        )

    async def namespaces(self, request: Request) -> Response:
        """A page of the namespaces with a quota, by name."""
        asked = asked_of(request, *PAGING)
        await self.permit(request, None)
        after, limit = asked.after("namespaces"), asked.limit()
        return await run_in_threadpool(self._namespaces, request, "" if after is None else str(after[1]), limit)

    def _namespaces(self, request: Request, after: str, limit: int) -> Response:
        names = []
        for name in self._cluster.source.namespaces(after):
            names.append(name)
            if len(names) > limit:
                break
        items = [vars(self._overview.seen(name)) for name in names[:limit]]
        following = cursor("namespaces", [0, names[limit - 1]]) if len(names) > limit else None
        return answer(request, {"as_of": self._now(), "items": items, "next": following})

    async def explain(self, request: Request) -> Response:
        """What would happen to the manifest in the body."""
        asked = asked_of(request, "namespace")
        manifest = read_manifest(await _body(request), request.headers.get("content-type", ""))
        namespace = namespace_of(manifest, wanted(asked.query, "namespace"))
        await self.permit(request, namespace)

        def explain() -> Response:
            ranges = self._cluster.limit_ranges(namespace)
            found = explained_by([self._cluster.source], manifest, namespace, ranges)
            return answer(request, vars(found))

        return await run_in_threadpool(explain)

    async def holders(self, request: Request) -> Response:
        """Who holds the quotas of a namespace."""
        asked = asked_of(request, "namespace", "quota")
        namespace = wanted(asked.query, "namespace")
        if namespace is None:
            raise ProblemError(400, "say of which namespace: ?namespace=", "#/query/namespace")
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
        self._gates.insist()
        items, following = await self._gates.page(
            "/v1/waiting", {"namespace": namespace} if namespace else {}, start, limit
        )
        return answer(
            request,
            {
                "as_of": self._now(),
                "items": items,
                "next": None if following is None else cursor("merged", following),
                "unreachable": self._gates.unreachable(),
            },
        )

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
        self._gates.insist()
        seq, first = self._merged.place(request.headers.get("last-event-id") or asked.query.get("after"))
        if self._merged.listeners >= self._merged.listeners_max:
            raise ProblemError(503, "too many listen to decisions already; try again later")
        return StreamingResponse(self._merged.listen(seq, first, namespace), media_type="text/event-stream")

    async def gates(self, request: Request) -> Response:
        """The gates that are connected, as each tells of itself, and those that do not answer."""
        asked_of(request)
        await self.permit(request, None)
        items: list[Any] = []
        for gate in self._gates.gates:
            try:
                items += (await self._gates.get(gate, "/v1/gates"))["items"]
                gate.why = ""
            except (GateError, KeyError, TypeError) as error:
                gate.why = str(error)
        document = {"as_of": self._now(), "items": items, "next": None, "unreachable": self._gates.unreachable()}
        return answer(request, document)

    def _now(self) -> str:
        return shown(self._cluster.source.clock.wall())


async def _body(request: Request) -> bytes:
    """Read a body, but not more than a manifest may have. Raises ``ProblemError``."""
    read = bytearray()
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdecimal():
        too_large(int(length))
    async for chunk in request.stream():
        read += chunk
        if len(read) > BODY_MAX:
            too_large(len(read))
    return bytes(read)
