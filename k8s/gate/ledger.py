"""The ledger of one process and API server, shared by every gate and client: creates, news and questions go here.

Nothing here blocks. What fails open, and how, is written in ``locked_engine``.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.demand import Demand
from backoff_ctrl.engine.explaining import Snapshot
from backoff_ctrl.engine.gangs import Reservation
from backoff_ctrl.engine.memory import Memory
from backoff_ctrl.engine.pages import NAMESPACES_MAX, MemoryPage, NamespacePage
from backoff_ctrl.engine.requests import Request
from backoff_ctrl.k8s.charges.footprint import FootprintError
from backoff_ctrl.k8s.charges.remembered import remembered_footprint
from backoff_ctrl.k8s.creates.modes import mode_of
from backoff_ctrl.k8s.creates.naming import UNSIGNED, Signature

from .closing import cancel_all
from .first_list import FirstList, quotas_of
from .gangs.desk import GangDesk
from .kept_news import HALT, POD_ENDS
from .same_key import SameKey
from .telling.notices import Notices
from .waiters import Held, Trial

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from backoff_ctrl.engine.explaining import Explanation, NamespaceSnapshot
    from backoff_ctrl.engine.memory import RememberedQuota
    from backoff_ctrl.engine.outcomes import Rejected
    from backoff_ctrl.engine.parts import Parts
    from backoff_ctrl.engine.policy import Policy
    from backoff_ctrl.engine.quotas import ObservedQuota
    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.creation import Creation
    from backoff_ctrl.k8s.creates.modes import Modes
    from backoff_ctrl.k8s.creates.wait import Wait

    from .closing import Unfinished
    from .kept_news import News, Subject
    from .telling.noting import Verdict
    from .telling.stories import Listener
    from .timers import Timers

T = TypeVar("T")
LEVEL_HEADER = "X-Kubernetes-Pf-Prioritylevel-Uid"
LEVELS_MAX = 4096
"""Flows whose priority level is remembered."""
BREATH = 0.0002
"""Seconds between two pages of a long answer."""
Page = TypeVar("Page", NamespacePage, MemoryPage)


class Ledger(GangDesk):
    """The shared ledger. Its methods are safe from any thread."""

    def __init__(
        self,
        timers: Timers,
        policy: Policy,
        mode: Modes,
        rng: random.Random | None,
        signature: Signature = UNSIGNED,
    ) -> None:
        """Open with an empty line. ``mode`` is one for all, by namespace (``"*"`` for the others), or a function."""
        self.signature = signature
        self.met = False  # the server has answered; until then, one that can't be reached is not waited for
        self.on_story: Listener | None = None  # called when a create waits long, is created then, or never fits
        self.contact: FirstList | None = None  # decides who lists a namespace's quotas first; None: nothing does
        self.on_renew: Callable[[], object] | None = None  # called in a forked child, which has no threads
        self.mode = mode_of(mode)
        """Returns the mode of a namespace."""
        super().__init__(timers, policy, rng)
        timers.on_error = self.failed_open
        timers.on_exit = lambda: cancel_all(self, self.under_way(), "Python is exiting")
        timers.on_interrupt = self._interrupted
        timers.in_use = lambda: bool(self._under_way)
        _LEDGERS.add(self)

    def renew(self) -> None:
        """Begin anew in a forked child: it has none of the waiters, and the lock may be held for ever."""
        self._ids = itertools.count(1)
        self.contact = None if self.contact is None else FirstList(self.policy.idle_ttl / 2, self.is_watched)
        self._levels: dict[tuple[str, str, str], str] = {}
        self._under_way: dict[Unfinished, None] = {}
        self.same_key = SameKey()
        self.notices = Notices(self.timers, self.under_way)
        super().renew()
        if self.on_renew is not None:
            self.on_renew()

    # -- creates ---------

    def request(self, creation: Creation) -> Request:
        """Describe a create to the engine. A manifest that can't be read demands nothing: the server will say why."""
        try:
            demand = creation.demand or remembered_footprint(creation.body, creation.resource)
        except FootprintError:
            demand = Demand({})
        except Exception as error:  # noqa: BLE001 - law 18: the create passes, the error is counted and logged
            self.failed_open(error)
            demand = Demand({})
        number, flow = f"create-{next(self._ids)}", self._flow(creation)
        member = self.member(creation, number, demand, flow) if creation.gang is not None else None
        return member or Request(number, creation.namespace, demand, priority=creation.priority, flow=flow)

    def reservation(self, creation: Creation, parts: Parts, limit: float | None) -> Reservation:
        """Describe a gang to the engine; ``creation`` says where it goes and how it waits."""
        number, flow = f"gang-{next(self._ids)}", self._flow(creation)
        return Reservation(number, creation.namespace, parts, creation.priority, flow, limit=limit)

    def _flow(self, creation: Creation) -> str:
        level = self._levels.get((creation.server, creation.credential, creation.resource), "")
        return sys.intern(f"{creation.server}|{creation.credential}|{level}")

    def shadow(self, creation: Creation) -> Held | None:
        """Admit a create in any case, but count whether it would have waited. None: the engine failed."""
        request, trial = self.request(creation), Trial(self._give_back)
        self.stand(request, trial)
        self.leave(request)
        held, refusal = trial.close()
        verdict: Verdict = "create" if held is not None else "wait" if refusal is None else "refuse"
        self.note(lambda observer: observer.shadowed(creation.namespace, verdict))
        if held is not None:
            return held
        with self._lock:
            self.counts.shadow_waits += 1
        return self.force(self.request(creation))

    def saw(self, creation: Creation, answer: Answer, lane: str | None) -> None:
        """Count an answer to a create, and remember the priority level that served it."""
        level = answer.headers.get(LEVEL_HEADER) or answer.headers.get(LEVEL_HEADER.lower())
        with self._lock:
            self.counts.sent += 1
            self.counts.admitted += answer.ok
            if lane is not None:
                self.counts.refused[lane] += 1
            if level:
                flow = creation.server, creation.credential, creation.resource
                self._levels.pop(flow, None)
                self._levels[flow] = level
                if len(self._levels) > LEVELS_MAX:  # forget the one that was seen last the longest ago
                    del self._levels[next(iter(self._levels))]

    def count_passed(self) -> None:
        """Count a create that its namespace's mode lets through ungated."""
        with self._lock:
            self.counts.passed += 1

    # -- unfinished creates: each method is one step of the dict, which needs no lock ---------

    def track(self, create: Unfinished) -> None:
        """Remember a create until it has ended."""
        self._under_way[create] = None

    def untrack(self, create: Unfinished) -> None:
        """Forget a create that has ended."""
        self._under_way.pop(create, None)

    def under_way(self, gate: object | None = None) -> list[Unfinished]:
        """Return the creates that have not ended: all of them, or those whose caller waits at this gate."""
        return [create for create in list(self._under_way) if gate is None or create.gate is gate]

    def waiting_now(self) -> list[Wait]:
        """Say who waits in this ledger, and why: those who wait longest first."""
        waits = [create.wait() for create in self.under_way() if create.waits]
        return sorted(waits, key=lambda wait: -wait.waited)

    def _interrupted(self, threads: frozenset[int]) -> None:
        awaited = [create for create in self.under_way() if create.thread in threads and create.gate is not None]
        cancel_all(self, awaited, "the program was interrupted and waits for this thread")

    def close(self) -> None:
        """Cancel the creates that have not ended, and log which ones."""
        cancel_all(self, self.under_way(), "the gate was closed")

    def cancel(self, ends: Sequence[tuple[Unfinished, BaseException]]) -> None:
        """End each of these creates with its error. They leave the line in one step, so that none is sent meanwhile."""

        def withdraw(engine: Controller, now: float) -> None:
            requests = (create.request for create, _ in ends)
            engine.withdraw_all([each for each in requests if each and self._waiters.pop(each, None)], now)

        def cancel() -> None:
            for create, error in ends:
                self.owed.add(None, partial(create.cancel, error))
            self._act(withdraw)

        self.then_call(cancel)

    # -- news ---------

    def observe_quota(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        """Report what a ResourceQuota says now."""
        self.note(lambda observer: observer.observed(namespace, quota, seen))
        self._report((namespace, quota), lambda engine, now: engine.observe_quota(namespace, quota, seen, now))

    def forget_quota(self, namespace: str, quota: str) -> None:
        """Report that a ResourceQuota was deleted."""
        self._news.drop((namespace, quota))
        self._act(lambda engine, now: engine.forget_quota(namespace, quota, now))

    def read(self, namespace: str, answer: Answer, sent: float) -> None:
        """Report what a list of the namespace's quotas, requested at ``sent`` and of no watch, says.

        The engine drops what is older than its own knowledge. None of it is kept for a new engine: by then it would be
        old. An answer that is no such list reports nothing.
        """
        self.met = True
        try:
            for name, seen in quotas_of(answer):
                self._act(lambda engine, now, n=name, s=seen: engine.observe_quota(namespace, n, s, now, sent))  # type: ignore[misc]
        except Exception as error:  # noqa: BLE001 - law 18: a list that only helps must not stop a create
            self.failed_open(error)

    def watching(self, namespace: str | None) -> None:
        """Report that all quotas of the namespace (None: of all) are known and every change will be reported."""
        self._report((namespace, None), lambda engine, now: engine.watching(now, namespace))

    def watch_lost(self, namespace: str | None) -> None:
        """Report that changes may be missed from now on."""
        self._report((namespace, None), lambda engine, now: engine.watch_lost(now, namespace))
        self._news.drop_lost(namespace)  # namespaces come and go: their loss is not kept

    def ends_told(self, namespace: str, *, told: bool) -> None:
        """Report whether the end of every pod of the namespace will be reported; False: some may be missed."""
        if told:
            self._report((namespace, POD_ENDS), lambda engine, now: engine.ends_told(namespace, now, told=True))
        else:
            self._news.drop((namespace, POD_ENDS))
            self._act(lambda engine, now: engine.ends_told(namespace, now, told=False))

    def ended(self, namespace: str, uid: str) -> None:
        """Report that a pod ended."""
        self._act(lambda engine, now: engine.ended(namespace, uid, now))

    def hint_release(self, namespace: str) -> None:
        """Report that one of our objects ended or was deleted."""
        self._act(lambda engine, now: engine.hint_release(namespace, now))

    def learn(self, namespace: str, scopes: frozenset[str], refusal: Rejected, sent: float) -> None:
        """Report a quota refusal of a call that is not gated."""
        self._act(lambda engine, now: engine.learn(namespace, scopes, refusal, sent, now))

    # -- operators ---------

    def halt(self, namespace: str, *, halted: bool) -> None:
        """Send nothing of a namespace, or go on. A new engine, after an internal error, halts it too."""
        if halted:
            self._report((namespace, HALT), lambda engine, now: engine.halt(namespace, now))
        else:
            self._news.drop((namespace, HALT))
            self._act(lambda engine, now: engine.resume(namespace, now))

    def is_halted(self, namespace: str) -> bool:
        """Say whether a namespace is halted."""
        return self.controller.is_halted(namespace)

    def prioritize(self, request: Request, priority: int) -> bool:
        """Give a waiting request another priority; False: it does not wait, or the engine failed."""
        return bool(self._act(lambda engine, now: engine.prioritize(request, priority, now)))

    def recall(self, memory: Memory) -> None:
        """Report what an earlier process knew."""
        self._act(lambda engine, now: engine.recall(memory, now))

    def _report(self, subject: Subject, news: News) -> None:
        self._news.keep(subject, news)
        self._act(news)

    # -- questions: none holds the lock for more than about a millisecond at a time ---------

    def remember(self) -> Memory | None:
        """Return what is worth keeping over a restart; None: the engine failed."""
        quotas: dict[str, Mapping[str, RememberedQuota]] = {}
        settle_time = 0.0
        try:
            for page in self._by_pages(Controller.remember_page):
                quotas |= page.memory.quotas
                settle_time = page.memory.settle_time
        except Exception as error:  # noqa: BLE001 - law 18: memory only helps, and must not stop anything
            self.failed_open(error)
            return None
        return Memory(quotas, settle_time)

    def is_watched(self, namespace: str) -> bool:
        """Say whether all quotas of the namespace are known, and their changes reported."""
        with self._lock:
            return self.controller.is_watched(namespace)

    def explain(self, request: Request) -> Explanation | None:
        """Say why a request waits; None: it does not, or the engine failed."""
        with self._lock:
            try:
                return self.controller.explain(request, self.timers.now()) if request in self._waiters else None
            except Exception as error:  # noqa: BLE001 - law 18: a reason only helps
                self._count_failure(error)
                return None

    def look(self, question: Callable[[Controller, float], T]) -> T:
        """Ask the engine something that takes less than a millisecond: everybody else waits meanwhile."""
        with self._lock:
            return question(self.controller, self.timers.now())

    def waiter_of(self, request: Request) -> object | None:
        """Return who waits for this request in line."""
        return self._waiters.get(request)

    def snapshot(self) -> Snapshot:
        """Return everything that is known, gathered page by page: creates go on meanwhile."""
        namespaces: dict[str, NamespaceSnapshot] = {}
        for page in self._by_pages(Controller.page):
            namespaces |= page.items
        with self._lock:
            return Snapshot(namespaces, self.controller.flows(self.timers.now()), self.controller.settle_time)

    def _by_pages(self, ask: Callable[[Controller, str | None, int, float], Page]) -> Iterator[Page]:
        """Ask for one page after the other, and let others have the lock in between."""
        after = None
        while True:
            with self._lock:
                page = ask(self.controller, after, NAMESPACES_MAX, self.timers.now())
            yield page
            after = page.next
            if after is None:
                return
            time.sleep(BREATH)  # else a waiting thread may not be quick enough to get the lock


_LEDGERS: weakref.WeakSet[Ledger] = weakref.WeakSet()


def waiting_now() -> list[Wait]:
    """Say who waits in this process, and why: those who wait longest first. Costs some microseconds for each of them.

    Whether a create waits is known for enforced namespaces alone.
    """
    waits = [wait for ledger in list(_LEDGERS) for wait in ledger.waiting_now()]
    return sorted(waits, key=lambda wait: -wait.waited)


def _renew_all() -> None:
    for ledger in list(_LEDGERS):
        ledger.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
