"""Drives one create: does what its state machine says, with the hands it is given, and reports back to the machine.

The same driver serves asyncio and threads. Only the hands differ: they know how to call the transport, and in which
thread or event loop the next step runs.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from backoff_ctrl.engine.outcomes import Abandoned, Failed, Outcome
from backoff_ctrl.engine.quantities import format_quantity
from backoff_ctrl.k8s.answers.answer import Answer, GateClosed
from backoff_ctrl.k8s.creates.actions import (
    Action,
    Answered,
    Broken,
    Call,
    Cancelled,
    Declined,
    Event,
    JoinLine,
    ListQuotas,
    Pause,
    Raise,
    Return,
    Send,
    State,
    Ticketed,
    TimedOut,
    Woke,
)
from backoff_ctrl.k8s.creates.conversation import Conversation
from backoff_ctrl.k8s.creates.ungated import Ungated

from .stories import Tale, tell_refusal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from backoff_ctrl.engine.explaining import Explanation
    from backoff_ctrl.engine.requests import Request
    from backoff_ctrl.engine.tickets import Refusal
    from backoff_ctrl.k8s.creates.creation import Creation

    from .first_list import FirstList, FirstStep
    from .ledger import Ledger
    from .waiters import Held

log = logging.getLogger(__name__)

TICKETED: Final = Ticketed()


class Hands(Protocol):
    """What differs between asyncio and threads."""

    lists_quotas: bool
    """Whether the transport can list the quotas of the create's namespace."""

    def post(self, step: Callable[[], None]) -> None:
        """Run the step soon, where the create's steps run. Safe from any thread."""

    def now(self, step: Callable[[], None]) -> None:
        """Run the step before this returns, if this thread may run steps, else soon."""

    def call(self, call: Call, reply: Callable[[Event], None]) -> None:
        """Call the transport, then pass what came of it to ``reply``."""


