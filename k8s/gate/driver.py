"""Drives one conversation: does what it says with the hands it is given, and tells it what came of it.

The same driver serves asyncio and threads. Only the hands differ: they know how to send, and in which thread or
loop the next step belongs.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from backoff_ctrl.engine.outcomes import Abandoned, Failed, Outcome
from backoff_ctrl.engine.quantities import format_quantity
from backoff_ctrl.k8s.creates.actions import (
    Action,
    Answered,
    Broken,
    Cancelled,
    Event,
    Line,
    LookUp,
    Raise,
    Refresh,
    Refused,
    Return,
    Send,
    State,
    Ticketed,
    TimedOut,
    WaitUntil,
    Woke,
)
from backoff_ctrl.k8s.creates.conversation import Conversation
from backoff_ctrl.k8s.creates.ungated import Passage

from .stories import Tale, tell_refusal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from typing import Any

    from backoff_ctrl.engine.explaining import Explanation
    from backoff_ctrl.engine.requests import Request
    from backoff_ctrl.engine.tickets import Refusal
    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.conversation import Creation

    from .first_list import FirstStep
    from .ledger import Desk
    from .waiters import Held

log = logging.getLogger(__name__)


class Hands(Protocol):
    """What differs between asyncio and threads. Replies are events."""

    def post(self, call: Callable[[], None]) -> None:
        """Run it soon where steps belong; safe from any thread."""

    def now(self, call: Callable[[], None]) -> None:
        """Run it before this returns if this thread may run steps, else soon."""

    def send(self, body: dict[str, Any], reply: Callable[[Event], None]) -> None:
        """Send the create, then reply."""

    def look_up(self, name: str, reply: Callable[[Event], None]) -> None:
        """Get the object, then reply."""

    def refresh(self, reply: Callable[[Event], None]) -> None:
        """Fetch new credentials, then reply."""

    def can_read_quotas(self) -> bool:
        """Say whether the transport can list the quotas of the create's namespace."""

    def read_quotas(self, reply: Callable[[Event], None]) -> None:
        """List them, then reply."""


