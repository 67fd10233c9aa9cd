"""A gang that waits for room for all of it: in line as one, limited in time, and cancelled like a create."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from uuid import uuid4

from backoff_ctrl.engine.gangs import Grant, Reservation
from backoff_ctrl.engine.tickets import Refusal
from backoff_ctrl.k8s.answers.answer import Answer, GateClosed, WaitedTooLong
from backoff_ctrl.k8s.creates.actions import Call, ListQuotas
from backoff_ctrl.k8s.creates.wait import Wait, wait_of
from backoff_ctrl.k8s.gate.any_gate import AnyGate
from backoff_ctrl.k8s.gate.life import raised_by_us
from backoff_ctrl.k8s.gate.unfinished import Signal, Turn, Unfinished

from .admitted import AdmittedGang
from .asked import GangAsked, GangRefused

GangLife: TypeAlias = Generator[Turn | Call, Any, None]


class GangWait(Unfinished):
    """One gang on its way into the line, until it is admitted, refused or gone: then it has a ``gang`` or an ``error``.

    No object carries its ``create_id``: lists of what waits know it by that.
    """

    __slots__ = ("_id", "asked", "gang", "ledger")
    follows = False  # it has no key, and so waits for no other create of that key
    sends = 0

    def __init__(self, gate: AnyGate, asked: GangAsked) -> None:
        self.ledger = gate.ledger
        super().__init__(asked.creation, gate, self.ledger.now())
        self.asked = asked
        self.gang: AdmittedGang | None = None
        self._id = str(uuid4())

    @property
    def create_id(self) -> str:
        return self._id

    @property
    def over(self) -> bool:
        return self.gang is not None or self.error is not None

    @property
    def seconds(self) -> float:
        return self.ledger.now() - self.began

    @property
    def label(self) -> str:
        return f"gang {self.creation.namespace}/{self.creation.name} ({self.asked.count} {self.creation.resource})"

    @property
    def waits(self) -> bool:
        return not self.over

    def wait(self) -> Wait:
        creation = self.creation
        return wait_of(
            (creation.namespace, f"gang of {self.asked.count} {creation.resource}", creation.name),
            None if self.request is None else self.ledger.explain(self.request),
            waited=self.seconds,
            priority=creation.priority,
            server=creation.server,
        )

    def describe(self) -> str:
        return f"{self.label}: waiting in line, {self.seconds:.1f} s after it began ({self.wait().why})"

    def cancel(self, error: BaseException) -> None:
        self.gate = None
        self.ledger.line.stop([(self, error)])

    @contextmanager
    def held_gang(self) -> Iterator[AdmittedGang]:
        """Hold the admitted gang for a block, or raise the error. What the block leaves undrawn is given back."""
        if self.gang is None:
            raise self.error or GateClosed(f"{self.label} ended without an answer")
        failed = True
        try:
            yield self.gang
            failed = False
        finally:
            self.gang.leave(failed=failed)


def gang_life(wait: GangWait, gate: AnyGate, *, may_read: bool) -> GangLife:
    """Take a gang through the line. ``may_read``: the quotas of its namespace can be read, where nothing watches them.

    After an error of ours, and where the gate does not enforce, nothing is reserved and nothing waits.
    """
    ledger, reads = wait.ledger, False
    try:
        while not wait.over:
            try:
                reads = False
                turn = wait.turn or _join(wait, gate, may_read)
                if turn is None:
                    wait.gang = AdmittedGang(gate, ledger, wait.asked, None, None)
                    continue
                if turn.value is None:
                    yield turn
                reads = turn.value is Signal.READ
                if reads:
                    yield from _read(wait)
                else:
                    _take(wait, gate)
            except Exception as error:  # noqa: BLE001 - law 18; and a read that fails is asked for again
                if not reads or raised_by_us(error):
                    ledger.failed_open(error)
                if not reads:
                    wait.gang = AdmittedGang(gate, ledger, wait.asked, None, None)
    finally:
        if not wait.over:  # its caller has gone
            wait.error = wait.stopped or GateClosed(f"{wait.label} ended without an answer")
            wait.gate = None
        ledger.line.end(wait, None, at_once=False)


def _join(wait: GangWait, gate: AnyGate, may_read: bool) -> Turn | None:
    ledger, creation, asked = wait.ledger, wait.creation, wait.asked
    if gate.mode(creation.namespace) != "enforce":
        return None
    line = ledger.line
    line.track(wait)
    request = Reservation(
        line.number(), creation.namespace, asked.parts, creation.priority, line.flow(creation), limit=asked.limit
    )
    turn = Turn(wait.until, may_read=may_read)
    line.reserve(wait, request, turn, standing=asked.standing)
    if turn.value is None:
        ledger.attempt(ledger.notices.waits, wait)
        line.check_exit()
    return turn


def _read(wait: GangWait) -> Generator[Call, Any, None]:
    """Read the quotas of the namespace for all gangs there, and report how that ended."""
    ledger, namespace, sent = wait.ledger, wait.creation.namespace, wait.ledger.now()
    readable = None
    try:
        answer: Answer = yield ListQuotas()
        if answer.ok:
            ledger.read(namespace, answer, sent)
            readable = True
        elif ledger.may_not_read(namespace, answer):
            readable = False
    finally:
        ledger.looked(namespace, readable=readable)


def _take(wait: GangWait, gate: AnyGate) -> None:
    ledger, turn = wait.ledger, wait.turn
    why = wait.wait() if turn is not None and turn.pending else None
    value = ledger.line.take(wait)
    if wait.stopped is not None:
        wait.error = wait.stopped
    elif isinstance(value, Grant):
        assert turn is not None
        turn.settled = True
        wait.gang = gang = AdmittedGang(gate, ledger, wait.asked, value.gang, turn.engine)
        if wait.asked.made_from is not None:
            gang.stored(wait.asked.made_from, "")
    elif isinstance(value, Refusal):
        said = f"{wait.label} was refused: {wait.asked.in_words(value.detail)}"
        wait.error = GangRefused(said, value.reason)
    elif value is Signal.OPENED:
        wait.gang = AdmittedGang(gate, ledger, wait.asked, None, None)
    else:
        wait.error = WaitedTooLong(wait.gave_up(why), None, why)
