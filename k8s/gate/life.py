"""The life of a create: one generator that any driver can run.

It yields what it needs, a call to the server or a ``Turn``, and is resumed with the call's answer, or its error, or
once the turn has come, or its time is over. Between two yields it never blocks. Three drivers resume it: in the thread
that asked for the create (``threads.Gate.run``), in the task that did (``aio.AsyncGate.run``), or in the threads of a
pool, which it leaves free while it waits (``threads.Posted``).

A caller that goes away closes the generator: its ``finally`` leaves the line and settles the ticket. A driver that must
not break off a call that was sent, as its task is cancelled, goes on with the generator elsewhere instead.

The one guard in ``life`` makes creates fail open: no bug of ours stops a platform. After an error of ours the caller
gets the server's answer to the create, if that is there; else the create goes on without the engine, under the name
that was drawn for it; and where that could store it twice, the caller gets the error. No function that ``life`` calls
needs a guard.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

from backoff_ctrl.engine.facts.outcomes import Created, Failed
from backoff_ctrl.engine.tickets import Refusal, Ticket
from backoff_ctrl.k8s.gate.creates.actions import (
    Action,
    Answered,
    Call,
    Cancelled,
    Declined,
    Event,
    JoinLine,
    ListQuotas,
    LookUp,
    Pause,
    Raise,
    Refresh,
    Refreshed,
    Return,
    Send,
    State,
    Ticketed,
    TimedOut,
    Unknown,
    Unsent,
    Woke,
)
from backoff_ctrl.k8s.gate.creates.conversation import Conversation
from backoff_ctrl.k8s.gate.creates.creation import KeyReusedError
from backoff_ctrl.k8s.gate.creates.ungated import Ungated, ungated
from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.kube.answers.answer import Answer, CallerAway, NotSent, OutcomeUnknown

from .any_gate import AnyGate
from .create import Create
from .unfinished import Signal, Turn

log = logging.getLogger(__name__)

Life: TypeAlias = Generator[Turn | Call, Any, None]

FAILURES_MAX: Final = 3
"""Errors of ours in one life. After one more the create ends with the error: trying again would not help."""
_TICKETED: Final = Ticketed()
_TICKETED_LATE: Final = Ticketed(waited=True)
_WOKE: Final = Woke()
_REFRESHED: Final = Refreshed()
_LIST: Final = ListQuotas()
_JOIN: Final = JoinLine()
OURS: Final = "backoff_ctrl."
"""The beginning of the names of our own modules."""


class Transport(Protocol):
    """One create's way to its server, blocking. Each call uses the credentials of that moment.

    Two more methods are optional. ``refresh()`` fetches new credentials after the server has refused the old ones.
    ``list_quotas()`` lists the quotas of the create's namespace, with little patience, so that not even the first
    create there is refused; it returns and raises as ``look_up`` does.
    """

    def send(self, body: dict[str, Any]) -> Answer:
        """POST the body. Raises ``NotSent`` (it was never sent) or ``OutcomeUnknown`` (it was, and no answer came)."""

    def look_up(self, name: str) -> Answer:
        """GET the object of that name. Raises as ``send`` does."""


class AsyncTransport(Protocol):
    """The same for asyncio: ``refresh`` and ``list_quotas`` are coroutines, too."""

    async def send(self, body: dict[str, Any]) -> Answer:
        """POST the body. Raises ``NotSent`` (it was never sent) or ``OutcomeUnknown`` (it was, and no answer came)."""

    async def look_up(self, name: str) -> Answer:
        """GET the object of that name. Raises as ``send`` does."""


def ask(transport: Any, call: Call) -> Any:
    """Make a call. Return its answer, or an awaitable of it; to refresh credentials returns None."""
    if isinstance(call, Send):
        return transport.send(call.body)
    if isinstance(call, LookUp):
        return transport.look_up(call.name)
    if isinstance(call, ListQuotas):
        return transport.list_quotas()
    refresh = getattr(transport, "refresh", None)
    return None if refresh is None else refresh()


def life(create: Create, gate: AnyGate, *, lists_quotas: bool) -> Life:  # noqa: C901, PLR0912 - to be read in one go
    """Take a create to its end, when it has an ``answer`` or an ``error``.

    ``gate`` is the gate that it was asked for at. ``lists_quotas``: its transport can list the namespace's quotas.
    """
    action: Action | None = None
    ended = False
    try:
        while not ended:
            try:
                if action is None:
                    _prepare(create, gate)
                    if lists_quotas or create.creation.key is not None:
                        action = yield from _before_the_line(create, gate, lists_quotas)
                    action = action or _start(create)
                while not isinstance(action, Return | Raise):
                    if isinstance(action, JoinLine | Pause):
                        turn = _join(create, action) if isinstance(action, JoinLine) else _pause(create, action)
                        if turn.value is None:
                            yield turn
                        if lists_quotas and _may_fit_by_now(create, turn):
                            yield from _list_first(create)
                            action = _JOIN
                            continue
                        action = _next(create, gate, _taken(create))
                        continue
                    create.awaiting = action
                    sent = create.ledger.now()
                    try:
                        answer = yield action
                    except (NotSent, OutcomeUnknown, TimeoutError) as error:
                        action = _next(create, gate, _unanswered(create, error))
                    else:
                        action = _next(create, gate, _answered(create, answer, sent))
                create.ending = action
                _end(create, action)
            except KeyReusedError as error:
                action = Raise(error)
            except Exception as error:  # noqa: BLE001 - fails open
                action = _instead(create, gate, error)
                if create.over:
                    break
            else:
                ended = True
    finally:
        if not ended:  # its caller has gone, or its end was broken off
            create.ledger.engine.attempt(_break_off, create, sys.exception())


# -- the beginning ---------


def _prepare(create: Create, gate: AnyGate) -> None:
    if create.digits:  # an error of ours brought it back here: its mode and its name stay
        return
    ledger, creation = create.ledger, create.creation
    ledger.line.track(create)
    create.mode = gate.mode(creation.namespace)
    create.digits = gate.names.getrandbits(128) | 1  # never 0, which means that it is not prepared yet
    if create.mode != "enforce":
        create.machine = ungated(creation, gate.names, ledger.signature)
    elif creation.key is not None or (creation.named is not None and creation.named.keyed):
        create.converse(gate.names)
    if ledger.subscribers.begun.listeners:
        ledger.subscribers.begun(create)


def _before_the_line(create: Create, gate: AnyGate, lists_quotas: bool) -> Generator[Turn | Call, Any, Action | None]:
    """Follow the create ahead that has the same key; list the namespace's quotas, or wait for another one's list.

    Return how the create ends by that; None: it joins the line.
    """
    line, creation = create.ledger.line, create.creation
    if creation.key is not None:
        named = create.named
        while (turn := line.follow(create, "" if named is None else named.body_hash, create.until)) is not None:
            create.follows = True
            _starts_to_wait(create)
            yield turn
            action = _followed(create)
            if action is not None:
                return action
    if lists_quotas and create.mode == "enforce":
        yield from _list_first(create)
    if not create.timed:
        return None
    stop = _stop_of(create)
    return None if stop is None else (create.machine or create.converse(gate.names)).handle(stop)


def _list_first(create: Create) -> Generator[Turn | Call, Any, None]:
    """List the quotas of the namespace, or wait for another create's list, unless they are listed or watched."""
    line = create.ledger.line
    first = line.first_step(create)
    if first == "go":
        return
    create.timed = create.heard_a_list = True
    if first == "read":
        yield from _list_quotas(create)
    elif create.turn is not None:
        yield create.turn
        line.take(create)


