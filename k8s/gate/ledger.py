"""The ledger of one process and API server, shared by its gates and clients: news, questions and operators come here.

Below it are the ``LockedEngine``, which decides, and the ``Line``, in which creates and gangs wait. No method of the
ledger blocks.
"""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.facts.outcomes import Rejected
from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.engine.facts.requests import Request
from backoff_ctrl.engine.look.explaining import Explanation, NamespaceSnapshot, Snapshot
from backoff_ctrl.engine.look.memory import Memory, RememberedQuota
from backoff_ctrl.engine.look.pages import NAMESPACES_MAX, MemoryPage, NamespacePage
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.creates.calls import Passed, Target
from backoff_ctrl.k8s.gate.creates.creation import Modes, mode_of
from backoff_ctrl.k8s.gate.creates.naming import UNSIGNED, Signature
from backoff_ctrl.k8s.gate.creates.treatments import Denials
from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.gate.runtime.host import Alarms, after_fork
from backoff_ctrl.k8s.kube.answers.answer import Answer
from backoff_ctrl.k8s.kube.charges.quotas import quotas_of

from .answers_seen import AnswersSeen
from .exit_check import ExitCheck
from .expected_pods import Expected
from .line import Line
from .locked_engine import GateCounts, LockedEngine
from .notices import Notices
from .shadow import shadow
from .subscribers import Subscriber
from .unfinished import Unfinished

T = TypeVar("T")
Page = TypeVar("Page", NamespacePage, MemoryPage)

BREATH: Final = 0.0002
"""Seconds between two pages of a long answer: else a waiting thread may not be quick enough to get the lock."""
QUOTAS: Final = "resourcequotas"
_HALT: Final = "/halt"
"""Stands in a subject for a namespace that an operator halted: no quota has a slash in its name."""
_POD_ENDS: Final = ""
"""Stands in a subject for the watch of pods: no quota has an empty name."""


