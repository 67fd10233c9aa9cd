"""The waiting line as creates and gangs see it: they join it, get their turns, and leave it.

A ``Turn`` is resolved under the lock of the engine, once: with a ticket, a refusal, a grant, or a signal. The waiter
asks the line, not its own memory, whether its turn has come: so a ticket granted at the moment when its caller leaves
is given back, not lost. A create that need not wait takes the lock twice: to
join, and to settle its ticket, when the server's answer is counted, too.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.errors import GangError, TicketError
from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.outcomes import Abandoned, Outcome
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.gangs.gang import Draw, Effect, GivenBack, Grant, Look, Reservation
from backoff_ctrl.engine.tickets import Refusal, Ticket
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.kube.answers.answer import GateClosed
from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.charges.footprint import charge

from .answers_seen import AnswersSeen
from .locked_engine import LockedEngine
from .together import LISTING_MAX, FirstList, FirstStep, SameKey
from .unfinished import Signal, Stopped, Turn, Unfinished, Value, closing

log = logging.getLogger(__name__)

LOOK_AGAIN: Final = 3600.0
"""Seconds; a wait without a limit is one of many hours, since no lock can be waited for longer than some days."""


class Line:
    """The line of creates and gangs that wait. Its methods are safe from any thread."""

    def __init__(self, engine: LockedEngine, answers: AnswersSeen) -> None:
        self._engine = engine
        self._answers = answers
        self._lists_after: float | None = None
        engine.on_effect = self._take_effect
        engine.on_replace.append(self._open_all)
        self.reset()

    def reset(self) -> None:
        self.counts = self._engine.counts
        self._ids = itertools.count(1)
        self._waiting: dict[Request, Unfinished] = {}
        self._gangs: dict[Request, Unfinished] = {}  # those among them: few among a crowd of creates
        self._under_way: dict[Unfinished, None] = {}
        self._same_key = SameKey()
        self._first_lists = None if self._lists_after is None else FirstList(self._lists_after)

    # -- what is asked for ---------

    def request(self, creation: Creation) -> Request:
        """Describe a create to the engine. An unreadable manifest has an empty demand: the server will refuse it."""
        try:
            demand = creation.demand or charge(creation.body, creation.resource)
        except FieldError:
            demand = Demand({})
        flow, number = self._answers.flow(creation), f"create-{next(self._ids)}"
        if creation.gang is not None:
            member = self._engine.ask(creation.gang.member, number, demand, flow)
            if isinstance(member, Draw):
                return member
        return Request(number, creation.namespace, demand, creation.priority, flow)

    def number(self) -> str:
        return f"gang-{next(self._ids)}"

    # -- joining ---------

    def join(self, create: Unfinished, until: float | None) -> Turn:
        """Put the create's ``request`` in line; return its turn, which may have come already.

        It stands at the place that its caller left, if it was there before under the same identity.
        """
        create.turn = turn = Turn(until)
        if self._engine.act(self._submit, create.request, create, turn) is None:
            turn.value = turn.value or Signal.OPENED  # an error of ours, perhaps before the turn was given out
        return turn

    def _submit(self, engine: Controller, now: float, request: Request, create: Unfinished, turn: Turn) -> bool:
        if create.word is not None:
            self._engine.attempt(self._answers.count, create)
        if self._wait_for(create, turn):
            return True
        self._waiting[request] = create  # before the engine is asked: if that fails, it goes on ungated
        self.counts.waiting = len(self._waiting)
        if not isinstance(request, Draw):
            engine.submit(request, now, create.creation.seat)
            return True
        try:
            engine.of(request.namespace).draw(request, now)
        except GangError as error:  # another thread drew the last member meanwhile
            self._take_effect(engine, now, Refusal(request, "given-back", str(error)))
        return True

    def join_again(self, create: Unfinished, outcome: Outcome, until: float | None) -> Turn | None:
        """End the create's ticket with an outcome after which the engine puts it back in line, and return its turn.

        None: the engine knows it no more, since it has given the ticket up or was replaced.
        """
        held = create.held
        if held is None or held.settled:
            return None
        turn = Turn(until)
        back = self._engine.act(self._rejoin, create, held, turn, outcome)
        if back is None:
            create.turn, turn.value = turn, turn.value or Signal.OPENED
        return None if back is False else turn

    def _rejoin(
        self, engine: Controller, now: float, create: Unfinished, held: Turn, turn: Turn, outcome: Outcome
    ) -> bool:
        request = create.request
        if held.engine is not engine or request is None:
            return False
        if create.word is not None:
            self._engine.attempt(self._answers.count, create)
        create.turn, create.held = turn, None
        self._waiting[request] = create
        self.counts.waiting = len(self._waiting)
        self._settle(engine, now, held, outcome)
        if request.state == "over":
            self.remove(request)
            return False
        if create.stopped is not None:
            self._stop(engine, now, [(create, create.stopped)], keep_seats=True)
        return True

    def reserve(self, gang: Unfinished, request: Reservation, turn: Turn, *, standing: bool) -> None:
        """Put a gang in line; its turn comes with a grant, a refusal, or ``Signal.READ``."""

        def reserve(engine: Controller, now: float) -> bool:
            gang.request = request
            if self._wait_for(gang, turn):
                return True
            self._waiting[request] = self._gangs[request] = gang
            self.counts.waiting = len(self._waiting)
            engine.of(request.namespace).reserve(request, now, standing=standing)
            return True

        if self._engine.act(reserve) is None:
            gang.turn, turn.value = turn, turn.value or Signal.OPENED

    @staticmethod
    def _wait_for(create: Unfinished, turn: Turn) -> bool:
        """Have it wait for this turn. True: it was stopped before, and would not learn of that any more.

        Or it has gone on already: it asked in the midst of a decision of its own thread.
        """
        if turn.value is not None:
            return True
        create.turn = turn
        if create.stopped is not None:
            turn.value = Stopped(create.stopped)
        return create.stopped is not None

    def enter(self, request: Request, create: Unfinished) -> None:
        """Note that a request is about to stand in line. The lock is held."""
        self._waiting[request] = create
        self.counts.waiting = len(self._waiting)

    def remove(self, request: Request) -> Unfinished | None:
        """Note that a request stands in line no more; return what it stood for. The lock is held."""
        create = self._waiting.pop(request, None)
        self._gangs.pop(request, None)
        self.counts.waiting = len(self._waiting)
        return create

    # -- waiting ---------

    def listen(self, turn: Turn, wake: Callable[[Turn], object]) -> bool:
        """Have ``wake`` called once the turn comes; False: it has come."""

        def register(_: Controller, __: float) -> bool:
            if turn.value is None:
                turn.wake = wake
            return turn.value is None

        return self._engine.ask(register)

    def block(self, turn: Turn) -> bool:
        """Block until the turn comes, or its time is over. Return True."""
        turn.lock = came = threading.Lock()
        came.acquire()
        left = LOOK_AGAIN if self.listen(turn, _unblock) else 0.0
        while turn.value is None and left > 0:
            if turn.until is not None:
                left = min(LOOK_AGAIN, self._engine.alarms.left(turn.until))
            came.acquire(True, left)
        return True

    def take(self, create: Unfinished) -> Value:
        """Return how its turn came. If it has not, the create leaves the line: ``Signal.LATE``."""
        turn = create.turn
        assert turn is not None
        if turn.pending:
            self._engine.act(self._withdraw, create)
        if isinstance(turn.value, Ticket):
            create.held = turn
        return turn.value or Signal.LATE

    def waiter_of(self, request: Request) -> Unfinished | None:
        return self._waiting.get(request)

    # -- leaving ---------

    def end(self, create: Unfinished, outcome: Outcome | None, *, at_once: bool = True) -> None:
        """End a create: settle its ticket, or leave the line; let those go on that follow it. Twice is no error.

        ``at_once``: False where the lock must not be waited for.
        """
        if at_once:
            self._engine.act(self._end, create, outcome)
        else:
            self._engine.soon(self._end, create, outcome)

    def _end(self, engine: Controller, now: float, create: Unfinished, outcome: Outcome | None) -> None:
        if create in self._under_way:
            del self._under_way[create]
            self._engine.tell_later(self._engine.subscribers.ended, create)
        if create.creation.key is not None:
            self._lead_no_more(create)
        self._leave(engine, now, create, outcome)

    def _lead_no_more(self, create: Unfinished) -> None:
        """Let the creates go on that follow one which has ended: with the object that it made, if any."""
        made = create.answer if create.answer is not None and create.answer.ok else None
        for turn in self._same_key.leave(create):
            self._engine.resolve(turn, made or Signal.GO)

    def settle(self, create: Unfinished, outcome: Outcome) -> None:
        self._engine.act(self._leave, create, outcome)

    def _leave(self, engine: Controller, now: float, create: Unfinished, outcome: Outcome | None) -> None:
        if create.word is not None:
            self._engine.attempt(self._answers.count, create)
        if create.turn is not None and create.turn.pending:
            self._withdraw(engine, now, create)
        creation = create.creation
        for turn in (create.turn, create.held):  # the ticket may have come too late to be taken
            if turn is None or turn.settled or turn.engine is not engine:
                continue
            if isinstance(turn.value, Grant):
                turn.settled = True
                engine.gangs_of(creation.namespace).give_back(turn.value.gang, now)
            elif isinstance(turn.value, Ticket):
                if outcome is None or isinstance(outcome, Abandoned):
                    outcome = Abandoned(creation.seat, creation.retry_after)
                self._settle(engine, now, turn, outcome)
                if turn.value.request.state == "waiting":  # refused, and its caller has gone
                    handler = engine.of(creation.namespace)
                    handler.withdraw(turn.value.request, now, creation.seat, creation.retry_after)

    def _withdraw(self, engine: Controller, now: float, create: Unfinished) -> None:
        creation, request = create.creation, create.request
        if create.turn is not None and create.turn.pending:
            create.turn.value = Signal.LATE
            if request is not None and self.remove(request) is not None:
                engine.of(creation.namespace).withdraw(request, now, creation.seat, creation.retry_after)

    def _settle(self, engine: Controller, now: float, held: Turn, outcome: Outcome) -> None:
        assert isinstance(held.value, Ticket)
        held.settled = True
        try:
            engine.settle(held.value, outcome, now)
        except TicketError:
            self.counts.late += 1  # the engine had given it up: ticket_max

    def leave(self, create: Unfinished) -> bool:
        """Keep an unsent create in line whose caller was asked to come again; False if the create does not wait."""
        return self._engine.act(self._go_away, create) is True

    @staticmethod
    def _go_away(engine: Controller, now: float, create: Unfinished) -> bool:
        creation, request, turn = create.creation, create.request, create.turn
        if request is None or creation.seat is None or turn is None or turn.value is not None:
            return False
        create.away = engine.of(request.namespace).leave(request, now, creation.seat, creation.retry_after)
        return create.away

    def come_back(self, create: Unfinished) -> None:
        """Let a create be sent again whose caller is there again."""
        request, create.away = create.request, False
        if request is not None:
            self._engine.act(lambda engine, now: engine.of(request.namespace).come_back(request, now))

    def give_up(self, turn: Turn) -> None:
        """End a wait whose time is over, where no blocked thread would notice."""
        self._engine.soon(lambda *_: self._engine.resolve(turn, Signal.LATE))

    def give_back(self, create: Unfinished) -> None:
        """End a create whose caller can't have its turn any more: the caller's event loop was closed."""
        create.gate = None
        create.error = GateClosed(f"{create.label}: the event loop of its caller was closed while it waited")
        self.end(create, None, at_once=False)

    def stop(self, ends: Sequence[tuple[Unfinished, BaseException]], *, keep_seats: bool = False) -> None:
        """End each of these from outside. They leave the line in one step: else the room of one would admit the next.

        What is being sent is answered first. ``keep_seats``: their callers may come again.
        """
        for create, error in ends:
            create.stopped = error
        if ends:
            self._engine.soon(partial(self._stop, keep_seats=keep_seats), ends)

    def _stop(
        self, engine: Controller, now: float, ends: Sequence[tuple[Unfinished, BaseException]], *, keep_seats: bool
    ) -> None:
        for create, error in ends:
            turn, creation = create.turn, create.creation
            if turn is None or turn.value is not None:
                continue
            self._engine.resolve(turn, Stopped(error))  # first: the engine may fail
            if create.request is not None and self.remove(create.request) is not None:
                seat = creation.seat if keep_seats else None
                engine.of(creation.namespace).withdraw(create.request, now, seat, creation.retry_after)

    # -- what the engine says: the lock is held ---------

    def _take_effect(self, engine: Controller, now: float, effect: Effect) -> bool:
        if isinstance(effect, Look):
            return self._find_reader(engine, now, effect.namespace)
        if isinstance(effect, GivenBack):
            log.warning(
                "gang %s of namespace %s: %d of its members were drawn, and no further one for %g s; the room of the "
                "other %d is given back",
                effect.gang.id,
                effect.gang.namespace,
                effect.drawn,
                effect.gang.limit,
                effect.undrawn,
            )
            return False
        create = self._waiting.get(effect.request)
        if create is not None and create.turn is not None and create.turn.value is None:
            create.turn.engine = engine
            self._engine.resolve(create.turn, effect)
            self.remove(effect.request)  # last: were it broken off before, nobody would know who waits
            return False
        self.remove(effect.request)
        if isinstance(effect, Ticket):  # it left between the decision and now
            engine.settle(effect, Abandoned(), now)
        elif isinstance(effect, Grant):
            engine.gangs_of(effect.gang.namespace).give_back(effect.gang, now)
        return True

    def _find_reader(self, engine: Controller, now: float, namespace: str) -> bool:
        """Let a gang that waits read the quotas of its namespace; the engine hears how that ended."""
        gangs = [gang for request, gang in self._gangs.items() if request.namespace == namespace]
        reader = next((gang for gang in gangs if gang.turn is not None and gang.turn.may_read), None)
        if reader is None or reader.turn is None:
            engine.gangs_of(namespace).looked(now, readable=False if gangs else None)  # None: all have left meanwhile
            return True
        now_read, reader.turn = reader.turn, Turn(reader.turn.until, may_read=True)
        self._engine.resolve(now_read, Signal.READ)
        return False

    def _open_all(self) -> None:
        """Let all who wait go on without the engine, which has failed."""
        for create in self._waiting.values():
            if create.turn is not None:
                self._engine.resolve(create.turn, Signal.OPENED)
        for turn in self._same_key.waits():
            self._engine.resolve(turn, Signal.GO)
        self._waiting, self._gangs = {}, {}
        self.counts.waiting = 0

    # -- creates that wait for each other ---------

    def list_quotas_first(self, quiet: float) -> None:
        """Let the first create of a namespace list its quotas, also the first after ``quiet`` seconds without any."""
        self._lists_after = quiet
        self._first_lists = FirstList(quiet)

    def follow(self, create: Unfinished, body_hash: str, until: float | None) -> Turn | None:
        """Return the create's wait for another one with its key; None: it goes first.

        Raises ``KeyReusedError`` if it asks for another body than the create ahead of it.
        """
        turn = Turn(until)

        def follow(*_: object) -> bool:
            while (ahead := self._same_key.ended_ahead(create)) is not None:
                self._lead_no_more(ahead)
            leads = self._same_key.enter(create, body_hash)
            if not leads:
                self._wait_for(create, turn)
            return leads

        return None if self._engine.ask(follow) else turn

    def following(self, namespace: str) -> list[Unfinished]:
        return self._engine.ask(lambda *_: self._same_key.following(namespace))

    def first_step(self, create: Unfinished) -> FirstStep:
        """Return what a create does first in its namespace. For "wait" its ``turn`` is the wait for another one's list.

        After "read", ``listed`` must be called in any case.
        """
        lists, namespace = self._first_lists, create.creation.namespace
        if lists is None or lists.is_listed(namespace, self._engine.now()):
            return "go"

        def ask(engine: Controller, now: float) -> FirstStep:
            limit = now + LISTING_MAX
            turn = Turn(limit if create.until is None else min(limit, create.until))
            first = lists.ask(namespace, turn, now, watched=engine.is_watched(namespace))
            if first == "wait":
                self._wait_for(create, turn)
            return first

        return self._engine.ask(ask)

    def list_again(self, namespace: str) -> bool:
        """Let the next create of a namespace list its quotas; return False where they are watched."""

        def ask(engine: Controller, _: float) -> bool:
            if self._first_lists is None or engine.is_watched(namespace):
                return False
            self._first_lists.forget(namespace)
            return True

        return self._engine.ask(ask)

    def listed(self, namespace: str) -> None:
        """Let the waiters for the list of this namespace go on, even if the list has failed."""

        def done(_: Controller, now: float) -> None:
            assert self._first_lists is not None
            for turn in self._first_lists.waiting(namespace):
                self._engine.resolve(turn, Signal.GO)
            self._first_lists.done(namespace, now)

        self._engine.soon(done)

    # -- what is under way ---------

    def track(self, create: Unfinished) -> None:
        self._under_way[create] = None

    def under_way(self, gate: object | None = None) -> list[Unfinished]:
        """Return the creates and gangs that have not ended: all of them, or those whose caller waits at this gate."""
        return [each for each in list(self._under_way) if gate is None or each.gate is gate]

    def is_busy(self) -> bool:
        return bool(self._under_way)

    def close(self, why: str = "the gate was closed") -> None:
        """Cancel what has not ended, and log what that was; what is being sent is still answered."""
        self.stop(closing(self.under_way(), why))


def _unblock(turn: Turn) -> None:
    with suppress(RuntimeError):  # a second time does no harm
        turn.lock.release()