def _may_fit_by_now(create: Create, turn: Turn) -> bool:
    """Prepare for another list if the create is refused as too large by one that was read for an earlier create.

    The quota may have been raised since, and where no create waits no quota is watched.
    """
    if (
        not isinstance(turn.value, Refusal)
        or turn.value.never is None
        or create.heard_a_list
        or create.word is not None
    ):
        return False
    if not create.ledger.line.list_again(create.creation.namespace):
        return False
    create.ledger.line.take(create)
    return True


def _followed(create: Create) -> Action | None:
    """Return how the create ends now that the one ahead of it has ended, or its time is over; None: it goes on."""
    assert create.machine is not None
    wait = create.wait()
    value = create.ledger.line.take(create)
    create.follows = False
    if isinstance(value, Answer):
        return Return(replace(value, made_here=True))
    if create.stopped is not None:
        return create.machine.handle(Cancelled(create.stopped))
    return None if value is Signal.GO else create.machine.handle(_timed_out(create, wait))


def _list_quotas(create: Create) -> Generator[Call, Any, None]:
    """List the quotas before the first create in a namespace, so that not even that one is refused."""
    ledger, namespace, sent = create.ledger, create.creation.namespace, create.ledger.now()
    create.awaiting = _LIST
    try:
        answer = yield _LIST
        ledger.engine.attempt(ledger.read, namespace, answer, sent)
    except (NotSent, OutcomeUnknown, TimeoutError) as error:
        log.debug("the quotas of %s can't be listed: %s", namespace, error)
    finally:  # after a failed list, too: other creates wait for this one
        ledger.line.listed(namespace)
    create.awaiting = None