class Ledger:
    """The ledger: news, questions and operators of one API server. Its methods are safe from any thread."""

    def __init__(
        self,
        alarms: Alarms,
        policy: Policy | None = None,
        mode: Modes = "enforce",
        rng: random.Random | None = None,
        signature: Signature = UNSIGNED,
    ) -> None:
        """Open with an empty line. ``mode`` is one for all, by namespace (``"*"`` for the others), or a function.

        ``rng`` gives the engine its jitter; None: a generator of its own.
        """
        self.policy = policy if policy is not None else Policy()
        self.mode = mode_of(mode)
        """Returns the mode of a namespace."""
        self.signature = signature
        self.denials = Denials()
        self.reached = False  # the server has answered; until then, one that can't be reached is not waited for
        self.now = alarms.now
        self.engine = LockedEngine(alarms, self.policy, rng)
        self.subscribers = self.engine.subscribers
        self.answers = AnswersSeen(self.engine)
        self.line = Line(self.engine, self.answers)
        self.exit_check = ExitCheck(self.engine, self.line)
        self.notices = Notices(self.engine, self.line)
        self.gangs = Expected(self.engine)
        """The gangs of which others make pods."""
        after_fork(self._fork)
        _LEDGERS.add(self)

    def _fork(self) -> None:
        """Start empty in a forked child: its parent keeps the waiters, and locks may be held for ever."""
        self.engine.reset()
        self.answers.reset()
        self.line.reset()
        self.exit_check.reset()
        self.notices.reset()
        self.gangs.forget()
        self.subscribers.forked()

    @property
    def controller(self) -> Controller:
        """The engine, to look at. It is not thread-safe: ask it by ``look``."""
        return self.engine.controller

    @property
    def counts(self) -> GateCounts:
        return self.engine.counts

    # -- for the gates, clients and subscribers ---------

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Tell it what happens from now on; return what ends that."""
        return self.engine.subscribe(subscriber)

    def failed_open(self, error: BaseException) -> None:
        """Count an internal error, and log it unless it was logged before."""
        self.engine.failed_open(error)

    def call_at(self, when: float, call: Callable[[], object]) -> Callable[[], object]:
        """Call at that time, in any thread; if it fails, once more. Return what cancels that."""
        return self.engine.call_at(when, call)

    def shadow(self, create: Unfinished) -> None:
        """Admit a create in any case, but count whether it would have waited."""
        shadow(create, self.engine, self.line)

    def under_way(self) -> list[Unfinished]:
        """Return the creates and gangs that have not ended."""
        return self.line.under_way()

    def close(self) -> None:
        """Cancel what has not ended, and log what that was; what is being sent is still answered."""
        self.line.close()

    # -- news ---------

    def observe_quota(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        self.subscribers.observed(namespace, quota, seen)
        self.engine.report((namespace, quota), lambda engine, now: engine.observe_quota(namespace, quota, seen, now))
        self.subscribers.learned(namespace, quota, seen)

    def forget_quota(self, namespace: str, quota: str) -> None:
        self.engine.drop((namespace, quota))
        self.engine.act(lambda engine, now: engine.forget_quota(namespace, quota, now))

    def read(self, namespace: str, answer: Answer, sent: float) -> None:
        """Report what a list of the namespace's quotas, requested at ``sent`` and of no watch, says.

        The engine drops what is older than its own knowledge. None of it is kept for a new engine: by then it would be
        old. An answer that is no such list is ignored.
        """
        self.reached = True
        if answer.ok:
            self.denials.served((QUOTAS, namespace))
        for name, seen in quotas_of(answer):
            self.engine.act(lambda engine, now, n=name, s=seen: engine.observe_quota(namespace, n, s, now, sent))

    def may_not_read(self, namespace: str, answer: Answer) -> bool:
        """Return whether this answer to a read of the namespace's quotas means that they can't be read at all."""
        if answer.status == 403:
            return self.denials.counts((QUOTAS, namespace), self.now())
        return answer.status in (401, 404)

    def watching(self, namespace: str | None) -> None:
        """Report that all quotas of the namespace (None: of all) are known and every change will be reported."""
        if namespace is not None:
            self.denials.served((QUOTAS, namespace))
        self.engine.report((namespace, None), lambda engine, now: engine.watching(now, namespace))

    def watch_lost(self, namespace: str | None) -> None:
        """Report that changes may be missed from now on."""
        self.engine.report((namespace, None), lambda engine, now: engine.watch_lost(now, namespace))
        if not self.engine.reported((None, None)):  # a new engine assumes no watch; and namespaces come and go
            self.engine.drop((namespace, None))

    def ends_told(self, namespace: str, *, told: bool) -> None:
        """Report whether the end of every pod of the namespace will be reported; False: some may be missed."""
        if told:
            self.engine.report((namespace, _POD_ENDS), lambda engine, now: engine.ends_told(namespace, now, told=True))
        else:
            self.engine.drop((namespace, _POD_ENDS))
            self.engine.act(lambda engine, now: engine.ends_told(namespace, now, told=False))

    def ended(self, namespace: str, uid: str) -> None:
        self.engine.act(lambda engine, now: engine.ended(namespace, uid, now))

    def hint_release(self, namespace: str) -> None:
        """Report that one of our objects ended or was deleted."""
        self.engine.act(lambda engine, now: engine.hint_release(namespace, now))

    def note_passed(self, target: Target, passed: Passed) -> Rejected | None:
        """Learn from the answer to a call that passed ungated; return the quota's refusal, if it is one."""
        taught = passed.taught(target)
        if taught is not None:
            self.learn(target.namespace, *taught, passed.sent)
            return taught[1]
        if passed.status == 200 and passed.method.upper() == "DELETE":
            self.hint_release(target.namespace)
        return None

    def learn(self, namespace: str, scopes: frozenset[str], refusal: Rejected, sent: float) -> None:
        """Report a quota refusal of a call that is not gated."""
        self.engine.act(lambda engine, now: engine.learn(namespace, scopes, refusal, sent, now))

    def recall(self, memory: Memory) -> None:
        self.engine.act(lambda engine, now: engine.recall(memory, now))

    def looked(self, namespace: str, *, readable: bool | None) -> None:
        """Report how a read of the quotas ended that a gang waits for; None: it failed."""
        self.engine.soon(lambda engine, now: engine.gangs_of(namespace).looked(now, readable=readable))

    # -- operators ---------

    def halt(self, namespace: str, *, halted: bool) -> None:
        """Stop the creates of a namespace, or let them go on. A new engine, after an internal error, halts it too."""
        if halted:
            self.engine.report((namespace, _HALT), lambda engine, now: engine.halt(namespace, now))
        else:
            self.engine.drop((namespace, _HALT))
            self.engine.act(lambda engine, now: engine.resume(namespace, now))

    def is_halted(self, namespace: str) -> bool:
        halted: bool = self.controller.is_halted(namespace)
        return halted

    def prioritize(self, request: Request, priority: int) -> bool:
        """Give a waiting request another priority; False: it does not wait, or the engine failed."""

        def prioritize(engine: Controller, now: float) -> bool:
            return engine.of(request.namespace).prioritize(request, priority, now)

        return self.engine.act(prioritize) is True

    # -- questions: each holds the lock for at most about a millisecond at a time -----------

    def look(self, question: Callable[[Controller, float], T]) -> T:
        """Ask the engine a question that takes less than a millisecond: all other callers wait meanwhile."""
        return self.engine.ask(question)

    def is_watched(self, namespace: str) -> bool:
        return self.look(lambda engine, _: bool(engine.is_watched(namespace)))

    def explain(self, request: Request) -> Explanation | None:
        """Return why a request waits; None if it does not, or the engine does not know."""

        def explain(engine: Controller, now: float) -> Explanation | None:
            return engine.explain(request, now) if self.line.waiter_of(request) is not None else None

        why = self.engine.attempt(self.look, explain)
        return why if isinstance(why, Explanation) else None

    def waiting_now(self) -> list[Wait]:
        """Return the waiters of this ledger with their reasons: the longest wait first."""
        waits = [each.wait() for each in self.under_way() if each.waits]
        return sorted(waits, key=lambda wait: -wait.waited)

    def remember(self) -> Memory | None:
        """Return what is worth keeping over a restart; None: the engine failed."""
        memory = self.engine.attempt(self._remember)
        return memory if isinstance(memory, Memory) else None

    def _remember(self) -> Memory:
        quotas: dict[str, Mapping[str, RememberedQuota]] = {}
        settle_time = 0.0
        for page in self._by_pages(Controller.remember_page):
            quotas |= page.memory.quotas
            settle_time = page.memory.settle_time
        return Memory(quotas, settle_time)

    def snapshot(self) -> Snapshot:
        """Return everything that is known, gathered page by page: creates go on meanwhile."""
        namespaces: dict[str, NamespaceSnapshot] = {}
        for page in self._by_pages(Controller.page):
            namespaces |= page.items
        return self.look(lambda engine, now: Snapshot(namespaces, engine.flows(now), engine.settle_time))

    def _by_pages(self, ask: Callable[[Controller, str | None, int, float], Page]) -> Iterator[Page]:
        """Ask for one page after the other, and let others have the lock in between."""
        after: str | None = None
        while True:
            page = self.engine.ask(lambda engine, now, last=after: ask(engine, last, NAMESPACES_MAX, now))
            yield page
            after = page.next
            if after is None:
                return
            time.sleep(BREATH)


_LEDGERS: weakref.WeakSet[Ledger] = weakref.WeakSet()


def waiting_now() -> list[Wait]:
    """Return the waiters of this process with their reasons: the longest wait first. Each costs some microseconds.

    Whether a create waits is known for enforced namespaces alone.
    """
    waits = [wait for ledger in list(_LEDGERS) for wait in ledger.waiting_now()]
    return sorted(waits, key=lambda wait: -wait.waited)
