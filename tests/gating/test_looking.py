"""Looking is free, at the ledger: long answers are gathered page by page, and others have the lock in between."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.engine import ObservedQuota, Policy
from backoff_ctrl.engine.look.memory import Memory, RememberedCeiling, RememberedQuota
from backoff_ctrl.engine.look.pages import NAMESPACES_MAX
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.runtime.host import RuntimeAlarms
from backoff_ctrl.k8s.gate.sharing.memory import MemoryFile
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.gate.unfinished import Unfinished
from backoff_ctrl.k8s.kube.answers.answer import Answer
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

FULL = {"pods": 4 * 10**9}
NAMESPACES = 3 * NAMESPACES_MAX + 1


class Interrupting:
    """The ledger's lock. Each time it is free again, another client reports something."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = ledger.engine.lock
        self._busy = False
        self.released = 0

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self.released += 1
        if not self._busy:
            self._busy = True
            self._ledger.hint_release("n00001")
            self._ledger.observe_quota(f"new-{self.released}", "q", ObservedQuota(FULL, FULL, FULL))
            self._busy = False


class Asks(Subscriber):
    """Asks the ledger back whenever a create has ended."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.asked = 0

    def ended(self, create: Unfinished) -> None:
        self._ledger.look(lambda engine, now: engine.next_deadline())
        self.asked += 1


def test_a_create_that_ends_while_its_own_thread_holds_the_lock_is_told_once_that_is_free() -> None:
    """As where the garbage collector closes it in the midst of a decision: subscribers may ask back all the same."""
    gate = Gate(policy=Policy())
    ledger, asks = gate.ledger, Asks(gate.ledger)
    ledger.subscribe(asks)
    create = Create(gate, Creation("http://s", "me", "team", "pods", {}))
    ledger.line.track(create)

    def act(*_: object) -> None:
        ledger.engine.tell_later(ledger.subscribers.ended, create)  # what was decided is not told yet
        ledger.line.end(create, None, at_once=False)

    def decide() -> None:
        ledger.engine.act(act)

    thread = threading.Thread(target=decide, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it waits for itself"
    assert asks.asked == 2
    assert not ledger.under_way()


def test_counting_an_answer_leaves_nothing_in_the_queue() -> None:
    """Whoever ends meanwhile without waiting for the lock is served by whoever holds it."""
    gate = Gate(policy=Policy())
    line = gate.ledger.line
    create, other = (Create(gate, Creation("http://s", "me", "team", "pods", {})) for _ in range(2))
    line.track(create)

    class Headers(dict[str, str]):
        def get(self, *_: object) -> Any:
            line.end(create, None, at_once=False)  # as a finalizer does, in the thread that holds the lock

    other.word = Answer(201, Headers(), b"")
    gate.ledger.answers.saw(other)
    assert not line.under_way()


@pytest.mark.parametrize("question", ["snapshot", "remember"])
def test_others_act_between_the_pages_of_a_long_answer(question: str) -> None:
    """All that was there from the start is in the answer, though others went on meanwhile."""
    ledger = Ledger(RuntimeAlarms(), Policy(), "enforce", None)
    names = {f"n{number:05}" for number in range(NAMESPACES)}
    for name in names:
        ledger.observe_quota(name, "q", ObservedQuota(FULL, FULL, FULL))
    lock: Any = Interrupting(ledger)
    ledger.engine.lock = lock
    found: Any = getattr(ledger, question)()

    assert names <= set(found.namespaces if question == "snapshot" else found.quotas)
    assert lock.released >= 4


def test_a_long_memory_is_written_in_slices(tmp_path: Path) -> None:
    """No piece is long, so that other threads go on; together they are what is read again."""
    quota = RememberedQuota({"pods": RememberedCeiling(4 * 10**9, 10**9, 1.0)}, {frozenset({"x"}): True})
    memory = Memory({f"n{number}": {"q": quota, "r": quota} for number in range(2000)}, 0.005)
    file = MemoryFile(tmp_path / "m.json", "http://s", clock=lambda: 0.0)
    slices = list(file._slices(memory, 10**6))

    assert max(map(len, slices)) < 1000
    assert json.loads("".join(slices))["server"] == "http://s"
    assert file.save(memory)
    assert file.load() == memory


def test_a_new_engine_goes_on_with_the_numbers_of_the_changes() -> None:
    """Who follows the changes over an internal error is told to begin anew."""
    ledger = Ledger(RuntimeAlarms(), Policy(), "enforce", None)
    ledger.observe_quota("team", "q", ObservedQuota(FULL, FULL, FULL))
    upto = ledger.look(lambda engine, now: engine.changes(0, 10, now)).upto
    ledger.engine.act(lambda *_: 1 / 0)  # a bug of ours

    assert ledger.look(lambda engine, now: engine.changes(upto, 10, now)).lost
    assert set(ledger.look(lambda engine, now: engine.changes(0, 10, now)).items) == {"team"}


def test_who_hears_that_a_quota_was_learned_finds_it_in_the_engine() -> None:
    """News of room come before: what they lead to has to be measured from there."""
    ledger = Ledger(RuntimeAlarms())
    found: list[tuple[str, int]] = []

    def limit() -> int:
        namespace = ledger.snapshot().namespaces.get("team")
        return 0 if namespace is None else namespace.quotas["q"]["pods"].limited or 0

    class Listener(Subscriber):
        def observed(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
            found.append(("observed", limit()))

        def learned(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
            found.append(("learned", limit()))

    ledger.subscribe(Listener())
    for pods in (3, 5):
        hard = {"pods": pods}
        ledger.observe_quota("team", "q", ObservedQuota(hard, hard, {"pods": 0}))
    assert found == [("observed", 0), ("learned", 3), ("observed", 3), ("learned", 5)]
