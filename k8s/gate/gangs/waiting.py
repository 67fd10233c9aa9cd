"""A gang that waits for room for all of it: in line as one, limited in time, and cancelled like a create."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from backoff_ctrl.k8s.answers.answer import GateClosed, WaitedTooLong
from backoff_ctrl.k8s.creates.actions import ListQuotas
from backoff_ctrl.k8s.creates.wait import PASSING, wait_of
from backoff_ctrl.k8s.gate.transport import Reply

from .admitted import AdmittedGang, Desk
from .asked import GangRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backoff_ctrl.engine.controller import Controller
    from backoff_ctrl.engine.explaining import Explanation
    from backoff_ctrl.engine.gangs import Gang, Reservation
    from backoff_ctrl.engine.parts import Parts
    from backoff_ctrl.engine.requests import Request
    from backoff_ctrl.engine.tickets import Refusal
    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.creation import Creation
    from backoff_ctrl.k8s.creates.wait import Wait
    from backoff_ctrl.k8s.gate.telling.notices import Notices
    from backoff_ctrl.k8s.gate.timers import Timers
    from backoff_ctrl.k8s.gate.transport import Hands
    from backoff_ctrl.k8s.gate.waiters import Held, Waiter

    from .asked import GangAsked

FORBIDDEN = (401, 403, 404)
"""Answers to a list of quotas after which no other answer is expected: this account may not read them."""


class Door(Protocol):
    """The gate that it waits at."""

    def mode(self, namespace: str) -> str:
        """Return the mode of a namespace."""


class Line(Desk, Protocol):
    """What it asks of the ledger."""

    timers: Timers
    notices: Notices

    def reservation(self, creation: Creation, parts: Parts, limit: float | None) -> Reservation:
        """Describe it to the engine."""

    def reserve(self, request: Reservation, waiter: Waiter, *, standing: bool) -> None:
        """Put it in line."""

    def leave(self, request: Request) -> None:
        """Take it out of the line."""

    def explain(self, request: Request) -> Explanation | None:
        """Say why it waits."""

    def read(self, namespace: str, answer: Answer, sent: float) -> None:
        """Report what a list of quotas says."""

    def looked(self, namespace: str, *, readable: bool | None) -> None:
        """Report how a read of the quotas ended."""

    def track(self, create: Any) -> None:
        """Remember it until it has ended."""

    def untrack(self, create: Any) -> None:
        """Forget a gang or a create that has ended."""

    def failed_open(self, error: BaseException) -> None:
        """Count an internal error."""

    def know(self, gang: AdmittedGang) -> None:
        """Remember an admitted gang whose members others make."""


class GangWait:
    """One gang on its way into the line, until it is admitted, refused or gone. Safe from any thread.

    Once it has ended it has an admitted ``gang`` or an ``error``.
    """

    def __init__(
        self, gate: Door, ledger: Line, asked: GangAsked, hands: Hands | None, done: Callable[[], object]
    ) -> None:
        """``hands`` read the namespace's quotas where those are not watched; None: nothing can."""
        self.gate: object | None = gate
        self.thread: int | None = threading.get_ident()
        self.asked = asked
        self.create_id = str(uuid4())  # no object carries it: what lists of waiting creates know it by
        self.gang: AdmittedGang | None = None
        self.error: BaseException | None = None
        self.answer: Answer | None = None
        self.noticed = self.follows = False  # it has no key, and so waits for no other create of that key
        self.noted: Any = None
        self.began = ledger.timers.now()
        self.request: Reservation | None = None
        self._door = gate
        self._ledger = ledger
        self._hands = hands
        self._done = done
        self._lock = threading.RLock()
        self._time_limit: Callable[[], object] | None = None

    def begin(self) -> None:
        """Join the line. Where the gate does not enforce, nothing is reserved and nothing waits."""
        if self._door.mode(self.creation.namespace) != "enforce":
            self.opened()
            return
        self._ledger.track(self)
        try:
            self.request = request = self._ledger.reservation(self.creation, self.asked.parts, self.asked.limit)
            self._ledger.reserve(request, self, standing=self.asked.standing)
            timeout = self.creation.timeout
            if request.state == "waiting" and not self.over:
                if timeout is not None and timeout < 10.0**9:
                    self._time_limit = self._ledger.timers.call_at(self.began + timeout, self._time_is_over)
                self.noticed = self._ledger.notices.waits(self) or self.noticed
        except Exception as error:  # noqa: BLE001 - law 18: its members are created like any others
            self._ledger.failed_open(error)
            self.opened()

    # -- as people see it ---------

    @property
    def creation(self) -> Creation:
        """Where it goes and how it waits."""
        return self.asked.creation

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.gang is not None or self.error is not None

    @property
    def seconds(self) -> float:
        """How long ago it began, in seconds."""
        return self._ledger.timers.now() - self.began

    @property
    def label(self) -> str:
        """Its namespace and name, and how many members it has."""
        return f"gang {self.creation.namespace}/{self.creation.name} ({self.asked.count} {self.creation.resource})"

    @property
    def waits(self) -> bool:
        """Whether it waits in line."""
        return not self.over

    def wait(self) -> Wait:
        """Say what it waits for."""
        why = None if self.request is None else self._ledger.explain(self.request)
        what = (self.creation.namespace, f"gang of {self.asked.count} {self.creation.resource}", self.creation.name)
        more = {"waited": self.seconds, "priority": self.creation.priority, "server": self.creation.server}
        return wait_of(what, why, reason=PASSING, **more)

    def describe(self) -> str:
        """Return one line: the gang, since when it waits, and for what."""
        return f"{self.label}: waiting in line, {self.seconds:.1f} s after it began ({self.wait().why})"

    # -- called by the ledger ---------

    def granted(self, gang: Gang, engine: Controller) -> None:
        """Take the room for the whole."""
        if self.gang is not None and self.gang.gang is gang:  # told again, after a Ctrl-C
            self._tell_end()
            return
        admitted = AdmittedGang(self._door, self._ledger, self.asked, gang, engine)
        self._ledger.know(admitted)
        if self.asked.made_from is not None:
            admitted.stored(self.asked.made_from, "")
        if not self._end(admitted, None):
            admitted.give_back()

    def admitted(self, held: Held) -> None:
        """Never: a gang gets no ticket, its members do."""
        raise AssertionError(f"{self.label} was given the ticket {held.ticket}")

    def refused(self, refusal: Refusal) -> None:
        """End: the whole will not be admitted."""
        said = f"{self.label} was refused: {self.asked.in_words(refusal.detail)}"
        self._end(None, GangRefused(said, refusal.reason))

    def opened(self) -> None:
        """Go on with nothing reserved: the engine failed, or the gate does not enforce."""
        self._end(AdmittedGang(self._door, self._ledger, self.asked, None, None), None)

    @property
    def reads_quotas(self) -> bool:
        """Whether it can read the quotas of its namespace."""
        return self._hands is not None and self._hands.lists_quotas

    def read_quotas(self) -> None:
        """Read the quotas for all gangs of the namespace, and report how that ended."""
        hands = self._hands
        assert hands is not None
        try:
            hands.post(partial(self._read, hands))
        except Exception as error:  # noqa: BLE001 - law 18: the engine asks for another read
            self._failed(error)

    def _read(self, hands: Hands) -> None:
        try:
            hands.call(Reply(ListQuotas(), self._ledger.timers.now(), self))
        except Exception as error:  # noqa: BLE001 - law 18
            self._failed(error)

    def replied(self, reply: Reply) -> None:
        """Report what a read of the quotas found."""
        answer = reply.answer
        if answer is not None and answer.ok:
            self._ledger.read(self.creation.namespace, answer, reply.sent)
        readable = None
        if answer is not None and (answer.ok or answer.status in FORBIDDEN):
            readable = answer.ok
        self._ledger.looked(self.creation.namespace, readable=readable)

    def lost(self, _: Reply, error: Exception) -> None:
        """Report a read that failed on our side."""
        self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._ledger.failed_open(error)
        self._ledger.looked(self.creation.namespace, readable=None)

    # -- the end ---------

    def cancel(self, error: BaseException) -> None:
        """Leave the line: the caller has gone, or the gate was closed."""
        self.gate = None
        if self._end(None, error) and self.request is not None:
            self._ledger.leave(self.request)

    def _time_is_over(self) -> None:
        wait = self.wait()
        limit = f"{self.creation.timeout:g} s, the timeout it was given"
        detail = f"gave up waiting for {self.label} after {limit} ({wait.why})"
        if self._end(None, WaitedTooLong(detail, None, wait)) and self.request is not None:
            self._ledger.leave(self.request)

    def _end(self, gang: AdmittedGang | None, error: BaseException | None) -> bool:
        with self._lock:
            first = not self.over
            if first:
                self.gang, self.error = gang, error
        self._tell_end()  # in any case: a Ctrl-C may have come between the two
        return first

    def _tell_end(self) -> None:
        if self._time_limit is not None:
            self._time_limit()
        self._ledger.untrack(self)
        self._done()

    def break_off(self, error: BaseException) -> None:
        """End it whatever its state: whoever waited for it has gone. Nothing of it stays behind."""
        self.cancel(error)
        if self.gang is not None:
            self.gang.give_back()

    @contextmanager
    def held(self) -> Iterator[AdmittedGang]:
        """Hold the admitted gang for a block, or raise the error. What the block leaves undrawn is given back."""
        gang = self.result()
        try:
            yield gang
        except BaseException:
            gang.leave(failed=True)
            raise
        gang.leave(failed=False)

    def result(self) -> AdmittedGang:
        """Return the admitted gang, or raise the error."""
        if self.gang is None:
            raise self.error or GateClosed(f"{self.label} ended without an answer")
        return self.gang
