"""Lists and watches over HTTP: each line is an event, whatever its bytes; a stream may break anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from backoff_ctrl.k8s.gate.observing.quotas import QuotaWatch
from backoff_ctrl.k8s.kube.answers import paging
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.watching import informer
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.kube.watching.objects import (
    CLUSTER_QUOTAS,
    LIVE_PODS,
    QUOTAS,
    Ignored,
    WatchAbsentError,
    WatchBrokenError,
    WatchExpiredError,
    WatchForbiddenError,
)
from backoff_ctrl.k8s.kube.watching.status import WatchState
from tests.kit.official import aio as client
from tests.kit.patience import PATIENCE
from tests.kit.watch_script import RecordingLedger, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

    Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def served(answer: Answer, **options: Any) -> AsyncIterator[ClusterSource]:
    """A source with a server that gives this answer to every request."""
    runner = web.AppRunner(application(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with session_of(f"http://127.0.0.1:{port}") as session:
            yield ClusterSource(session, **options)
    finally:
        await runner.cleanup()


def session_of(url: str) -> ClusterSession:
    return ClusterSession(client.Configuration(host=url))


def application(answer: Answer) -> web.Application:
    made = web.Application()
    made.router.add_get("/{rest:.*}", answer)
    return made


def streaming(*chunks: bytes, cut: bool = False) -> Answer:
    """Write these chunks one by one; then end normally, or abort the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


async def taken(source: ClusterSource) -> list[object]:
    return [each async for each in source.watch(QUOTAS, "team", "1")]


LINES = [{"type": "ADDED", "object": {"metadata": {"name": "ü" * 30}}}, {"type": "BOOKMARK"}, 5]


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_stream_split_into_any_chunks_gives_the_same_events(size: int) -> None:
    """Also if it is split inside a character; empty lines are skipped."""
    text = "\n\n".join(json.dumps(line, ensure_ascii=False) for line in LINES).encode() + b"\n"
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    async with served(streaming(*chunks)) as source:
        assert await taken(source) == LINES


async def test_lines_that_are_not_json_are_marked() -> None:
    """Half an object, invalid UTF-8, a number that is too long, brackets nested too deep."""
    bad = [b'{"type": "ADD', b"\xff\xfe", b"9" * 5000, b"[" * 100_000]
    async with served(streaming(b'{"a": 1}\n' + b"\n".join(bad) + b'\n{"b": 2}\n')) as source:
        assert await taken(source) == [{"a": 1}, *[Ignored.NO_JSON] * 4, {"b": 2}]


async def test_a_line_that_is_too_long_is_dropped_and_the_next_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of a line is limited (to less than 8 MiB here, which take long to send)."""
    monkeypatch.setattr(informer, "LINE_MAX", 10_000)
    long = [b"x" * 4000] * 10
    async with served(streaming(b'{"a": 1}\n', *long, b'\n{"b": 2}\n{"c": 3}\n')) as source:
        assert await taken(source) == [{"a": 1}, Ignored.TOO_LONG, {"b": 2}, {"c": 3}]


async def test_an_aborted_stream_is_an_error_and_half_a_line_is_dropped() -> None:
    """The events before it are yielded."""
    found: list[object] = []
    async with served(streaming(b'{"a": 1}\n', b'{"b":', cut=True)) as source:

        async def read() -> None:
            async for each in source.watch(QUOTAS, "team", "1"):
                found.append(each)  # noqa: PERF401 - keeps what came before the error

        with pytest.raises(WatchBrokenError):
            await read()

    assert found == [{"a": 1}]


@pytest.mark.long
async def test_a_stream_that_is_silent_for_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead connection would be waited for for ever. The stream ends normally, so it is resumed."""
    monkeypatch.setattr(informer, "SILENT_SECONDS", 3)
    held = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"a": 1}\n')
        await held.wait()
        return response

    async with served(answer) as source:
        assert await asyncio.wait_for(taken(source), PATIENCE) == [{"a": 1}]
        held.set()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, WatchBrokenError),
        (403, WatchForbiddenError),
        (404, WatchAbsentError),
        (410, WatchExpiredError),
        (429, WatchBrokenError),
        (500, WatchBrokenError),
        (504, WatchBrokenError),
    ],
)
async def test_any_status_but_200_is_an_error_that_says_why(status: int, error: type[Exception]) -> None:
    """With the message of the Status, on one line."""

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {"Retry-After": "7"}
        return web.json_response({"kind": "Status", "message": "not\nnow"}, status=status, headers=headers)

    async with served(answer) as source:
        with pytest.raises(error, match=f"^{status}: not now$") as watched:
            await taken(source)
        with pytest.raises(error, match=f"^{status}: not now$"):
            [page async for page in source.pages(QUOTAS, None)]
    assert type(watched.value) is error
    assert getattr(watched.value, "retry_after", 7) in {7, 0}