class Errand:
    """One create under way. ``done(answer, error)`` is called exactly once, with one of the two."""

    def __init__(
        self,
        desk: Desk,
        creation: Creation,
        hands: Hands,
        done: Callable[[Answer | None, BaseException | None], None],
        rng: random.Random,
    ) -> None:
        """Prepare what the namespace's mode asks for; ``begin`` begins."""
        self.creation = creation
        self.mode = desk.mode(creation.namespace)
        self.machine: Conversation | Passage
        self.machine = Conversation(creation, rng) if self.mode == "enforce" else Passage(creation.body)
        self.began = desk.timers.now()
        self._desk = desk
        self._hands = hands
        self._done = done
        self._lock = threading.RLock()  # steps come one after the other, but cancellations from anywhere
        self._request: Request | None = None
        self._held: Held | None = None
        self._time_limit: Callable[[], object] | None = None
        self._nap: Callable[[], object] | None = None
        self._reads = False  # the quotas of its namespace, and others wait for that
        self._tale: Tale | None = None  # of a create that waits while somebody listens

    # -- from outside ---------

    def begin(self) -> None:
        """Begin: in line, or straight through. The first create of a namespace reads its quotas before that."""
        with self._lock:
            if self.over:  # cancelled before it began
                return
            self._desk.track(self)
            first = self._first_contact()
        if first == "go":
            self._set_out()
        elif first == "read":
            self._hands.read_quotas(self._quotas_read)

    def _first_contact(self) -> FirstStep:
        contact = self._desk.contact
        if contact is None or self.mode != "enforce" or not self._hands.can_read_quotas():
            return "go"
        go_on = lambda: self._hands.post(self._set_out)  # noqa: E731 - what others call once they have read
        first = contact.ask(self.creation.namespace, go_on, self._desk.timers.now())
        self._reads = first == "read"
        return first

    def _quotas_read(self, event: Event) -> None:
        if isinstance(event, Answered):
            self._desk.read(self.creation.namespace, event.answer)
        self._end_reading()
        self._set_out()

    def _end_reading(self) -> None:
        """Let those go on that wait for what was read here, whatever came of it."""
        if self._reads and self._desk.contact is not None:
            self._reads = False
            for go_on in self._desk.contact.done(self.creation.namespace, self._desk.timers.now()):
                go_on()

    def _set_out(self) -> None:
        with self._lock:
            if self.over:
                return
            if self.mode != "enforce":
                self._desk.count_passed()
            if self.mode == "shadow":
                self._held = self._desk.shadow(self.creation)
                self._request = None if self._held is None else self._held.ticket.request
            action = self.machine.start()
        self._perform(action)
        if self.creation.timeout is not None and not self.over:
            # Only now: a ticket that is to be had at once is not refused for want of time.
            limit = self.began + self.creation.timeout
            self._time_limit = self._desk.timers.call_at(limit, self._time_is_over)

    def cancel(self, error: BaseException) -> None:
        """Nobody waits any more. What is in flight is still answered, and counts. From any thread."""
        self._hands.now(lambda: self.step(Cancelled(error)))

    def break_off(self, error: BaseException) -> None:
        """The hands are gone, in the middle of a call perhaps: end here, whatever was under way."""
        self.step(Broken(error))

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._desk.timers.now() - self.began

    @property
    def over(self) -> bool:
        """Whether the caller has been answered."""
        return self.machine.state is State.OVER

    def describe(self) -> str:
        """Say in a line what is waiting, for how long and why."""
        line = f"{self.label}: {self.machine.state} for {self.seconds:.1f} s"
        why = self._explanation()
        if why is None:
            return line
        if not why.quota:
            return f"{line} ({why.reason}), place {why.place}"
        asked = format_quantity(why.asked)
        left = format_quantity(max(0, why.left))  # a probe under way holds more than there is
        return f"{line} ({why.reason} {why.quota}: asks {why.resource}={asked}, {left} left), place {why.place}"

    @property
    def label(self) -> str:
        """Which create: resource, namespace and name."""
        metadata = self.creation.body.get("metadata") or {}
        name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
        return f"{self.creation.resource} {self.creation.namespace}/{name}"

    # -- the engine calls (Waiter) ---------

    def admitted(self, held: Held) -> None:
        """Take the ticket; the step follows where steps belong."""
        self._held = held
        self._hands.post(lambda: self.step(Ticketed()))

    def refused(self, refusal: Refusal) -> None:
        """Hear the engine's no."""
        if self._desk.on_story is not None:
            tell_refusal(self._desk.on_story, self.creation, refusal)
        self._hands.post(lambda: self.step(Refused(refusal.reason, refusal.detail)))

    def opened(self) -> None:
        """The engine failed: this create goes as it is."""
        self._hands.post(self._pass)

    # -- steps ---------

    def step(self, event: Event) -> None:
        """Tell the machine, and do what it says."""
        with self._lock:
            was = self.machine.state
            if was is State.OVER:
                self._settle(Abandoned())  # a ticket that came after the end
                return
            action = self._ask(event)
            if isinstance(event, Answered) and was is State.SENDING:
                lane = None if self.machine.rejection is None else self.machine.rejection.lane
                self._desk.saw(self.creation, event.answer, lane)
        self._perform(action)

    def _ask(self, event: Event) -> Action | None:
        if isinstance(event, Broken):
            return self.machine.abandon(event.error)
        try:
            return self.machine.hear(event)
        except Exception as error:  # noqa: BLE001 - law 18: a bug of ours never stops a platform
            self._desk.failed_open(error)
            if isinstance(event, Answered):  # the server's own word, whatever we failed to make of it
                self.machine.state = State.OVER
                return Return(self.machine.last or event.answer, Failed())
            return self._ungated()

    def _perform(self, action: Action | None) -> None:
        try:
            self._do(action)
        except Exception as error:  # noqa: BLE001 - law 18
            self._desk.failed_open(error)
            if isinstance(self.machine, Passage):
                self.machine.state = State.OVER
                self._done(None, error)
            else:
                self._do(self._ungated())

    def _do(self, action: Action | None) -> None:
        match action:
            case None:
                return
            case Line(outcome):
                self._stand(outcome)
            case Send(body):
                self._hands.send(body, self.step)
            case LookUp(name):
                self._hands.look_up(name, self.step)
            case Refresh():
                self._hands.refresh(self.step)
            case WaitUntil(delay, _, outcome):
                if outcome is not None:
                    self._settle(outcome)
                when = self._desk.timers.now() + delay
                self._nap = self._desk.timers.call_at(when, lambda: self._hands.post(self._wake))
            case Return(answer, outcome, learned):
                self._finish(outcome, created=answer.ok)
                if learned is not None and self._request is not None:
                    scopes, sent = self._request.demand.scopes, learned.sent or self.began
                    self._desk.learn(self.creation.namespace, scopes, learned, sent)
                self._done(answer, None)
            case Raise(error, outcome):
                self._finish(outcome)
                self._done(None, error)

    def _stand(self, outcome: Outcome | None) -> None:
        held, self._held = self._held, None
        back = False
        if held is not None and outcome is not None:
            back = self._desk.settle(held, outcome, waiter=self)
        if not back or self._request is None:
            self._request = self._desk.request(self.creation)
            self._desk.stand(self._request, self)
        if self.over:  # cancelled while we were joining
            self._desk.leave(self._request)
        elif self._request.state == "waiting":
            self._begin_tale(self._request)
            if self.creation.on_wait is not None:
                self._tell(self.creation.on_wait)

    def _begin_tale(self, request: Request) -> None:
        if self._tale is None and self._desk.on_story is not None:
            self._tale = Tale(self._desk, self._desk.on_story, self.creation, self.began)
        if self._tale is not None:
            self._tale.waits(request)

    def _tell(self, on_wait: Callable[[Any], object]) -> None:
        try:
            on_wait(self._explanation())
        except Exception:
            log.exception("on_wait failed; the create waits on")

    def _wake(self) -> None:
        if self.machine.state is State.PAUSED:
            self.step(Woke())

    def _time_is_over(self) -> None:
        event = TimedOut(f"waited {self.creation.timeout} s, the limit given")
        run = self._hands.now if self._held is None else self._hands.post  # after a ticket that is on its way
        run(lambda: self.step(event))

    # -- ends ---------

    def _finish(self, outcome: Outcome | None, *, created: bool = False) -> None:
        self._end_reading()
        if self._tale is not None:
            self._tale.over(created=created)
        for cancel in (self._time_limit, self._nap):
            if cancel is not None:
                cancel()
        self._settle(outcome)
        if self._request is not None and self._request.state == "waiting":
            self._desk.leave(self._request)
        self._desk.untrack(self)

    def _settle(self, outcome: Outcome | None) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._desk.settle(held, outcome or Abandoned())

    def _pass(self) -> None:
        if not self.over:
            self._perform(self._ungated())

    def _ungated(self) -> Action | None:
        """Go straight through, under the name drawn before: it may have been sent already."""
        named = self.machine.named.body if isinstance(self.machine, Conversation) else self.creation.body
        self.machine, self._held, self._request = Passage(named), None, None
        return self.machine.start()

    def _explanation(self) -> Explanation | None:
        return None if self._request is None else self._desk.explain(self._request)
