"""Law 18, a bug of ours never stops a platform: what happens to one create when our own code fails.

Whatever enters a create from outside passes ``guarded`` or ``replied``. An internal error is counted, and the create
goes on without the engine, under the name that was drawn for it. Once the server has answered the create, that answer
is what the caller gets; and the caller gets an end in any case.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.engine.outcomes import Created, Failed
from backoff_ctrl.k8s.answers.answer import GateClosed
from backoff_ctrl.k8s.creates.actions import Broken, Cancelled, Raise, Return, State
from backoff_ctrl.k8s.creates.failing_open import FailingOpen

from .same_key import Follower

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine.requests import Request
    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.actions import Action
    from backoff_ctrl.k8s.creates.creation import Creation
    from backoff_ctrl.k8s.creates.wait import Wait

    from .ledger import Ledger
    from .transport import Hands, Reply

log = logging.getLogger(__name__)

FAILURES_MAX: Final = 3
"""Internal errors of one create. After one more it ends with the error: trying again would not help."""


class Guarded(Follower):
    """A create's ways in, and its end. Once it has ended it has an ``answer`` or an ``error``."""

    __slots__ = (
        "_awaited", "_concluded", "_done", "_ending", "_failures", "_hands", "_in_doubt", "_ledger", "_lock",
        "_stopped", "answer", "began", "creation", "error", "gate", "machine", "noted", "noticed", "thread",
    )  # fmt: skip

    def __init__(
        self, gate: object, ledger: Ledger, creation: Creation, hands: Hands, done: Callable[[], object]
    ) -> None:
        """``gate`` is the gate whose caller waits for it. ``done`` is called once, when the create has ended."""
        self.gate: object | None = gate
        self.thread: int | None = None  # that waits for it, or runs the loop that does
        self.creation = creation
        self.began = 0.0
        self.follows = False
        self.noticed = creation.noticed_at is not None
        self.noted: Any = None  # an observer's own
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self._ledger = ledger
        self._hands = hands
        self._done = done
        self._lock = threading.RLock()  # steps come one after the other, but cancellations from any thread
        self._stopped: BaseException | None = None  # the error it was cancelled with
        self._awaited: Reply | None = None  # of a call that was handed over
        self._in_doubt = False  # a send was not answered: the create may be stored
        self._ending: Return | Raise | None = None
        self._concluded = False
        self._failures = 0

    @abstractmethod
    def _perform(self, action: Action | None) -> None:
        """Do what the machine says."""

    @abstractmethod
    def _heard(self, reply: Reply) -> None:
        """Give the machine what came of a call, and do what it says."""

    @abstractmethod
    def _leave(self) -> None:
        """Leave the line, and let the creates go on that wait for this one's list of quotas."""

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Whether it waits in line, or for another create with its key."""

    @property
    @abstractmethod
    def request(self) -> Request | None:
        """What stands in line for it, or stood there last."""

    @abstractmethod
    def wait(self) -> Wait:
        """Say what it waits for."""

    @abstractmethod
    def describe(self) -> str:
        """Return one line: the create, its state, since when, and what it waits for."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.machine.state is State.OVER

    @property
    def seconds(self) -> float:
        """How long ago it began, in seconds."""
        return self._ledger.timers.now() - self.began

    @property
    def in_doubt(self) -> bool:
        """Whether a send was not answered, so that the object may be stored."""
        return self._in_doubt

    @property
    def create_id(self) -> str:
        """What its object's annotation says; empty if it has none."""
        named = self.machine.named
        return "" if named is None else named.create_id

    @property
    def label(self) -> str:
        """The create's resource, namespace and name."""
        return self.creation.label

    # -- the ways in ---------

    def start(self) -> None:
        """Begin where steps run. Raises no internal error."""
        self.post(self.begin)

    def post(self, step: Callable[[], object]) -> None:
        """Take a step soon, where the create's steps run. Raises no internal error. Safe from any thread."""
        try:
            self._hands.post(partial(self.guarded, step))
        except GateClosed as closed:  # steps run nowhere any more
            self.break_off(closed)
        except Exception as error:  # noqa: BLE001 - law 18
            self.fail_open(error)

    def now(self, step: Callable[[], object]) -> None:
        """Take a step before this returns, if this thread may take it, else soon. Raises no internal error."""
        try:
            self._hands.now(partial(self.guarded, step))
        except GateClosed as closed:
            self.break_off(closed)
        except Exception as error:  # noqa: BLE001 - law 18
            self.fail_open(error)
        except BaseException as stop:  # a Ctrl-C for the thread that ran the step, which may be another create's
            self._recover(stop, None)
            raise

    def cancel(self, error: BaseException) -> None:
        """Cancel: the caller has gone. A request in flight is still answered, and counts. Safe from any thread."""
        self.gate = None
        self._stopped = error
        self.now(partial(self.step, Cancelled(error)))

    def break_off(self, error: BaseException) -> None:
        """End here with this error, whatever the state: there is no thread left to run the next step.

        A Ctrl-C may have broken off an end as well: all that others wait for is done once more.
        """
        for do in (
            partial(self.step, Broken(error)),
            self._leave,
            self._let_others_go,
            partial(self._conclude, Raise(error)),
        ):
            try:
                do()
            except Exception as failure:  # noqa: BLE001 - law 18
                self._count_error(failure)

    def guarded(self, do: Callable[..., object], *given: object) -> None:
        """Enter this create from outside. Raises no internal error."""
        try:
            do(*given)
        except Exception as error:  # noqa: BLE001 - law 18
            self.fail_open(error)

    def replied(self, reply: Reply) -> None:
        """Go on after a call. Raises no internal error, and does not lose the server's answer to the create."""
        self._awaited = None
        self._in_doubt = self._in_doubt or reply.in_doubt
        try:
            self._heard(reply)
        except Exception as error:  # noqa: BLE001 - law 18
            self.fail_open(error, reply.word)

    def lost(self, reply: Reply, error: Exception) -> None:
        """Go on after a call that failed on our side of the transport."""
        self._awaited = None
        self._in_doubt = self._in_doubt or reply.error is not None
        self.fail_open(error, reply.word)

    # -- after an internal error ---------

    def fail_open(self, error: BaseException, word: Answer | None = None) -> None:
        """Count the error, and go on where steps run: end with the server's ``word`` if it has come, else ungated."""
        self._count_error(error)
        self._recover(error, word)

    def _recover(self, error: BaseException, word: Answer | None) -> None:
        def go_on() -> None:
            if self._concluded:
                self._done()  # once more: the error may have come between the two
            else:
                self._open(error, word)

        try:
            self._hands.post(go_on)
        except GateClosed as closed:
            self.break_off(closed)
        except Exception as failure:  # noqa: BLE001 - law 18
            self._count_error(failure)
            go_on()

    def _open(self, error: BaseException, word: Answer | None) -> None:
        try:
            self._failures += 1
            self._perform(self._without_engine(error, word))
        except Exception as failure:  # noqa: BLE001 - law 18
            self._count_error(failure)
            self._conclude(Raise(error) if word is None else Return(word))

    def _without_engine(self, error: BaseException, word: Answer | None) -> Action | None:
        """Say what to do instead; None: wait for the reply to the call that was handed over."""
        with self._lock:
            action = self._ending or self._last_resort(error, word)
            if action is not None:
                self.machine.state = State.OVER
                return action
            go_on = self._ungated()
        try:
            self._leave()
        except Exception as failure:  # noqa: BLE001 - law 18: its ticket then comes in vain, and is given back
            self._count_error(failure)
        return go_on

    def _ungated(self) -> Action | None:
        """Go over to the machine that needs no engine."""
        opened = self.machine = FailingOpen(self.machine, self.creation, in_doubt=self._in_doubt)
        return opened.go_on(None if self._awaited is None else self._awaited.call)

    def _last_resort(self, error: BaseException, word: Answer | None) -> Return | Raise | None:
        """Return how the create ends if it cannot go on, or need not."""
        if word is not None and (word.ok or not self._in_doubt):
            return Return(word, Created() if word.ok else Failed())
        if self._awaited is not None:
            return None
        if self._stopped is not None:
            return Raise(self._stopped)
        named = self.machine.named
        unknown = self._in_doubt and not (named and named.name)  # it could be stored a second time
        return Raise(error) if unknown or self._failures > FAILURES_MAX else None

    def _count_error(self, error: BaseException) -> None:
        try:
            self._ledger.failed_open(error)
        except Exception:
            log.exception("an internal error of the gate could not be counted; the create goes on")

    # -- the end ---------

    def _conclude(self, action: Return | Raise) -> None:
        """Tell the caller how it ended, once."""
        with self._lock:
            if self._concluded:
                return
            if isinstance(action, Return):
                self.answer = action.answer
            else:
                self.error = action.error
            self._concluded = True
        for tell in (self._let_others_go, self._tell_end):
            try:
                tell()
            except Exception as error:  # noqa: BLE001 - law 18
                self._count_error(error)
        try:
            self._done()
        except Exception as error:  # noqa: BLE001 - law 18: somebody waits for it
            self._count_error(error)
            self._done()

    def _let_others_go(self) -> None:
        """Let go on who follows this create, which has ended. May be done twice."""
        self._ledger.untrack(self)
        if self.creation.key is not None:
            owe = partial(self._ledger.owed.add, None)
            self._ledger.then_call(self._ledger.same_key.leave, self, owe)

    def _tell_end(self) -> None:
        self._ledger.note(lambda observer: observer.ended(self))
        if self.noticed and not (self.answer is None and self.creation.relayed):
            since = self.creation.noticed_at
            self._ledger.notices.over(self, self.seconds if since is None else self._ledger.timers.now() - since)

    def result(self) -> Answer:
        """Return the answer, or raise the error."""
        if self.answer is None:
            raise self.error or GateClosed(f"{self.creation.label} ended without an answer")
        return self.answer