@pytest.mark.parametrize("body", ["", "[]", "7", "{}", '{"metadata": 5}', "[" * 100_000])
async def test_a_malformed_list_is_an_error(body: str) -> None:
    """A 200 whose body is not a list."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=body)

    async with served(answer) as source:
        with pytest.raises(WatchBrokenError):
            [page async for page in source.pages(QUOTAS, None)]


async def test_a_404_means_that_the_group_is_not_served() -> None:
    """Other errors leave the question open and are raised."""
    status = 404

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"message": "no"}, status=status)

    async with served(answer) as source:
        assert not await source.is_served(CLUSTER_QUOTAS.path)
        status = 403
        with pytest.raises(WatchForbiddenError):
            await source.is_served(CLUSTER_QUOTAS.path)
        status = 503
        with pytest.raises(WatchBrokenError):
            await source.is_served(CLUSTER_QUOTAS.path)
        status = 200
        assert await source.is_served(CLUSTER_QUOTAS.path)


async def test_quotas_are_listed_in_pages(sandbox: BackgroundSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a long list is never in memory as a whole. All its pages have the same version."""
    monkeypatch.setattr(informer, "PAGE", 4)
    for number in range(10):
        sandbox.create_quota("team", f"q{number}", {"pods": "1"})
    async with session_of(sandbox.url) as session:
        pages = [page async for page in ClusterSource(session).pages(QUOTAS, None)]

    assert [len(page["items"]) for page in pages] == [4, 4, 2]
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1


