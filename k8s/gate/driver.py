"""Drives one create: does what its state machine says, with the hands it is given, and reports back to the machine.

The same driver serves asyncio and threads. Only the hands differ: they know how to call the transport, and in which
thread or event loop the next step runs. What happens when our own code fails is in ``guarded``.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from backoff_ctrl.engine.outcomes import Abandoned, Outcome
from backoff_ctrl.k8s.creates.actions import (
    Action,
    Answered,
    Broken,
    Call,
    Declined,
    Event,
    JoinLine,
    ListQuotas,
    LookUp,
    Pause,
    Raise,
    Return,
    State,
    Ticketed,
    TimedOut,
    Unsent,
    Woke,
)
from backoff_ctrl.k8s.creates.conversation import Conversation
from backoff_ctrl.k8s.creates.ungated import ungated
from backoff_ctrl.k8s.creates.wait import PASSING, SAME_KEY, wait_of

from .guarded import Guarded
from .telling.stories import Tale, tell_refusal
from .transport import Reply, raised_by_us

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from backoff_ctrl.engine.requests import Request
    from backoff_ctrl.engine.tickets import Refusal
    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.creation import Creation
    from backoff_ctrl.k8s.creates.wait import Wait

    from .door import Door
    from .first_list import FirstList, FirstStep
    from .ledger import Ledger
    from .transport import Hands
    from .waiters import Held

log = logging.getLogger(__name__)

TICKETED: Final = Ticketed()
NO_LIMIT: Final = 10.0**9
"""Seconds: a longer time limit is none."""


class Driver(Guarded):
    """One create on its way through a gate. Once it has ended it has an ``answer`` or an ``error``."""

    __slots__ = ("_alarm", "_held", "_lists", "_request", "_tale", "_time_limit", "mode")

    def __init__(
        self,
        gate: Door,
        ledger: Ledger,
        creation: Creation,
        hands: Hands,
        done: Callable[[], object],
        rng: random.Random,
    ) -> None:
        """Prepare what the namespace's mode asks for; ``begin`` starts it.

        ``gate`` is the gate whose caller waits for it. ``done`` is called once, when the create has ended.
        """
        super().__init__(gate, ledger, creation, hands, done)
        self._request: Request | None = None
        self._held: Held | None = None
        self._time_limit: Callable[[], object] | None = None
        self._alarm: Callable[[], object] | None = None  # ends a pause
        self._lists = False  # it lists the quotas of its namespace, and others wait for that
        self._tale: Tale | None = None  # of a create that waits, where events are written
        try:
            self.began = ledger.timers.now()
            self.mode = gate.mode(creation.namespace)
            self.machine = (Conversation if self.mode == "enforce" else ungated)(creation, rng, ledger.signature)
            ledger.track(self)
            ledger.note(lambda observer: observer.begun(self))
        except Exception as error:  # noqa: BLE001 - law 18
            self._count_error(error)
            self.mode, self.machine = "off", ungated(creation, rng, ledger.signature)

    # -- from outside ---------

    def begin(self) -> None:
        """Start. The first create in a namespace lists its quotas before it joins the line."""
        with self._lock:
            if self.machine.state is not State.NEW or not self.leads(self._ledger.same_key):
                return  # cancelled, or sent after an internal error, before it began; or it follows another
            contact = self._ledger.contact
            first = "go" if contact is None else self._first_step(contact)
        if first == "go":
            self._set_out()
            return
        self._set_time_limit()
        if first == "read":
            self._call(ListQuotas())

    def wait(self) -> Wait:
        """Say what it waits for."""
        what = (self.creation.namespace, self.creation.resource, self.creation.name)
        reason = SAME_KEY if self.follows else PASSING
        why = None if self._request is None else self._ledger.explain(self._request)
        more = {"waited": self.seconds, "priority": self.creation.priority, "server": self.creation.server}
        return wait_of(what, why, reason=reason, **more)

    @property
    def waits(self) -> bool:
        """Whether it waits in line, or for another create with its key."""
        return not self.over and (self.machine.state is State.LINE or self.follows)

    @property
    def request(self) -> Request | None:
        """What stands in line for it, or stood there last."""
        return self._request

    def describe(self) -> str:
        """Return one line: the create, its state, since when, and what it waits for."""
        line = f"{self.label}: {self.machine.state}, {self.seconds:.1f} s after it began"
        return f"{line} ({self.wait().why})" if self.waits else line

    # -- the beginning ---------

    def _first_step(self, contact: FirstList) -> FirstStep:
        if self.mode != "enforce" or not self._hands.lists_quotas:
            return "go"
        self._lists = True  # until it is known who does: the others must go on if this fails
        first = contact.ask(self.creation.namespace, partial(self.post, self._set_out), self._ledger.timers.now())
        self._lists = first == "read"
        return first

    def _quotas_listed(self, sent: float, event: Event) -> None:
        if isinstance(event, Broken) and raised_by_us(event.error):
            self._count_error(event.error)
        if isinstance(event, Answered):
            self._ledger.read(self.creation.namespace, event.answer, sent)
        if self._lists:  # not cancelled meanwhile
            self._release_others()
        self._set_out()

    def _release_others(self) -> None:
        """Let the creates go on that wait for the list, whatever came of it."""
        if self._ledger.contact is not None:
            now, owe = self._ledger.timers.now(), partial(self._ledger.owed.add, None)
            self._ledger.then_call(self._ledger.contact.done, self.creation.namespace, now, owe)
            self._lists = False

    def _set_out(self) -> None:
        with self._lock:
            if self.machine.state is not State.NEW:  # cancelled, or sent ungated after an internal error
                return
            if self.mode != "enforce":
                self._ledger.count_passed()
            if self.mode == "shadow":
                self._held = self._ledger.shadow(self.creation)
                self._request = None if self._held is None else self._held.ticket.request
            action = self.machine.start()
        self._perform(action)

    def starts_to_wait(self) -> None:
        """Limit the waiting from now on, and say so. A ticket that is free at once needs no time."""
        self._set_time_limit()
        self.noticed = self._ledger.notices.waits(self) or self.noticed
        if self.creation.on_wait is not None:
            self._call_on_wait(self.creation.on_wait)

    def _set_time_limit(self) -> None:
        timeout = self.creation.timeout
        if timeout is not None and timeout < NO_LIMIT and self._time_limit is None and not self.over:
            self._time_limit = self._ledger.timers.call_at(
                self.began + timeout, partial(self.guarded, self._time_is_over)
            )

    def share(self, answer: Answer) -> None:
        """End with the answer to another create of its key."""
        with self._lock:
            if self.over:
                return
            self.machine.state = State.OVER
        self._perform(Return(replace(answer, made_here=True)))

    # -- called by the ledger (Waiter) ---------

    def admitted(self, held: Held) -> None:
        """Take the ticket; the next step runs where steps run."""
        if held.taken:
            return
        self._held = held
        self._ledger.note(lambda observer: observer.admitted(self))
        if self.over:  # its steps may run nowhere any more
            self._settle(Abandoned())
        else:
            self.post(partial(self._go_on_with, held))

    def _go_on_with(self, held: Held) -> None:
        if not held.taken:
            held.taken = True
            self.step(TICKETED)

    def refused(self, refusal: Refusal) -> None:
        """End: the engine will not admit the create."""
        self._ledger.note(lambda observer: observer.declined(self, refusal))
        if self._ledger.on_story is not None:
            tell_refusal(self._ledger.on_story, self.creation, refusal)
        self.post(partial(self.step, Declined(refusal.reason, refusal.detail, refusal.never)))

    def opened(self) -> None:
        """Go on ungated: the engine failed."""
        self.post(self._pass)

    # -- steps ---------

    def step(self, event: Event) -> None:
        """Give the machine an event, and do what it says."""
        with self._lock:
            over = self.over
            action = None if over else self._next(event)
        if over:
            self._settle(Abandoned())  # a ticket that came after the end
        else:
            self._perform(action)

    def _next(self, event: Event) -> Action | None:
        if isinstance(event, Answered):
            self._ledger.met = True
        elif isinstance(event, Unsent) and not self._ledger.met:
            event = replace(event, met=False)
        action = self.machine.abandon(event.error) if isinstance(event, Broken) else self.machine.handle(event)
        if isinstance(action, Return | Raise):
            self._ending = action
        return action

    def _perform(self, action: Action | None) -> None:
        if isinstance(action, JoinLine):
            self._join_line(action.outcome)
        elif isinstance(action, Return | Raise):
            self._end(action)
        elif isinstance(action, Pause):
            self._pause(action)
        elif action is not None:
            if isinstance(action, LookUp):
                self._set_time_limit()
            self._call(action)

    def _call(self, call: Call) -> None:
        reply = Reply(call, self._ledger.timers.now(), self)
        self._awaited = reply
        try:
            self._hands.call(reply)
        except Exception as error:  # noqa: BLE001 - law 18
            self.lost(reply, error)

    def _heard(self, reply: Reply) -> None:
        event = reply.event(self._ledger.timers.now())
        if isinstance(reply.call, ListQuotas) and self.machine.state is State.NEW:
            self._quotas_listed(reply.sent, event)
            return
        if isinstance(event, Broken) and raised_by_us(event.error):
            raise event.error
        with self._lock:
            over = self.over
            action = None if over else self._next(event)
        if not over and reply.word is not None:
            self._count_answer(reply.word, probe=self._held is not None and self._held.ticket.probe)
        self._perform(action)

    def _count_answer(self, answer: Answer, *, probe: bool) -> None:
        rejection = self.machine.rejection
        try:
            self._ledger.note(lambda observer: observer.answered(self, answer, rejection, probe=probe))
            self._ledger.saw(self.creation, answer, rejection and rejection.lane)
        except Exception as error:  # noqa: BLE001 - law 18: counting only helps
            self._count_error(error)

    def _join_line(self, outcome: Outcome | None) -> None:
        held, request = self._held, self._request
        rejoined = held is not None and outcome is not None and self._ledger.settle(held, outcome, waiter=self)
        if self._held is held:  # else it has a new one
            self._held = None
        if not rejoined or request is None:
            self._request = request = self._ledger.request(self.creation)
            self._ledger.stand(request, self, self.creation.seat)
        if self.over:  # cancelled meanwhile
            self._leave()
        elif request.state == "waiting":
            self._ledger.note(lambda observer: observer.waits(self, request))
            self._begin_tale(request)
            self.starts_to_wait()

    def _begin_tale(self, request: Request) -> None:
        if self._tale is None and self._ledger.on_story is not None:
            self._tale = Tale(self._ledger, self._ledger.on_story, self.creation, self.began)
        if self._tale is not None:
            self._tale.waits(request)

    def _call_on_wait(self, on_wait: Callable[[Wait], object]) -> None:
        wait = self.wait()
        try:
            on_wait(wait)
        except Exception:
            log.exception("the on_wait callback of %s failed; the create goes on waiting", self.label)

    def _pause(self, pause: Pause) -> None:
        if pause.outcome is not None:
            self._settle(pause.outcome)
        self._set_time_limit()
        when = self._ledger.timers.now() + pause.delay
        self._alarm = self._ledger.timers.call_at(when, partial(self.post, self._wake))

    def _wake(self) -> None:
        if self.machine.state is State.PAUSED:
            self.step(Woke())

    def _time_is_over(self) -> None:
        wait = self.wait() if self.waits else None
        why = "" if wait is None else f" ({wait.why})"
        detail = f"gave up waiting for {self.label} after {self.creation.timeout:g} s, the timeout it was given{why}"
        event = TimedOut(detail, wait)
        run = self.now if self._held is None else self.post  # after a ticket that was just issued
        run(partial(self.step, event))

    # -- the end ---------

    def _end(self, action: Return | Raise) -> None:
        self._ending = action
        try:
            self._wind_up(action)
        except Exception as error:  # noqa: BLE001 - law 18: the end is told in any case
            self._count_error(error)
        self._conclude(action)

    def _wind_up(self, action: Return | Raise) -> None:
        self._settle(action.outcome)
        self._leave()
        for cancel in (self._time_limit, self._alarm):
            if cancel is not None:
                cancel()
        if self._tale is not None:
            self._tale.over(created=isinstance(action, Return) and action.answer.ok)
        if isinstance(action, Return) and action.answer.ok and self.creation.gang is not None:
            self.creation.gang.stored(action.answer.json() or {}, self.creation.resource)
        if isinstance(action, Return) and action.learned is not None and self._request is not None:
            scopes, sent = self._request.demand.scopes, action.learned.sent or self.began
            self._ledger.learn(self.creation.namespace, scopes, action.learned, sent)

    def _leave(self) -> None:
        if self._lists:
            self._release_others()
        if self._request is not None and self._request.state == "waiting":
            self._ledger.leave(self._request, self.creation.seat, self.creation.retry_after)

    def _pass(self) -> None:
        if self.machine.state is State.LINE:  # else it was admitted or cancelled meanwhile
            self._request = None  # of the engine that failed
            self._perform(self._ungated())

    def _settle(self, outcome: Outcome | None) -> None:
        held = self._held
        if held is not None:
            held.taken = True
            seat, retry_after = self.creation.seat, self.creation.retry_after
            if outcome is None or isinstance(outcome, Abandoned):
                outcome = Abandoned(seat, retry_after)
            self._ledger.settle(held, outcome, seat=seat, retry_after=retry_after)
            self._held = None  # last: if a Ctrl-C breaks this off, it is done again
