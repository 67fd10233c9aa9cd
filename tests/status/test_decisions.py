"""The ring of decisions, and the stream: resume, gaps, slow listeners."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.status.decisions import Decisions
from backoff_ctrl.k8s.status.serving import Service
from backoff_ctrl.k8s.status.streams import PAUSE_MAX, PIECE, Streams
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from backoff_ctrl.k8s.status.decisions import KeptDecision

SUBJECT = ("id-1", "team", "pods", "web")


def tell(ring: Decisions, count: int) -> None:
    """Append decisions."""
    for _ in range(count):
        ring.tell(0.0, "gate", "waits", SUBJECT)


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 15), st.integers(0, 60)), max_size=12))
def test_whoever_reads_from_any_number_gets_what_follows_or_is_told_how_much_is_gone(
    kept: int, steps: list[tuple[int, int]]
) -> None:
    """Every decision is read or counted as missed, exactly once, in order; a naive list is the twin."""
    ring = Decisions(kept)
    every: list[int] = []
    for more, seq in steps:
        tell(ring, more)
        every += range(len(every) + 1, len(every) + more + 1)
        read = ring.after(seq)
        wanted = [number for number in every if number > seq]
        assert [told.seq for told in read.decisions] == wanted[-kept:]
        assert read.missed == len(wanted) - len(wanted[-kept:])
        assert ring.newest == len(every)


@given(st.integers(0, 40), st.integers(1, 9))
def test_pieces_of_the_ring_make_up_the_whole(count: int, piece: int) -> None:
    """``limit`` cuts the newest off, not the oldest."""
    ring = Decisions(16)
    tell(ring, count)
    seq, found = 0, []
    while read := ring.after(seq, piece).decisions:
        found += [told.seq for told in read]
        seq = found[-1]
    assert found == [told.seq for told in ring.after(0).decisions]


class Ear:
    """One who listens."""

    def __init__(self, streams: Streams[KeptDecision], last: str | None = None, namespace: str | None = None) -> None:
        """Begin behind the event ``last``."""
        seq, first = streams.place(last)
        self.pieces: AsyncIterator[bytes] = streams.listen(seq, namespace, first)
        self.unread: list[str] = []

    async def event(self) -> tuple[str, str, dict[str, object]]:
        """Return the next event: its id, its kind, its data."""
        while not self.unread:
            async with asyncio.timeout(PATIENCE):
                self.unread = [each for each in (await anext(self.pieces)).decode().split("\n\n") if each]
        fields = dict(line.split(": ", 1) for line in self.unread.pop(0).split("\n"))
        return fields.get("id", ""), fields["event"], json.loads(fields["data"])


def render(told: KeptDecision) -> str:
    """Write a decision briefly."""
    return json.dumps({"seq": told.seq})


@pytest.fixture
def ring() -> Decisions:
    """A small ring."""
    return Decisions(10)


@pytest.fixture
def streams(ring: Decisions) -> Streams[KeptDecision]:
    """Its streams."""
    return Streams(ring, render, epoch="e")


async def test_a_listener_hears_what_comes_and_resumes_behind_what_it_heard(
    ring: Decisions, streams: Streams[KeptDecision]
) -> None:
    """Without the last id it hears what comes next; with it, nothing is lost or repeated."""
    tell(ring, 2)
    ear = Ear(streams)
    coming = asyncio.create_task(ear.event())
    await asyncio.sleep(0)
    tell(ring, 1)
    assert await coming == ("e-3", "decision", {"seq": 3})
    tell(ring, 2)
    again = Ear(streams, "e-3")
    assert [(await again.event())[0] for _ in range(2)] == ["e-4", "e-5"]
    streams.close()


async def test_what_was_forgotten_is_told_as_a_gap(ring: Decisions, streams: Streams[KeptDecision]) -> None:
    """With its length, before what follows."""
    tell(ring, 25)
    ear = Ear(streams, "e-3")
    assert await ear.event() == ("", "gap", {"missed": 12})
    assert (await ear.event())[0] == "e-16"
    streams.close()


@pytest.mark.parametrize("last", ["old-3", "e-99", "nonsense", "e-x"])
async def test_an_id_of_an_earlier_process_begins_anew_behind_a_gap(
    ring: Decisions, streams: Streams[KeptDecision], last: str
) -> None:
    """How much is missing is unknown then."""
    tell(ring, 2)
    ear = Ear(streams, last)
    assert await ear.event() == ("", "gap", {"missed": None})
    assert (await ear.event())[0] == "e-1"
    streams.close()


async def test_what_a_listener_missed_comes_at_once(
    ring: Decisions, streams: Streams[KeptDecision], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no new decision to push it, nor the next sign of life."""
    monkeypatch.setattr("backoff_ctrl.k8s.status.streams.ALIVE_EVERY", 3600.0)
    tell(ring, 2)
    ear = Ear(streams, "earlier-7")  # it is told of a gap first
    assert [(await ear.event())[1] for _ in range(3)] == ["gap", "decision", "decision"]
    streams.close()


