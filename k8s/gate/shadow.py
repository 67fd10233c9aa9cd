"""Shadow mode: every create is sent at once, and what enforce mode would have done with it is counted."""

from __future__ import annotations

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.tickets import Ticket

from .line import Line
from .locked_engine import LockedEngine
from .subscribers import Verdict
from .unfinished import Turn, Unfinished


def shadow(create: Unfinished, locked: LockedEngine, line: Line) -> None:
    """Admit a create in any case, but count whether it would have waited."""
    request, again = line.request(create.creation), line.request(create.creation)
    create.request = request
    create.turn = turn = Turn()

    def decide(engine: Controller, now: float) -> Verdict:
        line.enter(request, create)
        engine.submit(request, now)
        for effect in engine.advance(now):
            locked.on_effect(engine, now, effect)
        if isinstance(turn.value, Ticket):
            create.held = turn
            return "create"
        if line.remove(request) is not None:
            engine.of(request.namespace).withdraw(request, now)
        locked.counts.shadow_waits += 1
        _force(create, again, engine, now)
        return "wait" if turn.value is None else "refuse"

    verdict = locked.act(decide)
    if verdict is not None:
        locked.subscribers.shadowed(create.creation.namespace, verdict)


def _force(create: Unfinished, request: Request, engine: Controller, now: float) -> None:
    """Give it a ticket that it need not wait for."""
    create.request = request
    create.held = create.turn = forced = Turn()
    forced.engine, forced.value = engine, engine.of(request.namespace).force(request, now)
