"""The ring of decisions, and the stream: resume, gaps, slow listeners."""

from __future__ import annotations

import json
import socket
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.status.decisions import Ring
from backoff_ctrl.k8s.status.streams import PAUSE_MAX, PIECE, Listener, Streams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.status.decisions import Told

SUBJECT = ("id-1", "team", "pods", "web")


def tell(ring: Ring, count: int) -> None:
    """Append decisions."""
    for _ in range(count):
        ring.tell(0.0, "gate", "waits", SUBJECT)


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 15), st.integers(0, 60)), max_size=12))
def test_whoever_reads_from_any_number_gets_what_follows_or_is_told_how_much_is_gone(
    kept: int, steps: list[tuple[int, int]]
) -> None:
    """Every decision is read or counted as missed, exactly once, in order; a naive list is the twin."""
    ring = Ring(kept)
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
    ring = Ring(16)
    tell(ring, count)
    seq, found = 0, []
    while read := ring.after(seq, piece).decisions:
        found += [told.seq for told in read]
        seq = found[-1]
    assert found == [told.seq for told in ring.after(0).decisions]


EARS: list[Ear] = []


@pytest.fixture(autouse=True)
def _deaf_at_the_end() -> Iterator[None]:
    """Close the listeners' ends."""
    yield
    while EARS:
        ear = EARS.pop()
        ear.file.close()
        ear.mine.close()


class Ear:
    """The other end of a stream."""

    def __init__(self, streams: Streams, last: str | None = None, namespace: str | None = None) -> None:
        """Listen."""
        ours, self.mine = socket.socketpair()
        self.mine.settimeout(30)
        self.file = self.mine.makefile("rb")
        seq, first = streams.place(last)
        assert streams.add(Listener(ours, seq, namespace, first))
        EARS.append(self)

    def event(self) -> tuple[str, str, dict[str, object]]:
        """Return the next event: its id, its kind, its data."""
        fields: dict[str, str] = {}
        while (line := self.file.readline().decode().rstrip("\n")) or not fields:
            assert line or not fields, "the stream has ended"
            name, _, value = line.partition(": ")
            fields[name] = value
        return fields.get("id", ""), fields["event"], json.loads(fields["data"])


def render(told: Told) -> str:
    """Write a decision briefly."""
    return json.dumps({"seq": told.seq})


@pytest.fixture
def streams() -> Iterator[Streams]:
    """The streams of a small ring."""
    made = Streams(Ring(10), render, epoch="e")
    yield made
    made.close()


def test_a_listener_hears_what_comes_and_resumes_behind_what_it_heard(streams: Streams) -> None:
    """Without the last id it hears what comes next; with it, nothing is lost or repeated."""
    tell(streams._ring, 2)
    ear = Ear(streams)
    tell(streams._ring, 1)
    assert ear.event() == ("e-3", "decision", {"seq": 3})
    tell(streams._ring, 2)
    again = Ear(streams, "e-3")
    assert [again.event()[0] for _ in range(2)] == ["e-4", "e-5"]


def test_what_was_forgotten_is_told_as_a_gap(streams: Streams) -> None:
    """With its length, before what follows."""
    tell(streams._ring, 25)
    ear = Ear(streams, "e-3")
    assert ear.event() == ("", "gap", {"missed": 12})
    assert ear.event()[0] == "e-16"


@pytest.mark.parametrize("last", ["old-3", "e-99", "nonsense", "e-x"])
def test_an_id_of_an_earlier_process_begins_anew_behind_a_gap(streams: Streams, last: str) -> None:
    """How much is missing is unknown then."""
    tell(streams._ring, 2)
    ear = Ear(streams, last)
    assert ear.event() == ("", "gap", {"missed": None})
    assert ear.event()[0] == "e-1"


def test_what_a_listener_missed_comes_at_once(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no new decision to push it, nor the next sign of life."""
    monkeypatch.setattr("backoff_ctrl.k8s.status.streams.ALIVE_EVERY", 3600.0)
    tell(streams._ring, 2)
    ear = Ear(streams, "earlier-7")  # it is told of a gap first, as a connection is of its head
    ear.mine.settimeout(10)
    assert [ear.event()[1] for _ in range(3)] == ["gap", "decision", "decision"]


def test_a_listener_hears_of_its_namespace_alone(streams: Streams) -> None:
    """Others are skipped, and do not count as missed."""
    ear = Ear(streams, namespace="other")
    tell(streams._ring, 3)
    streams._ring.tell(0.0, "gate", "waits", ("id", "other", "pods", "x"))
    assert ear.event()[0] == "e-4"


def test_listeners_that_are_behind_are_told_of_their_own_gap_and_then_hear_the_same(streams: Streams) -> None:
    """They share what is read and written for them, wherever each was."""
    tell(streams._ring, 300)
    ears = {at: Ear(streams, f"e-{at}") for at in (1, 7, 250, 290, 295, 300)}
    tell(streams._ring, 1)
    for at, ear in ears.items():
        found: list[int] = []
        missed = 0
        while not found or found[-1] < 301:
            _, kind, data = ear.event()
            if kind == "gap":
                missed += int(str(data["missed"]))
            else:
                found.append(int(str(data["seq"])))
        assert missed + len(found) == 301 - at
        assert found == list(range(found[0], 302))


@pytest.mark.long
def test_streaming_takes_a_small_share_of_a_core_however_much_is_decided() -> None:
    """Writing a decision takes 2 ms here, and a round 0.4 s: then it pauses for a second."""
    written: list[float] = []

    def slow(_: Told) -> str:
        end = time.thread_time() + 0.002
        while time.thread_time() < end:
            pass
        written.append(time.monotonic())
        return "{}"

    streams = Streams(Ring(4096), slow, epoch="e")
    ear = Ear(streams)
    tell(streams._ring, 2 * PIECE)
    assert len([ear.event() for _ in range(PIECE + 1)]) == PIECE + 1
    streams.close()
    longest = max(after - before for before, after in pairwise(written))
    assert longest >= PAUSE_MAX


def test_a_slow_listener_is_dropped_and_the_others_are_not_kept_waiting() -> None:
    """It takes nothing; what it was sent fills its connection."""
    streams = Streams(Ring(100), lambda told: json.dumps({"seq": told.seq, "long": "x" * 200_000}), stalled=0.5)
    slow = Ear(streams)
    quick = Ear(streams)
    tell(streams._ring, 30)
    assert len([quick.event() for _ in range(30)]) == 30
    waited = threading.Event()
    while len(streams) > 1:
        waited.wait(0.01)
    assert streams.dropped == 1
    while slow.mine.recv(1 << 20):  # what was under way, then the end
        pass
    tell(streams._ring, 1)
    assert quick.event()[1] == "decision"
    streams.close()