async def test_a_silent_stream_gives_signs_of_life(
    streams: Streams[KeptDecision], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies close what is silent."""
    monkeypatch.setattr("backoff_ctrl.k8s.status.streams.ALIVE_EVERY", 0.01)
    assert await anext(streams.listen(0, None)) == b": alive\n\n"
    streams.close()


async def test_a_listener_hears_of_its_namespace_alone(ring: Decisions, streams: Streams[KeptDecision]) -> None:
    """Others are skipped, and do not count as missed."""
    ear = Ear(streams, namespace="other")
    coming = asyncio.create_task(ear.event())
    await asyncio.sleep(0)
    tell(ring, 3)
    ring.tell(0.0, "gate", "waits", ("id", "other", "pods", "x"))
    assert (await coming)[0] == "e-4"
    streams.close()


async def test_many_decisions_of_others_do_not_hold_up_a_listener(streams: Streams[KeptDecision]) -> None:
    """It goes on over pieces in which there is nothing for it."""
    ring = Decisions(4096)
    streams = Streams(ring, render, epoch="e")
    tell(ring, 3 * PIECE)
    ring.tell(0.0, "gate", "waits", ("id", "other", "pods", "x"))
    ear = Ear(streams, "e-0", "other")
    assert (await ear.event())[0] == f"e-{3 * PIECE + 1}"
    streams.close()


async def test_listeners_that_are_behind_are_told_of_their_own_gap_and_then_hear_the_same(
    ring: Decisions, streams: Streams[KeptDecision]
) -> None:
    """They share what is read and written for them, wherever each was."""
    tell(ring, 300)
    ears = {at: Ear(streams, f"e-{at}") for at in (1, 7, 250, 290, 295, 300)}
    first = {at: asyncio.create_task(ear.event()) for at, ear in ears.items()}
    await asyncio.sleep(0)
    tell(ring, 1)
    for at, ear in ears.items():
        found: list[int] = []
        missed = 0
        _, kind, data = await first[at]
        while True:
            if kind == "gap":
                missed += int(str(data["missed"]))
            else:
                found.append(int(str(data["seq"])))
            if found and found[-1] == 301:
                break
            _, kind, data = await ear.event()
        assert missed + len(found) == 301 - at
        assert found == list(range(found[0], 302))
    streams.close()


async def test_news_from_another_thread_is_heard(ring: Decisions, streams: Streams[KeptDecision]) -> None:
    """Whichever thread decides."""
    ear = Ear(streams)
    coming = asyncio.create_task(ear.event())
    await asyncio.sleep(0)
    await asyncio.to_thread(tell, ring, 1)
    assert (await coming)[0] == "e-1"
    streams.close()


async def test_the_streams_end_with_the_server(streams: Streams[KeptDecision]) -> None:
    """And nothing asks the ring any more."""
    ear = Ear(streams)
    coming = asyncio.create_task(anext(ear.pieces, None))
    await asyncio.sleep(0)
    assert len(streams) == 1
    streams.close()
    assert (await coming, len(streams), streams.full) == (None, 0, True)


@pytest.mark.long
async def test_streaming_takes_a_small_share_of_a_core_however_much_is_decided() -> None:
    """Writing a decision takes 2 ms here, and a round 0.4 s: then it pauses for a second."""
    written: list[float] = []

    def slow(_: KeptDecision) -> str:
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass
        written.append(time.monotonic())
        return "{}"

    ring = Decisions(4096)
    streams = Streams(ring, slow, epoch="e")
    ear = Ear(streams, "e-0")
    tell(ring, 2 * PIECE)
    assert len([await ear.event() for _ in range(PIECE + 1)]) == PIECE + 1
    streams.close()
    longest = max(after - before for before, after in pairwise(written))
    assert longest >= PAUSE_MAX / 2


async def test_the_loop_goes_on_while_a_long_piece_is_written() -> None:
    """It is written in slices."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    def slow(_: KeptDecision) -> str:
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass
        return "{}"

    ring = Decisions(4096)
    streams = Streams(ring, slow, epoch="e")
    tell(ring, PIECE)
    beside = asyncio.create_task(others())
    await Ear(streams, "e-0").event()
    beside.cancel()
    assert turns >= PIECE
    streams.close()


async def test_a_slow_listener_is_dropped_and_the_others_are_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes nothing; what it was sent fills its connection."""
    monkeypatch.setattr("backoff_ctrl.k8s.status.server.STALLED", 0.5)
    service = Service()
    server = service.serve("127.0.0.1:0")

    asks = b"GET /v1/decisions HTTP/1.1\r\nHost: localhost\r\n\r\n"
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.settimeout(30)
    await asyncio.to_thread(slow.connect, ("127.0.0.1", server.port))
    slow.sendall(asks)
    begins = b""
    while b"retry: 2000\n\n" not in begins:
        begins += await asyncio.to_thread(slow.recv, 4096)
    quick, quick_writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 20)
    quick_writer.write(asks)
    await quick.readuntil(b"retry: 2000\n\n")
    long = "x" * 200_000
    for number in range(60):
        service.ring.tell(0.0, "gate", "waits", (f"{number}", "team", "pods", long))
    heard = 0
    async with asyncio.timeout(PATIENCE):
        while heard < 60:
            line = await quick.readuntil(b"\n\n")
            heard += line.count(b"event: decision")
        while server.streams.dropped == 0 or len(server.streams) == 2:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        with contextlib.suppress(ConnectionError):
            while await asyncio.to_thread(slow.recv, 1 << 20):  # what was under way, then the end
                pass
        service.ring.tell(0.0, "gate", "waits", SUBJECT)
        assert b"event: decision" in await quick.readuntil(b"\n\n")
    slow.close()
    quick_writer.close()
    await asyncio.to_thread(service.close)