@pytest.mark.parametrize("tokens", [["a"], ["a", "b", "c"], None], ids=["of one", "of three", "without end"])
async def test_an_endless_list_is_an_error(tokens: list[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch then lists again later, instead of requesting pages as fast as the server answers."""
    monkeypatch.setattr(paging, "PAGES_MAX", 50)
    asked = itertools.count()

    async def answer(request: web.Request) -> web.Response:
        number = next(asked)
        more = str(number) if tokens is None else tokens[number % len(tokens)]
        return web.json_response({"metadata": {"resourceVersion": "1", "continue": more}, "items": []})

    async with served(answer) as source:
        with pytest.raises(WatchBrokenError, match="the list repeats a page, or has too many pages"):
            [page async for page in source.pages(QUOTAS, "team")]
    assert next(asked) <= 52


async def test_only_the_beginning_of_an_endless_error_is_read() -> None:
    """The message is at the beginning; reading all of it would fill the memory."""
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(status=500)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while sent < 1 << 30:
                await response.write(b"oh no " * 10_000)
                sent += 60_000
        return response

    async with served(answer) as source:
        with pytest.raises(WatchBrokenError, match="500: oh no oh no"):
            await taken(source)
    assert sent < 64 << 20  # what the machine's buffers hold


async def test_only_the_metadata_of_pods_is_read_and_only_the_version_of_their_list(
    sandbox: BackgroundSandbox,
) -> None:
    """WatchState one pod end must not require to transfer ten thousand pods, nor to store them."""
    async with client.ApiClient(client.Configuration(host=sandbox.url)) as api, session_of(sandbox.url) as session:
        core: Any = client.CoreV1Api(api)
        for number in range(5):
            spec = {"containers": [{"name": "c", "image": "i"}]}
            await core.create_namespaced_pod("team", {"metadata": {"name": f"p{number}"}, "spec": spec})
        source = ClusterSource(session)
        pages = [page async for page in source.pages(LIVE_PODS, "team")]
        version = pages[0]["metadata"]["resourceVersion"]
        await core.patch_namespaced_pod_status("p0", "team", {"status": {"phase": "Running"}})
        await core.patch_namespaced_pod_status("p0", "team", {"status": {"phase": "Succeeded"}})
        await core.delete_namespaced_pod("p1", "team", grace_period_seconds=0)
        events: list[Any] = []
        async with asyncio.timeout(PATIENCE):
            async for event in source.watch(LIVE_PODS, "team", version):
                events.append(event)
                if [each["type"] for each in events].count("DELETED") == 2:
                    break

    assert [len(page["items"]) for page in pages] == [1]
    assert [e["object"]["metadata"]["name"] for e in events if e["type"] == "DELETED"] == ["p0", "p1"]
    assert all("spec" not in each["object"] and "status" not in each["object"] for each in events)


async def test_streams_that_break_after_every_event_miss_nothing(sandbox: BackgroundSandbox) -> None:
    """Although the history is compacted in between, all of 20 changes are known in the end."""
    ledger = RecordingLedger()
    sandbox.create_quota("team", "q", {"pods": "1"})
    async with client.ApiClient(client.Configuration(host=sandbox.url)) as api, session_of(sandbox.url) as session:
        core: Any = client.CoreV1Api(api)
        watch = QuotaWatch(ledger, ["team"], longest_pause=0.05)
        task = asyncio.ensure_future(watch.run(ClusterSource(session)))
        await until(lambda: ledger.left() == 1)
        sandbox.faults.watch_break_share = 1.0
        for number in range(2, 22):
            await core.patch_namespaced_resource_quota("q", "team", {"spec": {"hard": {"pods": str(number)}}})
            if number % 5 == 0:
                sandbox.call(lambda each: each.compact())
        await until(lambda: ledger.left() == 21)
        sandbox.faults.clear()
        await until(lambda: ledger.observes() and ledger.left() == 21)
        status = watch.record.of("team")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert status is not None
    assert status.state is WatchState.QUOTAS
    assert watch.record.counts.reconnects > 0
    assert watch.record.counts.failures == 0


async def test_a_page_that_is_too_large_is_asked_for_in_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many large objects of one user cost the others no list."""
    monkeypatch.setattr(informer, "PAGE_BYTES_MAX", 50_000)
    sizes = [100] * 300 + [20_000] * 20 + [100] * 300

    async def answer(request: web.Request) -> web.Response:
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query["limit"])
        items = [{"metadata": {"name": str(n)}, "x": "x" * size} for n, size in enumerate(sizes)][start:end]
        more = {"continue": str(end)} if end < len(sizes) else {}
        return web.json_response({"metadata": {"resourceVersion": "7", **more}, "items": items})

    async with served(answer) as source:
        found = [each async for page in source.pages(QUOTAS, None) for each in page["items"]]
    assert [each["metadata"]["name"] for each in found] == [str(number) for number in range(len(sizes))]


async def test_a_page_of_brackets_does_not_stop_the_event_loop() -> None:
    """A user may store objects that take seconds to read; meanwhile a Lease is renewed and probes are answered."""
    brackets = b"[" * 200 + b"]" * 200
    item = b'{"metadata":{"name":"x"},"x":[' + b",".join([brackets] * 3_000) + b"]}"
    page = b'{"metadata":{"resourceVersion":"7"},"items":[' + b",".join([item] * 4) + b"]}"
    assert len(page) > informer.IN_PLACE_MAX
    sent = asyncio.Event()

    async def answer(_: web.Request) -> web.StreamResponse:
        sent.set()
        return web.Response(body=page, content_type="application/json")

    async with served(answer) as source:
        reading = asyncio.ensure_future(anext(source.pages(QUOTAS, None)))
        await sent.wait()
        turns = 0
        while not reading.done():
            await asyncio.sleep(0.01)
            turns += 1
    assert len(reading.result()["items"]) == 4
    assert turns > 20


async def test_pages_have_as_many_objects_as_their_size_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed, a page takes ten to twenty times its bytes."""
    monkeypatch.setattr(informer, "PAGE_BYTES", 10_000)
    asked, sent = [], []

    async def answer(request: web.Request) -> web.Response:
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        items = [{"metadata": {"name": str(each)}, "x": "x" * 1000} for each in range(start, min(start + limit, 700))]
        more = {"continue": str(start + limit)} if start + limit < 700 else {}
        found = json.dumps({"metadata": {"resourceVersion": "7", **more}, "items": items})
        asked.append(limit)
        sent.append(len(found))
        return web.Response(text=found, content_type="application/json")

    async with served(answer) as source:
        names = [each["metadata"]["name"] async for page in source.pages(QUOTAS, None) for each in page["items"]]
    assert names == [str(each) for each in range(700)]
    assert asked[0] == paging.PAGE
    assert max(sent[1:]) < 11_000


class Whole(dict[str, Any]):
    """An object of which a weak reference can be made."""


async def test_an_event_is_not_kept_until_the_next_one_comes() -> None:
    """The last object of each watch may have 20 MB."""
    body = {"metadata": {"name": "a", "uid": "u"}}
    next_one = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(json.dumps({"type": "ADDED", "object": body}).encode() + b"\n")
        await next_one.wait()
        await response.write(json.dumps({"type": "MODIFIED", "object": body}).encode() + b"\n")
        return response

    async with served(answer) as source, contextlib.aclosing(source.watch(QUOTAS, None, "1", Whole)) as stream:
        event: Any = await anext(stream)
        kept = weakref.ref(event["object"])
        del event
        following = asyncio.ensure_future(anext(stream))
        async with asyncio.timeout(PATIENCE):
            while kept() is not None:
                gc.collect()
                await asyncio.sleep(0)
        assert not following.done()
        next_one.set()
        assert (await following)["type"] == "MODIFIED"  # type: ignore[index]


async def test_a_page_is_not_kept_until_the_next_one_is_there() -> None:
    first: list[weakref.ref[Whole]] = []
    there_at_the_second = []

    async def answer(request: web.Request) -> web.Response:
        gc.collect()
        there_at_the_second.append([each() is not None for each in first])
        more = {} if "continue" in request.query else {"continue": "1"}
        return web.json_response({"metadata": {"resourceVersion": "7", **more}, "items": [{"metadata": {"name": "a"}}]})

    async with served(answer) as source:
        async for page in source.pages(QUOTAS, None, Whole):
            first += [weakref.ref(each) for each in page["items"]]
            del page
    assert there_at_the_second == [[], [False]]
