"""``Gate``: creates wait their turn on threads. With ``run_on`` a create holds no thread while it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from contextvars import copy_context
from functools import partial

from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.runtime.host import RuntimeAlarms
from backoff_ctrl.k8s.kube.answers.answer import Answer

from .any_gate import AnyGate
from .create import Create
from .gangs import AdmittedGang, GangAsked, GangLife, GangWait, gang_life
from .life import Life, Transport, ask, life
from .locked_engine import Failure
from .unfinished import Turn

Step = Callable[[], object]


class Gate(AnyGate):
    """Lets creates through in the engine's order, for threads. Thread-safe.

    The arguments are those of ``AnyGate``; ``clock`` defaults to ``time.monotonic``. Alarms ring on the runtime.
    """

    _alarms = RuntimeAlarms

    def create(self, creation: Creation, transport: Transport) -> Answer:
        """Wait for a turn, send, and return the server's last answer, good or bad; all in this thread.

        Raises ``WaitedTooLong`` when the time limit has passed, ``GateClosed`` when the gate is closed, and the
        transport's ``NotSent`` or ``OutcomeUnknown`` after some tries.
        """
        create = Create(self, creation)
        self.run(create, transport)
        return create.result()

    def run(self, create: Create, transport: Transport) -> None:
        """Take a create to its end, when it has an ``answer`` or an ``error``. Raises only Ctrl-C and its like."""
        create.thread = threading.get_ident()
        living = life(create, self, lists_quotas=hasattr(transport, "list_quotas"))
        try:
            drive(living, transport, create.ledger.line.block)
        finally:
            living.close()  # a Ctrl-C ends it at any step

    def run_on(self, post: Callable[[Step], object], create: Create, transport: Transport, done: Step) -> Posted:
        """Take a create to its end in steps, each of which runs where ``post`` takes it; then call ``done``.

        Returns at once. Between its steps the create holds no thread.
        """
        posted = Posted(
            life(create, self, lists_quotas=hasattr(transport, "list_quotas")), create, transport, post, done
        )
        create.ledger.line.track(create)  # not only once it has begun: who closes its client or gate cancels it, too
        post(posted.step)
        return posted

    @contextmanager
    def gang(self, asked: GangAsked, transport: Transport | None = None) -> Iterator[AdmittedGang]:
        """Wait until the whole gang is admitted; then its members are created within the block, by ``gang.create``.

        Leaving the block gives back what is undrawn. ``transport`` reads the quotas where they are not watched. Raises
        ``GangRefused`` if the gang will never be admitted, ``WaitedTooLong`` and ``GateClosed`` as ``create`` does.
        """
        wait = GangWait(self, asked)
        wait.thread = threading.get_ident()
        with closing(gang_life(wait, self, may_read=hasattr(transport, "list_quotas"))) as living:
            drive(living, transport, wait.ledger.line.block)
        with wait.held_gang() as gang:
            yield gang

    def close(self) -> None:
        """Cancel what waits in this ledger, and log what that was; what was sent is still answered."""
        self.ledger.close()


def drive(living: Life | GangLife, transport: Transport | None, wait: Callable[[Turn], bool]) -> bool:
    """Resume a life with what it asks for, in this thread. Return True once it has ended.

    ``wait`` waits for a turn (True), or arranges that another drive follows once it comes (False): this one ends.
    """
    try:
        need = next(living)
        while True:
            try:
                if isinstance(need, Turn):
                    if not wait(need):
                        return False
                    answer = None
                else:
                    answer = ask(transport, need)
            except Exception as error:  # noqa: BLE001 - the transport's or ours: the life decides what it means
                need = living.throw(error)
            else:
                need = living.send(answer)
    except StopIteration:
        return True


class Posted:
    """Drives a life in steps, in the context of its caller. The next step is posted once the turn has come."""

    __slots__ = ("_alarm", "_awaited", "_context", "_create", "_done", "_life", "_post", "_transport")

    def __init__(
        self, living: Life, create: Create, transport: Transport, post: Callable[[Step], object], done: Step
    ) -> None:
        self._life = living
        self._create = create
        self._transport = transport
        self._post = post
        self._done = done
        self._context = copy_context()  # the caller's: spans and ``on_wait`` look into it
        self._awaited: Turn | None = None
        self._alarm: Callable[[], object] | None = None

    def step(self, turn: Turn | None = None) -> None:
        """Go on after ``turn`` has come, until the create waits or has ended. A second call for it is ignored."""
        awaited, self._awaited = self._awaited, None
        if awaited is not turn:
            self._awaited = awaited
            return
        ended = True
        try:
            if self._alarm is not None:
                self._alarm()
                self._alarm = None
            # A copy: as soon as it listens, another thread may take the next step, and enters no context twice.
            ended = self._context.copy().run(drive, self._life, self._transport, self._wait)
        finally:
            if ended:
                self._life.close()
                if isinstance(self._create.ledger.engine.attempt(self._done), Failure):
                    self._done()  # once more: its caller waits for this call

    def _wait(self, turn: Turn) -> bool:
        ledger, self._awaited = self._create.ledger, turn
        if turn.until is not None:
            self._alarm = ledger.call_at(turn.until, partial(ledger.line.give_up, turn))
        if ledger.line.listen(turn, self):
            return False
        self._awaited = None
        return True

    def __call__(self, turn: Turn) -> None:
        """Post the next step: the turn has come."""
        self._post(partial(self.step, turn))
