"""HTTP in and out: requests become operations, results become answers, faults strike in between."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from email.utils import formatdate
from typing import Any, Final, NamedTuple
from uuid import uuid4

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from backoff_ctrl.k8s.lab.sandbox.core import Core
from backoff_ctrl.k8s.lab.sandbox.faults import CreateCounts
from backoff_ctrl.k8s.lab.sandbox.objects.answers import PLAIN_404, ApiError, internal, timed_out, too_large
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import EVENTS, GROUP_EVENTS
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, dump, load
from backoff_ctrl.k8s.lab.sandbox.verbs.controllers import GarbageCollector
from backoff_ctrl.k8s.lab.sandbox.verbs.deleting import Deleter
from backoff_ctrl.k8s.lab.sandbox.verbs.patching import Patch, log_of, patch_of, patch_scale, scale_of, set_scale
from backoff_ctrl.k8s.lab.sandbox.verbs.reading import get_one, list_page
from backoff_ctrl.k8s.lab.sandbox.verbs.requests import Query, Target, WriteOptions, target_of, verb_of
from backoff_ctrl.k8s.lab.sandbox.verbs.watching import Watch
from backoff_ctrl.k8s.lab.sandbox.verbs.writing import Writer

from .bodies import JSON_TYPE, media_type, read_body, read_object, read_patch
from .forms import Form, form_of
from .openapi import OpenApi
from .special import special

Result = tuple[int, bytes]
Both = tuple[CreateCounts, CreateCounts]

# Events of ``events.k8s.io/v1`` are those of ``v1`` with other field names. They are stored as ``v1``.
_STORED: Final = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_SHOWN: Final = {stored: shown for shown, stored in _STORED.items()}


class Sent(NamedTuple):
    data: bytes
    content_type: str | None = None
    user_agent: str = ""


class Operations:
    """The verbs on resources. Each is atomic: no other runs between its first read and its last write."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._writer = Writer(core)
        self.deleter = Deleter(core)

    def read(self, verb: str, target: Target, query: Query, form: Form) -> bytes:
        if target.kind is GROUP_EVENTS:
            data = self.read(verb, replace(target, kind=EVENTS), query, form)
            return data if form.shape else _shown_body(data)
        if verb == "list":
            return form.of_page(target, list_page(self._core, target, query))
        if target.subresource == "log":
            return log_of(self._core, target, query)
        stored = get_one(self._core, target, query)
        data = dump(scale_of(stored.parse())) if target.subresource == "scale" else stored.data
        return form.of_one(target, data)

    def write(self, verb: str, target: Target, query: Query, sent: Sent) -> Result:
        if target.kind is GROUP_EVENTS:
            if verb in {"create", "update", "patch"}:
                sent = Sent(*_stored_body(verb, sent.data, sent.content_type), sent.user_agent)
            code, data = self.write(verb, replace(target, kind=EVENTS), query, sent)
            return code, _shown_body(data)
        if verb in {"delete", "deletecollection"}:
            options = read_body(sent.data, sent.content_type) if sent.data.strip() else None
            work = self.deleter.delete if verb == "delete" else self.deleter.delete_many
            return 200, work(target, query, options)
        asked = query.write_options(verb, sent.user_agent)
        if verb == "patch":
            return self._patch(target, query, sent, asked)
        if target.subresource == "scale":
            return 200, set_scale(self._writer, target, read_body(sent.data, sent.content_type), asked)
        body = read_object(target.kind, sent.data, sent.content_type)
        if verb == "create":
            return 201, self._writer.create(target, body, asked)
        return 200, self._writer.update(target, body, asked)

    def _patch(self, target: Target, query: Query, sent: Sent, asked: WriteOptions) -> Result:
        patch = Patch(read_patch(sent.data, sent.content_type), media_type(sent.content_type), asked)
        if target.subresource == "scale":
            return 200, patch_scale(self._core, self._writer, target, patch)
        return patch_of(self._core, self._writer, target, query, patch)