class Driver:
    """One create on its way through a gate. Once it has ended it has an ``answer`` or an ``error``."""

    def __init__(
        self,
        gate: object,
        ledger: Ledger,
        creation: Creation,
        hands: Hands,
        done: Callable[[], object],
        rng: random.Random,
    ) -> None:
        """Prepare what the namespace's mode asks for; ``begin`` starts it.

        ``gate`` is the gate whose caller waits for it. ``done`` is called once, when the create has ended.
        """
        self.gate: object | None = gate
        self.creation = creation
        self.mode = ledger.mode(creation.namespace)
        self.machine: Conversation | Ungated
        self.machine = Conversation(creation, rng) if self.mode == "enforce" else Ungated(creation.body)
        self.began = ledger.timers.now()
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self._ledger = ledger
        self._hands = hands
        self._done = done
        self._lock = threading.RLock()  # steps come one after the other, but cancellations from any thread
        self._request: Request | None = None
        self._held: Held | None = None
        self._time_limit: Callable[[], object] | None = None
        self._alarm: Callable[[], object] | None = None  # ends a pause
        self._lists = False  # it lists the quotas of its namespace, and others wait for that
        self._tale: Tale | None = None  # of a create that waits, where events are written
        ledger.track(self)

    # -- from outside ---------

    def begin(self) -> None:
        """Start. The first create in a namespace lists its quotas before it joins the line."""
        with self._lock:
            if self.over:  # cancelled before it began
                return
            contact = self._ledger.contact
            first = "go" if contact is None else self._first_step(contact)
        if first == "go":
            self._set_out()
        elif first == "read":
            self._hands.call(ListQuotas(), self._quotas_listed)

    def cancel(self, error: BaseException) -> None:
        """Cancel: the caller has gone. A request in flight is still answered, and counts. Safe from any thread."""
        self.gate = None
        self._hands.now(lambda: self.step(Cancelled(error)))

    def break_off(self, error: BaseException) -> None:
        """End here with this error, whatever the state: there is no thread left to run the next step."""
        self.step(Broken(error))
        if self.answer is None and self.error is None:
            self.error = error

    def result(self) -> Answer:
        """Return the answer, or raise the error."""
        if self.answer is None:
            raise self.error or GateClosed(f"{self.creation.label} ended without an answer")
        return self.answer

    @property
    def seconds(self) -> float:
        """How long ago it began, in seconds."""
        return self._ledger.timers.now() - self.began

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.machine.state is State.OVER

    @property
    def label(self) -> str:
        """The create's resource, namespace and name."""
        return self.creation.label

    def describe(self) -> str:
        """Return one line: the create, its state, since when, and what it waits for."""
        line = f"{self.label}: {self.machine.state}, {self.seconds:.1f} s after it began"
        why = self._explanation()
        if why is None:
            return line
        if not why.quota:
            return f"{line} ({why.reason}; place {why.place} in line)"
        left = format_quantity(max(0, why.left))  # a probe in flight holds more than there is
        asks = f"asks {why.resource}={format_quantity(why.asked)}, {left} left in quota {why.quota}"
        return f"{line} ({why.reason}: {asks}; place {why.place} in line)"

    # -- the beginning ---------

    def _first_step(self, contact: FirstList) -> FirstStep:
        if self.mode != "enforce" or not self._hands.lists_quotas:
            return "go"
        go_on = partial(self._hands.post, self._set_out)  # called by the create that lists the quotas
        first = contact.ask(self.creation.namespace, go_on, self._ledger.timers.now())
        self._lists = first == "read"
        return first

    def _quotas_listed(self, event: Event) -> None:
        if isinstance(event, Answered):
            self._ledger.read(self.creation.namespace, event.answer)
        if self._lists:  # not cancelled meanwhile
            self._release_others()
        self._set_out()

    def _release_others(self) -> None:
        """Let the creates go on that wait for the list, whatever came of it."""
        if self._ledger.contact is not None:
            self._lists = False
            for go_on in self._ledger.contact.done(self.creation.namespace, self._ledger.timers.now()):
                go_on()

    def _set_out(self) -> None:
        with self._lock:
            if self.over:
                return
            if self.mode != "enforce":
                self._ledger.count_passed()
            if self.mode == "shadow":
                self._held = self._ledger.shadow(self.creation)
                self._request = None if self._held is None else self._held.ticket.request
            action = self.machine.start()
        self._perform(action)
        if self.creation.timeout is not None and not self.over:
            # Set only now: a ticket that is free at once is not refused for want of time.
            limit = self.began + self.creation.timeout
            self._time_limit = self._ledger.timers.call_at(limit, self._time_is_over)

    # -- called by the ledger (Waiter) ---------

    def admitted(self, held: Held) -> None:
        """Take the ticket; the next step runs where steps run."""
        self._held = held
        self._hands.post(partial(self.step, TICKETED))

    def refused(self, refusal: Refusal) -> None:
        """End: the engine will not admit the create."""
        if self._ledger.on_story is not None:
            tell_refusal(self._ledger.on_story, self.creation, refusal)
        self._hands.post(partial(self.step, Declined(refusal.reason, refusal.detail)))

    def opened(self) -> None:
        """Go on ungated: the engine failed."""
        self._hands.post(self._pass)

    # -- steps ---------

    def step(self, event: Event) -> None:
        """Give the machine an event, and do what it says."""
        with self._lock:
            was = self.machine.state
            if was is State.OVER:
                self._settle(Abandoned())  # a ticket that came after the end
                return
            action = self._next(event)
            if was is State.SENDING and isinstance(event, Answered):
                self._count(event.answer)
        self._perform(action)

    def _count(self, answer: Answer) -> None:
        try:
            self._ledger.saw(self.creation, answer, self.machine.rejection and self.machine.rejection.lane)
        except Exception as error:  # noqa: BLE001 - law 18: counting only helps
            self._ledger.failed_open(error)

    def _next(self, event: Event) -> Action | None:
        if isinstance(event, Broken):
            return self.machine.abandon(event.error)
        try:
            return self.machine.handle(event)
        except Exception as error:  # noqa: BLE001 - law 18: a bug of ours never stops a platform
            self._ledger.failed_open(error)
            if isinstance(event, Answered):  # the server's own answer, whatever we failed to make of it
                self.machine.state = State.OVER
                return Return(self.machine.last or event.answer, Failed())
            return self._ungated()

    def _perform(self, action: Action | None) -> None:
        try:
            if isinstance(action, JoinLine):
                self._join_line(action.outcome)
            elif isinstance(action, Return | Raise):
                self._end(action)
            elif isinstance(action, Pause):
                self._pause(action)
            elif action is not None:
                self._hands.call(action, self.step)
        except Exception as error:  # noqa: BLE001 - law 18
            self._ledger.failed_open(error)
            if isinstance(action, Return):  # answered: it is never sent again
                self._conclude(action.answer, None)
            elif isinstance(self.machine, Ungated):
                self.machine.state = State.OVER
                self._conclude(None, error)
            else:
                self._hands.call(self._ungated(), self.step)

    def _join_line(self, outcome: Outcome | None) -> None:
        held, self._held = self._held, None
        rejoined = held is not None and outcome is not None and self._ledger.settle(held, outcome, waiter=self)
        if not rejoined or self._request is None:
            self._request = self._ledger.request(self.creation)
            self._ledger.stand(self._request, self)
        if self.over:  # cancelled meanwhile
            self._ledger.leave(self._request)
        elif self._request.state == "waiting":
            self._begin_tale(self._request)
            if self.creation.on_wait is not None:
                self._call_on_wait(self.creation.on_wait)

    def _begin_tale(self, request: Request) -> None:
        if self._tale is None and self._ledger.on_story is not None:
            self._tale = Tale(self._ledger, self._ledger.on_story, self.creation, self.began)
        if self._tale is not None:
            self._tale.waits(request)

    def _call_on_wait(self, on_wait: Callable[[Any], object]) -> None:
        try:
            on_wait(self._explanation())
        except Exception:
            log.exception("the on_wait callback of %s failed; the create goes on waiting", self.label)

    def _pause(self, pause: Pause) -> None:
        if pause.outcome is not None:
            self._settle(pause.outcome)
        when = self._ledger.timers.now() + pause.delay
        self._alarm = self._ledger.timers.call_at(when, partial(self._hands.post, self._wake))

    def _wake(self) -> None:
        if self.machine.state is State.PAUSED:
            self.step(Woke())

    def _time_is_over(self) -> None:
        event = TimedOut(
            f"gave up waiting for {self.label} after {self.creation.timeout:g} s, the timeout it was given"
        )
        run = self._hands.now if self._held is None else self._hands.post  # after a ticket that was just issued
        run(partial(self.step, event))

    # -- the end ---------

    def _end(self, action: Return | Raise) -> None:
        if self._lists:
            self._release_others()
        if self._tale is not None:
            self._tale.over(created=isinstance(action, Return) and action.answer.ok)
        for cancel in (self._time_limit, self._alarm):
            if cancel is not None:
                cancel()
        self._settle(action.outcome)
        if self._request is not None and self._request.state == "waiting":
            self._ledger.leave(self._request)
        if isinstance(action, Raise):
            self._conclude(None, action.error)
            return
        if action.learned is not None and self._request is not None:
            scopes, sent = self._request.demand.scopes, action.learned.sent or self.began
            self._ledger.learn(self.creation.namespace, scopes, action.learned, sent)
        self._conclude(action.answer, None)

    def _settle(self, outcome: Outcome | None) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._ledger.settle(held, outcome or Abandoned())

    def _conclude(self, answer: Answer | None, error: BaseException | None) -> None:
        self._ledger.untrack(self)
        self.answer, self.error = answer, error
        self._done()

    # -- without the engine ---------

    def _pass(self) -> None:
        if not self.over:
            self._perform(self._ungated())

    def _ungated(self) -> Send:
        """Send the create ungated, under the name drawn before: it may have been sent already."""
        named = self.machine.named.body if isinstance(self.machine, Conversation) else self.creation.body
        self.machine = machine = Ungated(named)
        self._held = self._request = None
        return machine.start()

    def _explanation(self) -> Explanation | None:
        return None if self._request is None else self._ledger.explain(self._request)
