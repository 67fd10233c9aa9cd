"""Counters against a naive observer, and the estimate of calls saved against a loop that is really run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.unfinished import Unfinished
from backoff_ctrl.k8s.kube.answers.answer import Answer, GateClosed, WaitedTooLong
from backoff_ctrl.k8s.kube.answers.rejections import Lane, Rejection
from backoff_ctrl.k8s.status.counters import Counters, calls_saved, loop_attempts

if TYPE_CHECKING:
    from collections.abc import Callable

WAITS = st.floats(0, 5000, allow_nan=False)
ENDS: dict[str, Callable[[], tuple[Answer | None, BaseException | None]]] = {
    "created": lambda: (Answer(201, {}, b""), None),
    "failed": lambda: (Answer(422, {}, b""), None),
    "timed-out": lambda: (None, WaitedTooLong("")),
    "cancelled": lambda: (None, GateClosed("")),
}


class Reported(Unfinished):
    """One create, as a gate would report it."""

    label = create_id = "id"
    waits = follows = False
    sends = 0
    seconds = 0.0

    def wait(self) -> Any:
        """It waits for nothing that is said."""

    def describe(self) -> str:
        """Return its id."""
        return self.label

    def cancel(self, error: BaseException) -> None:
        """It ends at once."""
        self.error = error


@dataclass
class Clock:
    """A clock that is set."""

    now: float = 0.0


@dataclass
class Naive:
    """Counts what it is told in the plainest way."""

    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    waited: Counter[str] = field(default_factory=Counter)


def refusal() -> Rejection:
    """A quota's."""
    return Rejection(Lane.QUOTA, "", True, None, "q", {"pods": 1}, {"pods": 1}, {"pods": 1})


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.lists(st.tuples(st.floats(0, 50), st.booleans()), max_size=4),
            st.sampled_from(sorted(ENDS)),
        ),
        max_size=20,
    )
)
def test_the_counters_are_what_a_naive_observer_counted(lives: list[tuple[str, list[tuple[float, bool]], str]]) -> None:
    """By namespace: what ended how, what was sent, how long was waited. Each is one decision in the ring."""
    clock, naive, told = Clock(), Naive(), 0
    counters = Counters(lambda: clock.now, lambda _: None, wall=lambda: clock.now)
    for namespace, spans, end in lives:
        create = Reported(Creation("s", "c", namespace, "pods", {}), None, 0.0)
        for seconds, sent in spans:
            counters.waits(create)
            clock.now += seconds
            counters.admitted(create)
            naive.waited[namespace] += seconds  # type: ignore[assignment]
            told += 2
            if sent:
                counters.answered(create, Answer(403, {}, b""), refusal(), probe=False)
                naive.sent[namespace, "quota"] += 1
                told += 1
        create.answer, create.error = ENDS[end]()
        counters.ended(create)
        naive.ended[namespace, end] += 1
        told += 1
    for namespace in ("a", "b", "c"):
        found = counters.of(namespace)
        assert found.creates == {("pods", end): n for (where, end), n in naive.ended.items() if where == namespace}
        assert found.attempts.total() == found.refusals["q", "pods"] == naive.sent[namespace, "quota"]
        waited = 0.0 if found.waits is None else found.waits.sum
        assert abs(waited - naive.waited[namespace]) < 1e-6
        waiters = sum(1 for where, spans, _ in lives if where == namespace and spans)
        assert (0 if found.waits is None else sum(found.waits.counts)) == waiters
    assert counters.ring.newest == told


@given(WAITS)
def test_the_loop_that_is_compared_with_is_really_that_loop(waited: float) -> None:
    """It sends at once and again after 1, 2, 4, 8, 16, 20, 20, ... seconds."""
    at, delay, attempts = 0.0, 1.0, 0
    while at <= waited and waited > 0:
        attempts += 1
        at += delay
        delay = min(20.0, 2 * delay)
    assert loop_attempts(waited) == attempts


@given(WAITS, st.integers(0, 500))
def test_what_the_gate_sent_in_vain_is_taken_off(waited: float, refused: int) -> None:
    """Never below nothing."""
    assert calls_saved(waited, refused) == max(0, loop_attempts(waited) - refused)