_PRIORITY = {
    "X-Kubernetes-Pf-Flowschema-Uid": "5a2f6d31-58b6-4a6a-9b8e-2f0c6a1d7e01",
    "X-Kubernetes-Pf-Prioritylevel-Uid": "8c1e9f42-7d0b-4c55-a3b1-6e4f9d2c8a02",
}
_UNFORESEEN = (ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a logged error is the sandbox's own: not a client that disconnected, or that does not speak HTTP."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, ConnectionError | HttpProcessingError)


LOG = logging.getLogger(__name__)
"""Where aiohttp logs the errors of the server."""
LOG.addFilter(_is_ours)


class Front:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._operations = Operations(core)
        self._openapi = OpenApi(core.kinds)
        self.garbage = GarbageCollector(core, self._operations.deleter)
        self._watches: set[asyncio.Task[Any]] = set()

    def end_watches(self) -> None:
        for task in self._watches:
            task.cancel()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, with the time by the cluster's clock."""
        response = await self._answered(request)
        if not response.prepared:
            response.headers["Date"] = formatdate(self._core.clock(), usegmt=True)
        return response

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; every error becomes a Status."""
        path, _, query = request.raw_path.partition("?")
        try:
            if _may_be_special(path):
                data, given = await self._body(request), request.headers.get("Content-Type")
                answered = special(self._core, self._openapi, request.method, path, data, given)
                if answered is not None:
                    return _answer(*answered)
            return await self._resource(request, path, Query(query))
        except ApiError as error:
            return _failure(error)
        except _UNFORESEEN as error:  # an object that no check foresaw: answer instead of dropping the connection
            why = "it is nested too deeply" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
            return _failure(internal(f"the sandbox cannot handle this object: {why}"))

    async def _resource(self, request: web.BaseRequest, path: str, query: Query) -> web.StreamResponse:
        target = target_of(self._core.kinds, path)
        verb = verb_of(request.method, target, query)
        self._core.counters.note(verb)
        form = form_of(request.headers.get("Accept", ""), query.text("includeObject"))
        if verb == "watch":
            return await self._watch(request, target, query, form)
        if verb in {"get", "list"}:
            return _answer(200, self._operations.read(verb, target, query, form))
        if verb == "create" and not target.name and not query.text("dryRun"):
            return await self._counted_create(request, target, query, form)
        if self._core.faults.strikes("overload_share"):
            return self._overloaded()
        code, result = self._operations.write(verb, target, query, await self._sent(request))
        await _let_watchers_see()
        if verb == "deletecollection":
            return _answer(code, result)
        return _answer(code, form.of_one(target, result))

    async def _counted_create(
        self, request: web.BaseRequest, target: Target, query: Query, form: Form
    ) -> web.StreamResponse:
        """Handle a create with its faults, counted for the whole server and for its namespace."""
        counters = self._core.counters
        both = (counters.creates, counters.of(target.place))
        for counts in both:
            counts.arrive()
        try:
            return await self._create(request, (target, query, form), both)
        except ApiError as error:
            refused = error.code == 403 and "exceeded quota" in error.status["message"]
            for counts in both:
                counts.refused += refused
                counts.other += not refused
            await self._delay_answer()
            raise
        finally:
            for counts in both:
                counts.leave()

    async def _create(
        self, request: web.BaseRequest, asked: tuple[Target, Query, Form], both: Both
    ) -> web.StreamResponse:
        (target, query, form), faults = asked, self._core.faults
        if faults.strikes("overload_share"):
            for counts in both:
                counts.overloaded += 1
            return self._overloaded()
        code, result = self._operations.write("create", target, query, await self._sent(request))
        for counts in both:
            counts.created += 1
        await _let_watchers_see()
        await self._delay_answer()
        if faults.strikes("reset_share"):
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)  # never arrives: the connection is gone
        if faults.strikes("unknown_outcome_share"):
            return _failure(timed_out())
        return _answer(code, form.of_one(target, result))

    async def _watch(self, request: web.BaseRequest, target: Target, query: Query, form: Form) -> web.StreamResponse:
        shape = form.of_events(target.kind)
        if target.kind is GROUP_EVENTS:
            target, shape = replace(target, kind=EVENTS), shape or _shown_body
        watch = Watch(self._core, target, query, shape)
        headers = {"Content-Type": JSON_TYPE, "Cache-Control": "no-cache, private", **_PRIORITY}
        response = web.StreamResponse(headers=headers)
        response.enable_chunked_encoding()
        task = asyncio.current_task()
        assert task is not None
        self._watches.add(task)
        try:
            await response.prepare(request)
            async for chunk in watch.lines():
                await response.write(chunk)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            # the client disconnected, or the server stops: a watch has no other way to signal that
            if request.transport is not None:
                request.transport.close()
        finally:
            self._watches.discard(task)
        return response

    async def _body(self, request: web.BaseRequest) -> bytes:
        try:
            return await request.read() if request.body_exists else b""
        except web.HTTPRequestEntityTooLarge as error:
            raise too_large(self._core.settings.largest_body) from error

    async def _sent(self, request: web.BaseRequest) -> Sent:
        headers = request.headers
        return Sent(await self._body(request), headers.get("Content-Type"), headers.get("User-Agent", ""))

    async def _delay_answer(self) -> None:
        if self._core.faults.answer_delay_s:
            await asyncio.sleep(self._core.faults.answer_delay_s)

    def _overloaded(self) -> web.Response:
        """429 as the max-in-flight filter sends it: plain text, no Status."""
        headers = {
            "Content-Type": "text/plain; charset=utf-8",
            "Retry-After": str(int(self._core.faults.retry_after_s)),
            "X-Content-Type-Options": "nosniff",
            **_PRIORITY,
        }
        return web.Response(status=429, body=b"Too many requests, please try again later.\n", headers=headers)


async def _let_watchers_see() -> None:
    """Let watchers run before the answer is sent: on a real server most events arrive first."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _may_be_special(path: str) -> bool:
    return not path.startswith(("/api/v1/", "/apis/")) or path.count("/") < 4 or "/auth" in path


def _failure(error: ApiError) -> web.Response:
    if error.status["message"] == PLAIN_404:
        return _answer(404, f"{PLAIN_404}\n".encode(), "text/plain; charset=utf-8")
    return _answer(error.code, dump(error.status) + b"\n")


def _answer(code: int, body: bytes, content_type: str = JSON_TYPE) -> web.Response:
    headers = {
        "Audit-Id": str(uuid4()),
        "Content-Type": content_type,
        "Cache-Control": "no-cache, private",
        **_PRIORITY,
    }
    return web.Response(status=code, body=body, headers=headers)


def _stored_body(verb: str, data: bytes, header: str | None) -> tuple[bytes, str]:
    """The ``v1`` body for a create, replace or patch, and its media type. Raises 400 and 415."""
    if verb == "patch":
        patch: Any = read_patch(data, header)
        return dump(_renamed(patch, _STORED) if isinstance(patch, dict) else patch), media_type(header)
    body = _renamed(read_object(GROUP_EVENTS, data, header), _STORED)
    if body.get("apiVersion") == GROUP_EVENTS.api_version:
        body["apiVersion"] = EVENTS.api_version
    return dump(body), JSON_TYPE


def _shown_body(data: bytes) -> bytes:
    """An event, or a list of events, with the group's field names; anything else unchanged."""
    found = load(data)
    if found.get("apiVersion") != EVENTS.api_version or found.get("kind") not in {EVENTS.kind, EVENTS.list_kind}:
        return data
    if "items" in found:
        found["items"] = [_renamed(item, _SHOWN) for item in found["items"]]
    return dump({**_renamed(found, _SHOWN), "apiVersion": GROUP_EVENTS.api_version})


def _renamed(body: JSON, names: dict[str, str]) -> JSON:
    return {names.get(field, field): value for field, value in body.items()}
