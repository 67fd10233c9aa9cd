"""Drawn requests, whole and broken, in drawn pieces: what reaches the API server is what was asked, or nothing.

The suite draws some hundred; ``HYPOTHESIS_PROFILE=thorough`` draws thousands, for minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

import uvloop
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.patience import PATIENCE
from tests.proxying.passing.wire import Chosen, Upstream, proxied

_WORD: Final = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789-_", min_size=1, max_size=12).map(str.encode)
_VALUE: Final = st.text("abc XYZ;,=/()\"'\t~", max_size=20).map(lambda text: text.strip().encode())
_HEADERS: Final = st.lists(st.tuples(_WORD.map(lambda name: b"x-" + name), _VALUE), max_size=5)
_BODY: Final = st.one_of(st.none(), st.binary(max_size=300), st.lists(st.binary(min_size=1, max_size=80), max_size=4))
_REQUEST: Final = st.tuples(
    st.sampled_from([b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD"]),
    st.lists(_WORD, min_size=1, max_size=3).map(lambda parts: b"/" + b"/".join(parts)),
    _HEADERS,
    _BODY,
)
_BREAKS: Final = (
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b":", b"\xff", b"7\r\n", b"0\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1"),
    *(b"GET / HTTP/1.1\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"),
    b"Transfer-Encoding: chunked\r\n\r\n",
)
END: Final = b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def _raw(request: tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes | list[bytes] | None]) -> bytes:
    method, target, headers, body = request
    lines = [method + b" " + target + b" HTTP/1.1", b"Host: a", *(name + b": " + value for name, value in headers)]
    if isinstance(body, bytes):
        return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])
    if body is None:
        return b"\r\n".join([*lines, b"", b""])
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in body) + b"0\r\n\r\n"
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", chunks])


class _Reader:
    """A plain HTTP server that keeps whole requests, and says where it met one that is not."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.whole: list[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]] = []
        self.broken: list[bytes] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._serve(await self._upstream.arrived.get()))

    async def _serve(self, side: object) -> None:
        reader, writer = side.reader, side.writer  # type: ignore[attr-defined]
        head = b""
        with suppress(ConnectionError):  # what was whole before counts
            try:
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    self.whole.append(await self._request(head, reader))
                    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            except asyncio.IncompleteReadError as error:
                if error.partial and not head:
                    self.broken.append(error.partial)  # a head that was not whole

    async def _request(
        self, head: bytes, reader: asyncio.StreamReader
    ) -> tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]:
        method, target, headers = self._parse(head)
        named = {name.lower(): value for name, value in headers}
        body = b""
        if b"content-length" in named:
            body = await reader.readexactly(int(named[b"content-length"]))
        elif b"transfer-encoding" in named:
            while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readuntil(b"\r\n")
        return method, target, [each for each in headers if each[0].startswith(b"x-")], body

    def _parse(self, head: bytes) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]]:
        first, *lines = head[:-4].split(b"\r\n")
        method, target, version = first.split(b" ")
        assert version in {b"HTTP/1.1", b"HTTP/1.0"}
        assert not any(byte in head.replace(b"\r\n", b"") for byte in (b"\r", b"\n", b"\0"))
        headers = [(line.partition(b": ")[0], line.partition(b": ")[2]) for line in lines]
        framing = [name.lower() for name, _ in headers if name.lower() in {b"content-length", b"transfer-encoding"}]
        assert len(framing) <= 1
        assert [name.lower() for name, _ in headers].count(b"host") == 1
        return method, target, headers


async def _through(pieces: list[bytes]) -> tuple[_Reader, bytes]:
    """Send pieces through a proxy; return what the server read, and what the caller did."""
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with proxied(Chosen()) as proxy:
        reader = _Reader(proxy.upstream)
        reading = asyncio.create_task(reader.run())
        caller = await proxy.caller()
        answers = asyncio.create_task(caller.reader.read())
        for piece in pieces:
            caller.send(piece)
            await asyncio.sleep(0)
        caller.writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            got = await answers
        for _ in range(5):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled(), reading.exception()
    assert failures == []
    return reader, got


def _split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def _run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


_CUTS: Final = st.lists(st.integers(0, 5000), max_size=6)


@given(requests=st.lists(_REQUEST, min_size=1, max_size=4), cuts=_CUTS)
def test_whole_requests_arrive_as_sent(requests: list[tuple[bytes, bytes, list, object]], cuts: list[int]) -> None:  # type: ignore[type-arg]
    """Method, target, own headers and body, in their order, however they are cut into packets."""

    async def test() -> None:
        raw = b"".join(_raw(each) for each in requests) + END  # type: ignore[arg-type]
        reader, _ = await _through(_split(raw, cuts))
        sent = [
            (method, target, headers, b"".join(body) if isinstance(body, list) else body or b"")
            for method, target, headers, body in requests
        ]
        assert reader.whole == [*sent, (b"GET", b"/end", [], b"")]
        assert reader.broken == []

    _run(test)


@given(
    requests=st.lists(_REQUEST, min_size=1, max_size=3),
    cuts=_CUTS,
    breaks=st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 4), st.sampled_from(_BREAKS)), min_size=1, max_size=3
    ),
)
def test_broken_requests_smuggle_nothing(
    requests: list[object],
    cuts: list[int],
    breaks: list[tuple[int, int, bytes]],
) -> None:
    """Whatever is cut out or put in: the server reads whole heads alone, as many as the caller gets answers."""

    async def test() -> None:
        raw = b"".join(_raw(each) for each in requests)  # type: ignore[arg-type]
        for place, gone, put in breaks:
            at = place % (len(raw) + 1)
            raw = raw[:at] + put + raw[at + gone :]
        reader, got = await _through(_split(raw, cuts))
        assert reader.broken == []
        assert got.count(b"HTTP/1.1 204 ") <= len(reader.whole)
        assert (
            got.count(b"HTTP/1.1 204 ") + got.count(b"HTTP/1.1 4") + got.count(b"HTTP/1.1 5") >= len(reader.whole) - 1
        )

    _run(test)
