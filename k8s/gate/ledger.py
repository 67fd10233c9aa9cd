"""The ledger of one process and API server, shared by every gate and client: creates, news and questions go here.

Nothing here blocks. What fails open, and how, is written in ``locked_engine``.
"""

from __future__ import annotations

import itertools
import os
import weakref
from typing import TYPE_CHECKING

from backoff_ctrl.engine.demand import Demand
from backoff_ctrl.engine.requests import Request
from backoff_ctrl.k8s.charges.footprint import FootprintError
from backoff_ctrl.k8s.charges.remembered import remembered_footprint

from .closing import cancel_all
from .first_list import FirstList, quotas_of
from .kept_news import POD_ENDS
from .locked_engine import LockedEngine
from .modes import mode_of
from .waiters import Held, Trial

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from backoff_ctrl.engine.explaining import Explanation, Snapshot
    from backoff_ctrl.engine.memory import Memory
    from backoff_ctrl.engine.outcomes import Rejected
    from backoff_ctrl.engine.policy import Policy
    from backoff_ctrl.engine.quotas import ObservedQuota
    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.creates.creation import Creation

    from .closing import Unfinished
    from .kept_news import News, Subject
    from .modes import Mode
    from .stories import Listener
    from .timers import Timers

LEVEL_HEADER = "X-Kubernetes-Pf-Prioritylevel-Uid"
LEVELS_MAX = 4096
"""Flows whose priority level is remembered."""


class Ledger(LockedEngine):
    """The shared ledger. Its methods are safe from any thread."""

    def __init__(
        self,
        timers: Timers,
        policy: Policy,
        mode: Mode | Mapping[str, Mode] | Callable[[str], Mode],
        rng: random.Random | None,
    ) -> None:
        """Open with an empty line. ``mode`` is one for all, by namespace (``"*"`` for the others), or a function."""
        self.on_story: Listener | None = None  # called when a create waits long, is created then, or never fits
        self.contact: FirstList | None = None  # decides who lists a namespace's quotas first; None: nothing does
        self.on_renew: Callable[[], object] | None = None  # called in a forked child, which has no threads
        self.mode = mode_of(mode)
        """Returns the mode of a namespace."""
        super().__init__(timers, policy, rng)
        timers.on_exit = lambda: cancel_all(self.under_way(), "Python is exiting")
        _LEDGERS.add(self)

    def renew(self) -> None:
        """Begin anew in a forked child: it has none of the waiters, and the lock may be held for ever."""
        self._ids = itertools.count(1)
        self.contact = None if self.contact is None else FirstList(self.policy.idle_ttl / 2)
        self._levels: dict[tuple[str, str, str], str] = {}
        self._under_way: dict[Unfinished, None] = {}
        super().renew()
        if self.on_renew is not None:
            self.on_renew()

    # -- creates ---------

    def request(self, creation: Creation) -> Request:
        """Describe a create to the engine. A manifest that can't be read demands nothing: the server will say why."""
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

    def shadow(self, creation: Creation) -> Held | None:
        """Admit a create in any case, but count whether it would have waited. None: the engine failed."""
        request, trial = self.request(creation), Trial(self._give_back)
        self.stand(request, trial)
        self.leave(request)
        if (held := trial.close()) is not None:
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
            if level and len(self._levels) < LEVELS_MAX:
                self._levels[creation.server, creation.credential, creation.resource] = level

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

    def close(self) -> None:
        """Cancel the creates that have not ended, and log which ones."""
        cancel_all(self.under_way(), "the gate was closed")

    # -- news ---------

    def observe_quota(self, namespace: str, quota: str, seen: ObservedQuota) -> None:
        """Report what a ResourceQuota says now."""
        self._report((namespace, quota), lambda engine, now: engine.observe_quota(namespace, quota, seen, now))

    def forget_quota(self, namespace: str, quota: str) -> None:
        """Report that a ResourceQuota was deleted."""
        self._news.drop((namespace, quota))
        self._act(lambda engine, now: engine.forget_quota(namespace, quota, now))

    def read(self, namespace: str, answer: Answer) -> None:
        """Report what a list of the namespace's quotas says; an answer that is no such list reports nothing."""
        try:
            for name, seen in quotas_of(answer):
                self.observe_quota(namespace, name, seen)
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

    def recall(self, memory: Memory) -> None:
        """Report what an earlier process knew."""
        self._act(lambda engine, now: engine.recall(memory, now))

    def _report(self, subject: Subject, news: News) -> None:
        self._news.keep(subject, news)
        self._act(news)

    # -- questions ---------

    def remember(self) -> Memory | None:
        """Return what is worth keeping over a restart; None: the engine failed."""
        with self._lock:
            try:
                return self.controller.remember(self.timers.now())
            except Exception as error:  # noqa: BLE001 - law 18: memory only helps, and must not stop anything
                self._count_failure(error)
                return None

    def explain(self, request: Request) -> Explanation | None:
        """Say why a request waits; None: it does not."""
        with self._lock:
            return self.controller.explain(request, self.timers.now())

    def snapshot(self) -> Snapshot:
        """Return everything that is known."""
        with self._lock:
            return self.controller.snapshot(self.timers.now())


_LEDGERS: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _renew_all() -> None:
    for ledger in list(_LEDGERS):
        ledger.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
