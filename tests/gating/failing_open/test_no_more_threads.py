""" "can't start new thread": whoever needed that thread goes on without it, and the next one tries again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from kubernetes import client

from backoff_ctrl.engine.facts.outcomes import Rejected
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.events.correlator import Reason, Report
from backoff_ctrl.k8s.gate.events.sender import EventSender
from backoff_ctrl.k8s.gate.observing.hosted import HostedWatch
from backoff_ctrl.k8s.gate.runtime.host import RUNTIME, THREAD, RuntimeAlarms
from backoff_ctrl.k8s.gate.sharing.memory import MemoryFile, MemoryKeeper
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import WaitedTooLong
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Seen, failure, scripted_server
from tests.kit.transports import FULL, Transport, creation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit.scripted_server import Reply

    Exhaust = Callable[[str], None]


@pytest.fixture
def exhaust(monkeypatch: pytest.MonkeyPatch) -> Exhaust:
    """Let the next start of a thread of that name fail, as it does where the system allows no more threads."""
    RUNTIME.close()  # its thread is started anew at the next occasion
    start = threading.Thread.start
    names: list[str] = []

    def starts(thread: threading.Thread) -> None:
        if thread.name in names:
            names.remove(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    return names.append


def test_alarms_ring_again_after_a_thread_could_not_start(exhaust: Exhaust) -> None:
    """The alarm that could not be set is not set; the next one starts the thread."""
    alarms, came, missed = RuntimeAlarms(), threading.Event(), threading.Event()
    exhaust(THREAD)

    with pytest.raises(RuntimeError, match="can't start new thread"):
        alarms.call_at(alarms.now(), missed.set)
    alarms.call_at(alarms.now(), came.set)

    assert came.wait(PATIENCE)
    assert not missed.is_set()


def test_time_limits_hold_after_a_thread_could_not_start(exhaust: Exhaust) -> None:
    """The first alarm of the gate fails, which is counted; the create waits all the same, and no longer than it may."""
    gate = Gate(policy=Policy(base=600.0, cap=600.0))
    exhaust(THREAD)

    for _ in range(2):
        with pytest.raises(WaitedTooLong):
            gate.create(creation(timeout=0.05), Transport(lambda _: FULL))
    assert gate.counts.failed_open == 1


def test_an_alarm_that_fails_rings_a_second_time() -> None:
    """Somebody waits for it. If it fails again, that is the end of it."""
    gate, came = Gate(), threading.Event()
    rings: list[int] = []

    def fails_once() -> None:
        rings.append(1)
        if len(rings) == 1:
            raise RuntimeError("a bug")
        came.set()

    gate.ledger.call_at(gate.ledger.now(), fails_once)
    assert came.wait(PATIENCE)
    assert gate.counts.failed_open == 1


@pytest.mark.parametrize("kind", ["watch", "events"])
def test_what_runs_beside_the_creates_starts_at_the_next_occasion(kind: str, exhaust: Exhaust) -> None:
    """The watch of quotas and the writing of events."""
    asked = threading.Event()

    def answer(_: Seen) -> Reply:
        asked.set()
        return failure(403, "Forbidden", "not allowed")

    with scripted_server(answer) as script:
        configuration = client.Configuration(host=script.url)
        end: Callable[[], None]
        begin: Callable[[], None]
        if kind == "watch":
            watch = HostedWatch(Gate().ledger, configuration)
            end, begin = watch.stop, lambda: watch.follow("team")
        else:
            sender = EventSender(configuration)
            story = Report(Reason.WAITS, "team", Owner("v1", "A", "a"), "q", "pods", lambda: "waits")
            end, begin = sender.finish, lambda: sender.report(story)
        exhaust(THREAD)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            begin()
        begin()
        assert asked.wait(PATIENCE)
        end()


def test_memory_is_saved_at_the_end_if_its_thread_could_not_start(exhaust: Exhaust, tmp_path: Path) -> None:
    """The client can be made all the same."""
    ledger = Gate().ledger
    exhaust(THREAD)
    keeper = MemoryKeeper(ledger, MemoryFile(tmp_path / "gate.json", "http://s"))
    pods = {"pods": 10**9}
    ledger.learn("team", frozenset(), Rejected("q", requested=pods, used=pods, limited=pods), sent=ledger.now())
    keeper.close()

    assert (tmp_path / "gate.json").exists()
    assert ledger.counts.failed_open == 1