def _start(create: Create) -> Action:
    if create.stopped is not None:  # before it began
        return Raise(create.stopped)
    if create.mode != "enforce":
        create.ledger.counts.passed += 1
    if create.mode == "shadow":
        create.ledger.shadow(create)
    action = _JOIN if create.machine is None else create.machine.start()
    assert action is not None
    return action


# -- in line ---------


def _join(create: Create, action: JoinLine) -> Turn:
    """Join the line, or go back after the ticket has ended with the action's outcome."""
    line, turn = create.ledger.line, None
    if action.outcome is not None:
        turn = line.join_again(create, action.outcome, create.until)
    if turn is None:
        create.request = line.request(create.creation)
        turn = line.join(create, create.until)
    if turn.value is None:
        create.waited = True
        if create.ledger.subscribers.waits.listeners:
            create.ledger.subscribers.waits(create)
        _starts_to_wait(create)
    return turn


def _pause(create: Create, pause: Pause) -> Turn:
    if pause.outcome is not None:
        create.ledger.line.settle(create, pause.outcome)
    create.timed = True
    end, until = create.ledger.now() + pause.delay, create.until
    create.turn = turn = Turn(end if until is None else min(end, until))
    if create.stopped is not None:  # one that stops it later finds the turn
        turn.value = Signal.LATE
    return turn


def _starts_to_wait(create: Create) -> None:
    """Limit the waiting from now on, and say so. A ticket that is free at once needs no time."""
    create.timed = True
    ledger, on_wait = create.ledger, create.creation.on_wait
    ledger.engine.attempt(ledger.notices.waits, create)
    ledger.exit_check.begin()
    if on_wait is not None:
        _call_on_wait(create, on_wait)


def _call_on_wait(create: Create, on_wait: Callable[[Wait], object]) -> None:
    wait = create.wait()
    try:
        on_wait(wait)
    except Exception:
        log.exception("the on_wait callback of %s failed; the create goes on waiting", create.label)


def _taken(create: Create) -> Event | None:  # noqa: PLR0911 - a table
    """Return what a turn means that has come, or whose time is over; None: to go on without the engine."""
    ledger, turn, wait = create.ledger, create.turn, None
    assert turn is not None
    if isinstance(turn.value, Ticket):
        create.held = turn
        if ledger.subscribers.admitted.listeners:
            ledger.subscribers.admitted(create)
        if create.stopped is None:
            return _TICKETED_LATE if create.waited else _TICKETED
    elif turn.pending and create.waits:
        wait = create.wait()
    value = ledger.line.take(create)
    if create.stopped is not None:
        return Cancelled(create.stopped)
    if create.away and (value is Signal.OPENED or (isinstance(value, Refusal) and value.reason == "place-taken")):
        return Cancelled(CallerAway(f"{create.label}: its caller came again with another create, or the gate failed"))
    if isinstance(value, Refusal):
        ledger.subscribers.declined(create, value)
        return Declined(value.reason, value.detail, value.never)
    if value is Signal.OPENED:
        return None
    if create.state is State.PAUSED and not create.late:
        return _WOKE
    return _timed_out(create, wait)


def _timed_out(create: Create, wait: Wait | None) -> TimedOut:
    return TimedOut(create.gave_up(wait), wait)


# -- calls and their answers ---------


def _answered(create: Create, answer: Answer | None, sent: float) -> Event:
    call, create.awaiting = create.awaiting, None
    if answer is None or isinstance(call, Refresh):
        return _REFRESHED
    create.ledger.reached = True
    if isinstance(call, Send):
        create.word = answer
    return Answered(answer, sent, create.ledger.now())


def _unanswered(create: Create, error: BaseException) -> Event:
    call, create.awaiting = create.awaiting, None
    if isinstance(error, NotSent):
        return Unsent(error, create.ledger.reached)
    create.in_doubt = create.in_doubt or isinstance(call, Send)
    return Unknown(error, create.ledger.now())


def _next(create: Create, gate: AnyGate, event: Event | None) -> Action:
    """Give the machine what came; return what it does next. What has stopped it during a call, it hears first."""
    machine = create.machine
    if machine is None:
        machine = create.converse(gate.names)
        machine.start()  # the line was joined before
    if event is None:
        return _go_on_ungated(create, machine)
    action = None
    if (create.timed or create.stopped is not None) and isinstance(event, Answered | Unsent | Unknown | Refreshed):
        stop = _stop_of(create)
        action = None if stop is None else machine.handle(stop)
    action = action or machine.handle(event)
    assert action is not None
    if create.word is not None:
        _saw(create, create.word, action)
    return action


