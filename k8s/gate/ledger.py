"""The one ledger of a process and API server: a controller behind a lock, shared by every gate and client.

Nothing here blocks: callers hand in what happened, and the effects are called back once the lock is free.
What fails open: an error inside the engine lets every waiting create through as it is, is counted, and is logged
once; the engine then starts anew and learns again. What fails closed: nothing.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import threading
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.demand import Demand
from backoff_ctrl.engine.errors import TicketError
from backoff_ctrl.engine.outcomes import Abandoned, Outcome, Rejected
from backoff_ctrl.engine.requests import Request
from backoff_ctrl.engine.tickets import Refusal, Ticket
from backoff_ctrl.k8s.charges.footprint import FootprintError
from backoff_ctrl.k8s.charges.remembered import remembered_footprint

from .closing import cancel_all
from .first_list import FirstContact, quotas_of
from .modes import mode_of
from .waiters import Counts, Held, Trial, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backoff_ctrl.engine.explaining import Explanation, Snapshot
    from backoff_ctrl.engine.memory import Memory
    from backoff_ctrl.engine.policy import Policy
    from backoff_ctrl.engine.quotas import ObservedQuota
    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.conversation import Creation

    from .driver import Errand
    from .modes import Mode
    from .stories import Listener
    from .timers import Timers

LEVEL_HEADER = "X-Kubernetes-Pf-Prioritylevel-Uid"
LEVELS_MAX = 4096
ENDS = ""  # what is told of a namespace beside its quotas; none of them has an empty name

log = logging.getLogger(__name__)


class Desk:
    """The shared ledger. Its methods are safe from any thread."""

    def __init__(
        self,
        timers: Timers,
        policy: Policy,
        mode: Mode | Mapping[str, Mode] | Callable[[str], Mode],
        rng: random.Random | None,
    ) -> None:
        """Open with an empty line. ``mode`` is one for all, by namespace (``"*"`` for the others), or a function."""
        self.timers = timers
        self.policy = policy
        self.on_namespace: Callable[[str], object] | None = None  # told of namespaces that wait for a quota
        self.on_story: Listener | None = None  # told what waits for longer, gets in then, or never fits
        self.contact: FirstContact | None = None  # who reads the quotas of a namespace first; None: nobody does
        self.on_renew: Callable[[], object] | None = None  # called in a forked child: threads have to be made anew
        self._mode = mode_of(mode)
        self._rng = rng
        self.renew()
        timers.on_exit = lambda: cancel_all(self.under_way(), "Python is ending")
        _DESKS.add(self)

    def renew(self) -> None:
        """Begin anew: after a fork the child has no waiters, and a lock that may be held for ever."""
        self._lock = threading.Lock()
        self.timers.renew()
        self._ids = itertools.count(1)
        self.counts = Counts()
        self._logged: set[str] = set()
        self.contact = None if self.contact is None else FirstContact(self.policy.idle_ttl / 2)
        self._levels: dict[tuple[str, str, str], str] = {}
        self._errands: dict[Errand, None] = {}
        self._calls: deque[Callable[[], None]] = deque()
        if self.on_renew is not None:
            self.on_renew()
        self._alarm: tuple[float, Callable[[], object]] | None = None
        self._told: dict[tuple[str | None, str | None], Callable[[Controller, float], None]] = {}
        self._begin()

    def _begin(self) -> None:
        # Jitter that is the same in every process would be no jitter: the engine's own default is for tests.
        self.controller = Controller(self.policy, self._rng if self._rng is not None else random.Random())
        self._waiters: dict[Request, Waiter] = {}

    def _retell(self) -> None:
        """Tell a new engine what the last one had been told: the watch goes on and will not say it again."""
        now = self.timers.now()
        told = list(self._told.items())
        try:
            for _, news in sorted(told, key=lambda item: item[0][1] is None):  # quotas first, then that they are all
                news(self.controller, now)
        except Exception as error:  # noqa: BLE001 - what was told may be what it fails on: learn instead
            self._count_failure(error)
            self._told.clear()
            self._begin()

    def mode(self, namespace: str) -> Mode:
        """Return the mode of a namespace."""
        return self._mode(namespace)

    # -- creates ---------

    def request(self, creation: Creation) -> Request:
        """Describe a create to the engine. A manifest that cannot be read asks nothing: the server will say why."""
        try:
            demand = remembered_footprint(creation.body, creation.resource)
        except FootprintError:
            demand = Demand({})
        except Exception as error:  # noqa: BLE001 - law 18: the create passes, the error is counted and logged
            self.failed_open(error)
            demand = Demand({})
        level = self._levels.get((creation.server, creation.credential, creation.resource), "")
        flow = f"{creation.server}|{creation.credential}|{level}"
        return Request(f"create-{next(self._ids)}", creation.namespace, demand, priority=creation.priority, flow=flow)

    def stand(self, request: Request, waiter: Waiter) -> None:
        """Stand in line; the waiter is called back, perhaps before this returns."""

        def submit(engine: Controller, now: float) -> None:
            self._waiters[request] = waiter
            engine.submit(request, now)

        self._act(submit)

    def settle(self, held: Held, outcome: Outcome, *, waiter: Waiter | None = None) -> bool:
        """End a ticket. With a waiter a refused or postponed request stands in line again (True), else it leaves."""
        back: list[bool] = []

        def settle(engine: Controller, now: float) -> None:
            if held.engine is not engine:
                return
            request = held.ticket.request
            if waiter is not None:  # in line before the engine is asked: if that fails, it is let through
                self._waiters[request] = waiter
                back.append(True)
            try:
                engine.settle(held.ticket, outcome, now)
            except TicketError:
                self.counts.late += 1  # the engine had given it up: ticket_max
            if waiter is None:
                engine.withdraw(request, now)
            elif request.state == "over":
                del self._waiters[request]
                back.clear()

        self._act(settle)
        return bool(back)

    def leave(self, request: Request) -> None:
        """Leave the line, if still in it."""

        def withdraw(engine: Controller, now: float) -> None:
            self._waiters.pop(request, None)
            engine.withdraw(request, now)

        self._act(withdraw)

    def shadow(self, creation: Creation) -> Held | None:
        """Admit in any case, but count what enforcing would have done. None: the engine failed."""
        request, trial = self.request(creation), Trial(self)
        self.stand(request, trial)
        self.leave(request)
        if (held := trial.close()) is not None:
            return held
        with self._lock:
            self.counts.shadow_waits += 1
        return self.force(self.request(creation))

    def force(self, request: Request) -> Held | None:
        """Admit ungated; the outcome teaches all the same. None: the engine failed."""
        held: list[Held] = []
        self._act(lambda engine, now: held.append(Held(engine.force(request, now), engine)))
        return held[0] if held else None

    def saw(self, creation: Creation, answer: Answer, lane: str | None) -> None:
        """Count an answer to a create, and learn the priority level that it was served under."""
        level = answer.headers.get(LEVEL_HEADER) or answer.headers.get(LEVEL_HEADER.lower())
        with self._lock:
            self.counts.sent += 1
            self.counts.admitted += answer.ok
            if lane is not None:
                self.counts.refused[lane] += 1
            if level and len(self._levels) < LEVELS_MAX:
                self._levels[creation.server, creation.credential, creation.resource] = level

    def count_passed(self) -> None:
        """Count a create that goes ungated by its namespace's mode."""
        with self._lock:
            self.counts.passed += 1

    # -- what is under way: each line is one step of the dict, which needs no lock ---------

    def track(self, errand: Errand) -> None:
        """Keep sight of a create."""
        self._errands[errand] = None

    def untrack(self, errand: Errand) -> None:
        """Lose sight of a create."""
        self._errands.pop(errand, None)

    def under_way(self) -> list[Errand]:
        """Return the creates that are not answered yet."""
        return list(self._errands)

    def close(self) -> None:
        """Cancel what waits, and say what that was."""
        cancel_all(self.under_way(), "the gate was closed")

    # -- news ---------

    def observe_quota(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        """Tell the engine what a ResourceQuota says now."""
        self._tell((namespace, quota), lambda engine, now: engine.observe_quota(namespace, quota, seen, now))

    def forget_quota(self, namespace: str, quota: str) -> None:
        """Tell the engine that a ResourceQuota is gone."""
        self._told.pop((namespace, quota), None)
        self._act(lambda engine, now: engine.forget_quota(namespace, quota, now))

    def read(self, namespace: str, answer: Answer) -> None:
        """Tell the engine what a list of the namespace's quotas says; an answer that is no such list tells nothing."""
        try:
            for name, seen in quotas_of(answer):
                self.observe_quota(namespace, name, seen)
        except Exception as error:  # noqa: BLE001 - law 18: what only helps must not stop a create
            self.failed_open(error)

    def watching(self, namespace: str | None) -> None:
        """Tell the engine that all quotas of the namespace (None: of all) were told and changes will be."""
        self._tell((namespace, None), lambda engine, now: engine.watching(now, namespace))

    def watch_lost(self, namespace: str | None) -> None:
        """Tell the engine that changes may be missed from now on."""
        self._tell((namespace, None), lambda engine, now: engine.watch_lost(now, namespace))
        if (None, None) not in self._told:  # a new engine begins so: namespaces come and go, and are not kept
            self._told.pop((namespace, None), None)

    def _tell(self, about: tuple[str | None, str | None], news: Callable[[Controller, float], None]) -> None:
        self._told.pop(about, None)  # a new engine is told in the order in which this one was
        self._told[about] = news
        self._act(news)

    def ends_told(self, namespace: str, *, told: bool) -> None:
        """Tell the engine that the end of every pod of the namespace will be told, or that some may be missed."""
        if told:
            self._tell((namespace, ENDS), lambda engine, now: engine.ends_told(namespace, now, told=True))
        else:
            self._told.pop((namespace, ENDS), None)
            self._act(lambda engine, now: engine.ends_told(namespace, now, told=False))

    def ended(self, namespace: str, uid: str) -> None:
        """Tell the engine that a pod ended."""
        self._act(lambda engine, now: engine.ended(namespace, uid, now))

    def hint_release(self, namespace: str) -> None:
        """Tell the engine that something of ours ended or went."""
        self._act(lambda engine, now: engine.hint_release(namespace, now))

    def learn(self, namespace: str, scopes: frozenset[str], refusal: Rejected, sent: float) -> None:
        """Tell the engine of a refusal seen on a path that is not gated."""
        self._act(lambda engine, now: engine.learn(namespace, scopes, refusal, sent, now))

    def recall(self, memory: Memory) -> None:
        """Tell the engine what an earlier process knew."""
        self._act(lambda engine, now: engine.recall(memory, now))

    # -- questions ---------

    def remember(self) -> Memory | None:
        """Return what is worth keeping over a restart; None: the engine failed."""
        with self._lock:
            try:
                return self.controller.remember(self.timers.now())
            except Exception as error:  # noqa: BLE001 - law 18: what only helps must not stop anything
                self._count_failure(error)
                return None

    def explain(self, request: Request) -> Explanation | None:
        """Say why a request waits."""
        with self._lock:
            return self.controller.explain(request, self.timers.now())

    def snapshot(self) -> Snapshot:
        """Show everything that is known."""
        with self._lock:
            return self.controller.snapshot(self.timers.now())

    # -- the engine, locked ---------

    def _act(self, do: Callable[[Controller, float], None]) -> None:
        with self._lock:
            try:
                now = self.timers.now()
                do(self.controller, now)
                for effect in self.controller.advance(now):
                    self._calls.extend(self._call(effect))
                if self.on_namespace is not None:
                    self._calls.extend(partial(self._meet, namespace) for namespace in self.controller.take_blocked())
                self._arm(self.controller.next_deadline())
            except Exception as error:  # noqa: BLE001 - law 18: a bug of ours never stops a platform
                self._count_failure(error)
                self._calls.extend(waiter.opened for waiter in self._waiters.values())
                self._begin()
                self._retell()
            self.counts.waiting = len(self._waiters)
        while self._calls:  # shared: what a Ctrl-C leaves undone here, the next act does
            try:
                call = self._calls.popleft()
            except IndexError:  # another thread was faster
                break
            call()

    def _call(self, effect: Ticket | Refusal) -> list[Callable[[], None]]:
        waiter = self._waiters.pop(effect.request, None)
        if isinstance(effect, Refusal):
            return [] if waiter is None else [lambda: waiter.refused(effect)]
        held = Held(effect, self.controller)
        if waiter is None:  # it left between the decision and now
            return [lambda: self._give_back(held)]
        return [lambda: waiter.admitted(held)]

    def _give_back(self, held: Held) -> None:
        self.settle(held, Abandoned())

    def _arm(self, deadline: float | None) -> None:
        """Be called at the deadline. One alarm at a time; a later one fires early and does no harm."""
        if deadline is None or (self._alarm is not None and self._alarm[0] <= deadline):
            return
        if self._alarm is not None:
            self._alarm[1]()
        self._alarm = (deadline, self.timers.call_at(deadline, self._ring))

    def _ring(self) -> None:
        with self._lock:
            self._alarm = None
        self._act(lambda _, __: None)

    def failed_open(self, error: BaseException) -> None:
        """Count an error of ours that let a create through."""
        with self._lock:
            self._count_failure(error)

    def _count_failure(self, error: BaseException) -> None:
        self.counts.failed_open += 1
        kind = f"{type(error).__name__}: {error}"
        if kind not in self._logged and len(self._logged) < 100:
            self._logged.add(kind)
            log.error(
                "an internal error: creates pass ungated until the gate has started anew (logged once)",
                exc_info=error,
            )

    def _meet(self, namespace: str) -> None:
        """Say where a quota is in the way: to watch quotas that are not costs a busy server and us for nothing."""
        hook = self.on_namespace
        if hook is None:  # nobody watches any more
            return
        try:
            hook(namespace)
        except Exception as error:  # noqa: BLE001 - law 18: what only helps must not stop a create
            self.failed_open(error)


_DESKS: weakref.WeakSet[Desk] = weakref.WeakSet()


def _renew_all() -> None:
    for desk in list(_DESKS):
        desk.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
