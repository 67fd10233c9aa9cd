"""A Ctrl-C, or an alarm that the program outlives, in the thread of one create: the creates beside it are not lost."""

from __future__ import annotations

import gc
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.engine import ObservedQuota, Policy, Selector
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.gangs import GangWait, gang_life, gang_of
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.gate.unfinished import Turn
from backoff_ctrl.k8s.kube.answers.answer import Answer, GateClosed
from tests.kit.transports import INVALID, Transport, creation, stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ONE = 10**9
STEPS_MAX = 5000
"""More steps than anything here takes: the search for a place to interrupt ends."""


class Interrupt:
    """Raises ``KeyboardInterrupt`` at one of the moments at which Python runs signal handlers in code of ours."""

    def __init__(self, at: int) -> None:
        """``at`` counts those moments: the begin of each function, and the return of each call of C code."""
        self.at = at
        self.count = 0

    def begin(self) -> None:
        """Count from here on, in this thread."""
        sys.setprofile(self)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Be told of a step."""
        if event in ("call", "c_return") and frame.f_globals["__name__"].startswith("backoff_ctrl."):
            self.count += 1
            if self.count == self.at:
                sys.setprofile(None)
                raise KeyboardInterrupt


class Listing(Transport):
    """A transport that lists the quotas of its namespace, of which there are none."""

    def __init__(self, listing: Callable[[], object]) -> None:
        """``listing`` is called while the quotas are listed."""
        super().__init__()
        self._listing = listing

    def list_quotas(self) -> Answer:
        """GET the quotas."""
        self._listing()
        return Answer(200, {}, b'{"items": []}')


@dataclass
class Beside:
    """Another create, whose thread takes a step when ``go_on`` is called."""

    gate: Gate
    key: str | None = None
    steps: list[Callable[[], object]] = field(default_factory=list)
    ends: int = 0
    sent: int = 0

    def begin(self) -> None:
        """Start it, and let it go on until it waits."""
        self.create = Create(self.gate, creation(key=self.key))
        self.gate.run_on(self.steps.append, self.create, Transport(self._store), self._end)
        self.go_on()

    def go_on(self) -> None:
        """Take the steps that are to be taken."""
        while self.steps:
            self.steps.pop(0)()

    def served(self) -> bool:
        """Let it go on, at the latest with the next alarm; say whether it has ended, or waits in line for room."""
        self.go_on()
        if not self.create.over:
            self.gate.ledger.engine.advance()
            self.go_on()
        request = self.create.request
        return self.create.over or (request is not None and request.state == "waiting")

    def _store(self, body: dict[str, Any]) -> Answer:
        self.sent += 1
        return stored(body)

    def _end(self) -> None:
        self.ends += 1


def report(gate: Gate, used: int, hard: int = 1) -> None:
    """Report a quota on pods."""
    pods = {"pods": hard * ONE}
    gate.ledger.observe_quota("team", "q", ObservedQuota(pods, pods, {"pods": used * ONE}, Selector()))


def full() -> Gate:
    gate = Gate(policy=Policy(settle_time=0, settle_max=0))
    gate.ledger.watching("team")
    report(gate, used=1)
    return gate


Scene = tuple[Beside, "Callable[[], object]"]
"""Another create, and what the thread does that is interrupted."""


def news(interrupt: Interrupt) -> Scene:
    """The thread reports that there is room."""
    other = Beside(full())
    other.begin()

    def act() -> None:
        interrupt.begin()
        report(other.gate, used=0)

    return other, act


def own_end(
    interrupt: Interrupt, end: Callable[[dict[str, Any]], Answer] = lambda _: INVALID, key: str | None = None
) -> Scene:
    """The create of the thread ends; if in an error, its room (or the lead of their key) is for the other."""
    other = Beside(full(), key)
    report(other.gate, used=0)

    def send(body: dict[str, Any]) -> Answer:
        other.begin()
        interrupt.begin()
        return end(body)

    return other, lambda: other.gate.create(creation(key=key), Transport(send))


def own_list(interrupt: Interrupt) -> Scene:
    """The create of the thread lists the quotas, and the other waits for the list."""
    other = Beside(Gate())
    other.gate.ledger.line.list_quotas_first(60.0)

    def listing() -> None:
        other.begin()
        interrupt.begin()

    return other, lambda: other.gate.create(creation(), Listing(listing))


SCENES: dict[str, Callable[[Interrupt], Scene]] = {
    "news": news,
    "own end": own_end,
    "own list": own_list,
    "same key, stored": lambda interrupt: own_end(interrupt, stored, "key"),
    "same key, refused": lambda interrupt: own_end(interrupt, key="key"),
}


@pytest.mark.parametrize("name", SCENES)
def test_an_interrupt_at_any_moment_loses_no_other_create(name: str) -> None:
    """The other create goes on by the next alarm, unless it waits in line for room; then news of room lets it in."""
    wrong: list[object] = []
    for at in range(1, STEPS_MAX):
        interrupt = Interrupt(at)
        other, act = SCENES[name](interrupt)
        interrupted(act)
        if interrupt.count < at:
            break
        if other.served() and not other.create.over:
            report(other.gate, used=0, hard=2)  # one for a create whose end nobody knows
            other.served()
        if (other.ends, other.create.over) != (1, True) or not other.create.result().ok:
            wrong.append((at, other.ends, other.create.state, other.sent))
        elif (team := other.gate.ledger.snapshot().namespaces.get("team")) and team.outstanding:
            wrong.append((at, "a ticket is left"))

    assert at > MOMENTS
    assert wrong == []


def test_an_interrupt_at_any_moment_loses_no_gang() -> None:
    """The thread reports room for a gang that somebody else waits for: it is admitted, told so, and keeps its room."""
    wrong = []
    for at in range(1, STEPS_MAX):
        interrupt = Interrupt(at)
        gate, told = full(), list[int]()
        report(gate, used=2, hard=2)
        wait = GangWait(gate, gang_of("team", [(creation().body, 2)], name="g"))
        living = gang_life(wait, gate, may_read=False)
        turn = next(living)
        assert isinstance(turn, Turn)
        assert gate.ledger.line.listen(turn, lambda _, told=told: told.append(1))  # type: ignore[misc]

        def act(interrupt: Interrupt = interrupt, gate: Gate = gate) -> None:
            interrupt.begin()
            report(gate, used=0, hard=2)

        interrupted(act)
        if interrupt.count < at:
            break
        gate.ledger.engine.advance()
        if turn.value is None:
            report(gate, used=0, hard=2)
        with suppress(StopIteration):
            living.send(None)
        failed = wait.gang is not None and turn.engine is not gate.controller  # the engine was left half changed
        reserved = gate.ledger.snapshot().namespaces["team"].quotas["q"]["pods"].reserved
        if not told or wait.gang is None or (reserved, failed) not in ((2 * ONE, False), (0, True)):
            wrong.append((at, told, wait.gang, reserved, failed))

    assert at > MOMENTS
    assert wrong == []


MOMENTS = 20
"""So many moments there are at least: the test would prove nothing if it found none."""


def test_an_interrupt_at_any_moment_of_closing_leaves_a_create_that_can_be_closed() -> None:
    """Whoever waits for the create learns its end, at the latest when the gate is closed once more."""
    wrong = []
    for at in range(1, STEPS_MAX):
        interrupt = Interrupt(at)
        others = [Beside(full())]
        others.append(Beside(others[0].gate))
        for other in others:
            other.begin()

        def close(interrupt: Interrupt = interrupt, gate: Gate = others[0].gate) -> None:
            interrupt.begin()
            gate.close()

        interrupted(close)
        if interrupt.count < at:
            break
        for other in others:
            other.go_on()
        if not all(other.create.over for other in others):
            others[0].gate.close()
            for other in others:
                other.go_on()
        ended = [other.ends > 0 and isinstance(other.create.error, GateClosed) for other in others]
        if not all(ended) or others[0].gate.ledger.snapshot().namespaces["team"].waiting:
            wrong.append((at, ended))

    assert at > MOMENTS
    assert wrong == []


def interrupted(act: Callable[[], object]) -> None:
    """Do something that is interrupted, and nothing else: the collector would end creates of earlier moments in it."""
    gc.disable()
    try:
        with suppress(KeyboardInterrupt):
            act()
    finally:
        sys.setprofile(None)
        gc.enable()