def _stop_of(create: Create) -> Cancelled | TimedOut | None:
    """Return what has stopped a create that is under way; or None."""
    if create.stopped is not None:
        return Cancelled(create.stopped)
    return _timed_out(create, None) if create.timed and create.late else None


def _saw(create: Create, word: Answer, action: Action) -> None:
    """Report the server's answer to the create. The line counts it with the create's next step there."""
    ledger, held = create.ledger, create.held
    if ledger.subscribers.answered.listeners:
        probe = held is not None and isinstance(held.value, Ticket) and held.value.probe
        ledger.subscribers.answered(create, word, create.rejection, probe=probe)
    if isinstance(action, Send | LookUp | Refresh | Pause):
        ledger.answers.saw(create)


# -- after an error of ours ---------


def _instead(create: Create, gate: AnyGate, error: Exception) -> Action | None:  # noqa: PLR0911 - a table
    """Count the error, and return what to do instead; None: to start again."""
    ledger, awaited, word, machine = create.ledger, create.awaiting, create.word, create.machine
    create.awaiting = None
    create.in_doubt = create.in_doubt or isinstance(awaited, Send)
    foreign = awaited is not None and not raised_by_us(error)  # the transport's own
    if foreign and awaited is not _LIST and machine is not None:
        return machine.abandon(error)
    if not foreign:
        ledger.failed_open(error)
    create.failures += 1
    if create.ending is not None:
        _set_end(create, create.ending)
    if awaited is _LIST or create.over:
        return None
    if word is not None:
        ledger.engine.attempt(ledger.answers.saw, create)
    if word is not None and (word.ok or not create.in_doubt):
        return Return(word, Created() if word.ok else Failed())
    if create.stopped is not None:
        return Raise(create.stopped)
    nameless = create.in_doubt and not (create.named and create.named.name)  # it could be stored a second time
    if nameless or create.failures > FAILURES_MAX:
        return Raise(error)
    if machine is None:
        create.mode = "off"
        create.machine = ungated(create.creation, gate.names, ledger.signature)
        return create.machine.start()
    return _go_on_ungated(create, machine)


def _go_on_ungated(create: Create, machine: Conversation | Ungated) -> Action:
    """Leave the line, and go on with the machine that needs no engine. A ticket is held until the end."""
    if create.turn is not None and create.turn.pending:
        create.ledger.engine.attempt(create.ledger.line.take, create)
    create.follows = False
    create.machine = ungated_now = Ungated.after(machine, create.creation, in_doubt=create.in_doubt)
    return ungated_now.start()


def raised_by_us(error: BaseException) -> TypeGuard[Exception]:
    """Return whether code of ours failed, rather than the client or the caller's transport that it called.

    A client's own error (a certificate, a token that can't be fetched) is raised to the caller; one of ours never is.
    """
    trace = error.__traceback__
    if trace is None or not isinstance(error, Exception) or isinstance(error, NotSent | OutcomeUnknown):
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith(OURS)


# -- the end ---------


def _end(create: Create, action: Return | Raise) -> None:
    """Tell the caller how it ended, and all who wait for that. Each step may be done twice."""
    ledger, creation = create.ledger, create.creation
    _set_end(create, action)
    create.follows = False
    ledger.line.end(create, action.outcome)
    if isinstance(action, Return):
        if creation.gang is not None and action.answer.ok:
            creation.gang.stored(action.answer.json() or {}, creation.resource)
        if action.learned is not None and create.request is not None:
            sent = action.learned.sent or create.began
            ledger.learn(creation.namespace, create.request.demand.scopes, action.learned, sent)
    if create.noticed:
        ledger.engine.attempt(ledger.notices.over, create)


def _set_end(create: Create, action: Return | Raise) -> None:
    if isinstance(action, Return):
        create.answer = action.answer
    else:
        create.error = action.error


def _break_off(create: Create, error: BaseException | None) -> None:
    """End it where it stands: no thread and no task is left to go on with it. No step here waits for a lock."""
    ending = create.ending
    if create.awaiting is _LIST:
        create.ledger.line.listed(create.creation.namespace)
    if not create.over:
        create.error = create.stopped or error or GeneratorExit()
        ending = None if create.machine is None else create.machine.abandon(create.error)
    create.gate = None
    create.ledger.line.end(create, None if ending is None else ending.outcome, at_once=False)
