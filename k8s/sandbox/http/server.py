"""HTTP in and out: requests become operations, results become answers, faults strike in between."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple
from uuid import uuid4

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from backoff_ctrl.k8s.sandbox.core import Core
from backoff_ctrl.k8s.sandbox.faults import CreateCounts
from backoff_ctrl.k8s.sandbox.http.bodies import media_type, read_body, read_object, read_patch
from backoff_ctrl.k8s.sandbox.http.events import shown_body, stored_body, stored_target
from backoff_ctrl.k8s.sandbox.http.forms import Form, form_of
from backoff_ctrl.k8s.sandbox.http.openapi import OpenApi
from backoff_ctrl.k8s.sandbox.http.special import special
from backoff_ctrl.k8s.sandbox.objects.answers import PLAIN_404, ApiError, internal, timed_out, too_large
from backoff_ctrl.k8s.sandbox.objects.kinds import GROUP_EVENTS
from backoff_ctrl.k8s.sandbox.objects.texts import dump
from backoff_ctrl.k8s.sandbox.verbs.controllers import GarbageCollector
from backoff_ctrl.k8s.sandbox.verbs.deleting import Deleter
from backoff_ctrl.k8s.sandbox.verbs.patching import Patch, patch_of
from backoff_ctrl.k8s.sandbox.verbs.reading import get_one, list_page
from backoff_ctrl.k8s.sandbox.verbs.requests import Query, Target, WriteOptions, as_query, target_of, verb_of
from backoff_ctrl.k8s.sandbox.verbs.subresources import CONNECTIONS, Subresources, log_of, refuse_connection
from backoff_ctrl.k8s.sandbox.verbs.watching import Watch
from backoff_ctrl.k8s.sandbox.verbs.writing import Writer

Result = tuple[int, bytes]
Both = tuple[CreateCounts, CreateCounts]


_PLAIN = Form()
_ACTIONS = frozenset({"binding", "eviction"})


class Sent(NamedTuple):
    """What a client sent with a write."""

    data: bytes
    content_type: str | None = None
    user_agent: str = ""


class Operations:
    """The verbs on resources. Each is atomic: nothing else runs between its first read and its last write."""

    def __init__(self, core: Core) -> None:
        """Build the parts that read, write and delete."""
        self._core = core
        self._writer = Writer(core)
        self.deleter = Deleter(core)
        self._subresources = Subresources(core, self._writer, self.deleter)

    def read(self, verb: str, target: Target, query: Query, form: Form) -> bytes:
        """Get or list, in the requested form."""
        if target.kind is GROUP_EVENTS:
            return self._read_event(verb, target, query, form)
        if verb == "list":
            return form.of_page(target, list_page(self._core, target, query))
        if target.subresource == "log":
            return log_of(self._core, target, query)
        if target.subresource in CONNECTIONS:
            refuse_connection(self._core, target)
        stored = get_one(self._core, target, query)
        data = dump(self._subresources.scale_of(stored.parse())) if target.subresource == "scale" else stored.data
        return form.of_one(target, data)

    def write(self, verb: str, target: Target, query: Query, sent: Sent) -> Result:
        """Create, update, patch or delete; returns the status code and the body."""
        write = self._write_event if target.kind is GROUP_EVENTS else self._write
        return write(verb, target, query, sent)

    def _write(self, verb: str, target: Target, query: Query, sent: Sent) -> Result:
        if target.subresource in CONNECTIONS:
            refuse_connection(self._core, target)
        if verb in {"delete", "deletecollection"}:
            options = read_body(sent.data, sent.content_type) if sent.data.strip() else None
            work = self.deleter.delete if verb == "delete" else self.deleter.delete_many
            return 200, work(target, query, options)
        asked = query.write_options(verb, sent.user_agent)
        if verb == "patch":
            return self._patch(target, query, sent, asked)
        if target.subresource in _ACTIONS:
            return 201, self._subresources.act(target, query, read_body(sent.data, sent.content_type))
        if target.subresource == "scale":
            return 200, self._subresources.set_scale(target, read_body(sent.data, sent.content_type), asked)
        body = read_object(target.kind, sent.data, sent.content_type, strict=asked.strict)
        if verb == "create":
            return 201, self._writer.create(target, body, asked)
        return 200, self._writer.update(target, body, asked)

    def _read_event(self, verb: str, target: Target, query: Query, form: Form) -> bytes:
        stored = stored_target(target)
        if form.shape:
            return self.read(verb, stored, query, form)
        return form.of_one(target, shown_body(self.read(verb, stored, query, _PLAIN)))

    def _write_event(self, verb: str, target: Target, query: Query, sent: Sent) -> Result:
        if verb in {"create", "update", "patch"}:
            strict = query.write_options(verb).strict
            data, given = stored_body(verb, target, sent.data, sent.content_type, strict=strict)
            sent = Sent(data, given, sent.user_agent)
        code, data = self._write(verb, stored_target(target), query, sent)
        return code, shown_body(data)

    def _patch(self, target: Target, query: Query, sent: Sent, asked: WriteOptions) -> Result:
        body, given = read_patch(sent.data, sent.content_type), media_type(sent.content_type)
        if target.subresource == "scale":
            return 200, self._subresources.patch_scale(target, body, given, asked)
        return patch_of(self._core, self._writer, target, query, Patch(body, given, asked))


_JSON = "application/json"
_PRIORITY = {
    "X-Kubernetes-Pf-Flowschema-Uid": "5a2f6d31-58b6-4a6a-9b8e-2f0c6a1d7e01",
    "X-Kubernetes-Pf-Prioritylevel-Uid": "8c1e9f42-7d0b-4c55-a3b1-6e4f9d2c8a02",
}
_READS = frozenset({"get", "list"})
_UNFORESEEN = (ValueError, TypeError, AttributeError, KeyError, IndexError, RecursionError)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a logged error is the sandbox's own: not a client that disconnected, or that does not speak HTTP."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, ConnectionError | HttpProcessingError)


LOG = logging.getLogger(__name__)
"""Where aiohttp logs the errors of the server."""
LOG.addFilter(_is_ours)


class Front:
    """Turns HTTP requests into operations, and their results into answers."""

    def __init__(self, core: Core) -> None:
        """Serve the parts in ``core``."""
        self._core = core
        self._operations = Operations(core)
        self._openapi = OpenApi(core.kinds, core.store)
        self.garbage = GarbageCollector(core, self._operations.deleter)
        self._watches: set[asyncio.Task[Any]] = set()

    def end_watches(self) -> None:
        """Break off all watches: the server is stopping."""
        for task in self._watches:
            task.cancel()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; every error becomes a Status."""
        path, _, query = request.raw_path.partition("?")
        try:
            if _may_be_special(path):
                data = await self._body(request)
                answered = special(self._core, self._openapi, request.method, path, _headers(request), data)
                if answered is not None:
                    return _answer(*answered)
            path, query = as_query(path, query)
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
        if verb in _READS:
            return _answer(200, self._operations.read(verb, target, query, form), form.media_type)
        if verb == "create" and not target.name and not query.text("dryRun"):
            return await self._counted_create(request, target, query, form)
        if self._core.faults.strikes("overload_share"):
            return self._overloaded()
        code, result = self._operations.write(verb, target, query, await self._sent(request))
        await _let_watchers_see()
        if verb == "deletecollection":
            return _answer(code, result)
        return _answer(code, form.of_one(target, result), form.media_type)

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
        return _answer(code, form.of_one(target, result), form.media_type)

    async def _watch(self, request: web.BaseRequest, target: Target, query: Query, form: Form) -> web.StreamResponse:
        shape = form.of_events(target.kind)
        if target.kind is GROUP_EVENTS:
            target, shape = stored_target(target), shape or shown_body
        watch = Watch(self._core, target, query, shape)
        headers = {"Content-Type": _JSON, "Cache-Control": "no-cache, private", **_PRIORITY}
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
        """Read the body. Raises 413 above the size limit."""
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


def _headers(request: web.BaseRequest) -> dict[str, str]:
    headers = request.headers
    return {"accept": headers.get("Accept", ""), "content-type": headers.get("Content-Type", _JSON)}


def _failure(error: ApiError) -> web.Response:
    if error.status["message"] == PLAIN_404:
        return _answer(404, f"{PLAIN_404}\n".encode(), "text/plain; charset=utf-8")
    return _answer(error.code, dump(error.status) + b"\n")


def _answer(code: int, body: bytes, content_type: str = _JSON) -> web.Response:
    headers = {
        "Audit-Id": str(uuid4()),
        "Content-Type": content_type,
        "Cache-Control": "no-cache, private",
        **_PRIORITY,
    }
    return web.Response(status=code, body=body, headers=headers)
