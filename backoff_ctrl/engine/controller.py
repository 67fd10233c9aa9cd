"""All namespaces: the engine as its callers see it. Events and times go in, admissions and refusals come out.

Call ``advance`` after every other call, and at ``next_deadline()``; send the creates of the tickets it returns. What is
done in one namespace is done by its handler, or its gangs: ``of`` and ``gangs_of`` hand them out. The controller is not
thread-safe: its owner guards it, and them, with one lock.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from backoff_ctrl.engine.facts.ceilings import NO_FACT
from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.outcomes import Outcome, Rejected
from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.engine.facts.requests import Identity, Request
from backoff_ctrl.engine.facts.roll import place_of
from backoff_ctrl.engine.gangs.gang import Effect
from backoff_ctrl.engine.look.explaining import Explanation, NamespaceSnapshot, Snapshot, explain, namespace_snapshot
from backoff_ctrl.engine.look.looking import Tally, tally
from backoff_ctrl.engine.look.memory import Memory, recall, remember
from backoff_ctrl.engine.look.outlook import NOTHING_ELSEWHERE, Outlook, nothing_known, outlook
from backoff_ctrl.engine.look.pages import Changes, Cursor, MemoryPage, NamespacePage, Register, WaitingPage

from .backoff import FOREVER
from .gang_admission import GangAdmission
from .handler import ComputeResourceAwareBackOffHandler
from .overload import WindowSnapshot, Woken
from .policy import Policy
from .shared import Shared
from .tickets import Ticket

EXPIRE_STEPS: Final = 60
"""Idle namespaces are forgotten in slices of so many steps of about 10 us, since others wait for the controller."""
EXPIRE_PAUSE: Final = 0.01
"""Seconds between two slices: 10,000 namespaces take a few seconds in all."""
ROWS_LOOKED_AT: Final = 100
"""Rows of a line whose reasons are counted at a time: 2 us each."""


class Controller:
    """Admission and back-off for every namespace of one API server.

    Times are seconds of any monotonic clock; a ``now`` earlier than the last one is replaced by the last one. The same
    calls with the same ``rng`` give the same answers.
    """

    def __init__(self, policy: Policy | None = None, rng: random.Random | None = None, sequence: int = 0) -> None:
        """Start without any knowledge. Without ``rng`` the jitter comes from ``random.Random(0)``.

        ``sequence``: that of the controller that this one replaces, for those who follow the changes.
        """
        self.policy = policy if policy is not None else Policy()
        self._handlers: dict[str, ComputeResourceAwareBackOffHandler] = {}
        self._register = Register(self._handlers, sequence)
        self._shared = Shared(
            self.policy, rng or random.Random(0), self._wake, self.policy.settle_time, self._register.touch
        )
        self._contended = self._shared.contended
        self._alarms: list[tuple[float, int, Woken]] = []
        self._count = 0
        self._watching_all = False
        self._watched: dict[str, bool] = {}  # where that differs from all others
        self._watch_changed_at = NO_FACT  # when the watch of all namespaces began or was lost
        self._ends_told: dict[str, None] = {}
        self._halted: dict[str, None] = {}
        self._expire_at = FOREVER
        self._to_expire: list[str] = []  # namespaces that are yet to be looked at, the next one last
        self._due_at = FOREVER  # the next alarm or expiry: ``advance`` returns at once before it

    def of(self, namespace: str) -> ComputeResourceAwareBackOffHandler:
        """Return the handler of a namespace, to do something there; the first time, make it."""
        handler = self._handlers.get(namespace)
        if handler is None:
            return self._make(namespace)
        if handler.seen:
            self._register.touch(handler)
        return handler

    def gangs_of(self, namespace: str) -> GangAdmission:
        """Return the gangs of a namespace, to do something with them; the first time, make them."""
        return self.of(namespace).ensure_gangs()

    def submit(self, request: Request, now: float, identity: Identity | None = None) -> None:
        """Add a new request; ``advance`` returns its ticket or refusal in time. ``TicketError`` if it is not new.

        With an ``identity`` it takes the seat that the same caller left for the same, else the oldest one that this
        caller left for an equal demand, if there is any: its place in line and its count of overtakings.
        """
        shared = self._shared
        if now < shared.now:
            now = shared.now
        else:
            shared.now = now
        handler = self._handlers.get(request.namespace)
        if handler is None:
            handler = self._make(request.namespace)
        elif handler.seen:
            self._register.touch(handler)
        if identity is None or not handler.reclaim_seat(request, identity, now):
            handler.submit(request, now)

    def settle(self, ticket: Ticket, outcome: Outcome, now: float) -> None:
        """Report how a ticket's create ended. ``TicketError`` if the ticket was settled before.

        The end of a ticket that the engine gave up before (after ``Policy.ticket_max``) is ignored; its namespace may
        even be forgotten by now.
        """
        shared = self._shared
        if now < shared.now:
            now = shared.now
        else:
            shared.now = now
        if ticket.ended:
            ticket.end_again()
            return
        handler = self._handlers[ticket.request.namespace]
        if handler.seen:
            self._register.touch(handler)
        handler.settle(ticket, outcome, now)

    def observe_quota(
        self, namespace: str, quota: str, seen: ObservedQuota, now: float, sent: float | None = None
    ) -> bool:
        """Note a quota object; say whether it was believed.

        What a watch reports, its list included, is always believed: call in the order of the watch. ``sent`` dates the
        answer to a list that belongs to no watch: it is ignored where the quotas are watched, or if it was requested
        before the newest fact about this quota was received.
        """
        now = self._shared.clock(now)
        return self.of(namespace).observe(quota, seen, now, sent)

    def forget_quota(self, namespace: str, quota: str, now: float) -> None:
        """Note that a quota object was deleted."""
        now = self._shared.clock(now)
        if namespace in self._handlers:
            self.of(namespace).forget(quota, now)

    def watching(self, now: float, namespace: str | None = None) -> None:
        """Note that all quotas (of one namespace, or of all) were reported, and that changes will be."""
        self._set_watch(now, namespace, healthy=True)

    def watch_lost(self, now: float, namespace: str | None = None) -> None:
        """Note that changes are no longer reported: what is known ages, and probes test for room again."""
        self._set_watch(now, namespace, healthy=False)

    def hint_release(self, namespace: str, now: float) -> None:
        """Note that an own pod ended: this adds no headroom, but is a reason to probe soon."""
        now = self._shared.clock(now)
        if namespace in self._handlers:
            self.of(namespace).hint(now)

    def ended(self, namespace: str, stored: str, now: float) -> None:
        """Note the end of an own object, by the name in its ``Created``: one less that lives, and a hint of room.

        The room of a gang's member goes back to the gang, if that keeps it. Any order with quotas is right.
        """
        now = self._shared.clock(now)
        if namespace in self._handlers:
            self.of(namespace).ended(stored, now)

    def ends_told(self, namespace: str, now: float, *, told: bool) -> None:
        """Note that from now on every end in a namespace is reported (``told``), or that some may be missed."""
        now = self._shared.clock(now)
        if told:
            self._ends_told[namespace] = None
        else:
            self._ends_told.pop(namespace, None)
        if namespace in self._handlers:
            self.of(namespace).follow_ends(now, told=told)

    def learn(self, namespace: str, scopes: frozenset[str], rejected: Rejected, sent: float, now: float) -> None:
        """Learn from the quota refusal of an ungated create that was sent at ``sent``."""
        now = self._shared.clock(now)
        self.of(namespace).learn(rejected, scopes, sent, now)

    def advance(self, now: float) -> list[Effect]:
        """Do all that is due by ``now``; return the admissions, refusals and news of gangs since the last call."""
        shared = self._shared
        if now < shared.now:
            now = shared.now
        else:
            shared.now = now
        if now >= self._due_at or self._contended:
            self._do_due(now)
        effects = shared.effects
        if not effects:
            return []
        shared.effects = []
        return effects

    def take_blocked(self) -> list[str]:
        """Return, once each, the namespaces blocked by a quota whose changes are not reported: watch them."""
        blocked = self._shared.blocked
        if not blocked:
            return []
        taken = list(blocked)
        blocked.clear()
        return taken

    def next_deadline(self) -> float | None:
        """Return when ``advance`` is due next if no other call comes before, or None."""
        while self._alarms and self._alarms[0][0] != self._alarms[0][2].wake_at:
            heapq.heappop(self._alarms)
        at = min(self._alarms[0][0] if self._alarms else FOREVER, self._expire_at)
        for window in self._shared.contended:
            at = min(at, max(window.not_before, self._shared.now) if window.has_room() else FOREVER)
        return None if at == FOREVER else at

    def recall(self, memory: Memory, now: float) -> None:
        """Take over what an earlier controller knew; call before the first create. Newer knowledge stays as it is."""
        now = self._shared.clock(now)
        self._shared.settle_time = min(self.policy.settle_max, max(self.policy.settle_time, memory.settle_time))
        for namespace, quotas in memory.quotas.items():
            handler = self.of(namespace)
            if recall(handler.knowledge, quotas, self.policy.idle_ttl, now):
                handler.pace.start_slowly()

    # -- what operators do ---------

    def halt(self, namespace: str, now: float) -> None:
        """Admit no request of a namespace until ``resume``: they wait. Limits of waiting go on; ``force`` is not held.

        The halt holds for a namespace that is forgotten meanwhile, or not yet known.
        """
        now = self._shared.clock(now)
        self._halted[namespace] = None
        self.of(namespace).halt(now, halted=True)

    def resume(self, namespace: str, now: float) -> None:
        """End a halt: requests that fit are admitted, in order."""
        now = self._shared.clock(now)
        if self._halted.pop(namespace, False) is None:
            self.of(namespace).halt(now, halted=False)

    def is_halted(self, namespace: str) -> bool:
        """Say whether a namespace is halted."""
        return namespace in self._halted

    def halted(self) -> list[str]:
        """Return the halted namespaces."""
        return list(self._halted)

    # -- for those who look; ``pages`` says what that costs ---------

    @property
    def sequence(self) -> int:
        """The number of the newest change of any namespace."""
        return self._register.sequence

    @property
    def size(self) -> int:
        """How many namespaces are known."""
        return len(self._handlers)

    @property
    def settle_time(self) -> float:
        """How long room settles at present, in seconds."""
        return self._shared.settle_time

    def names(self) -> list[str]:
        """Return the names of all namespaces, in the order in which they became known: 10,000 take 50 us."""
        return list(self._handlers)

    def is_watched(self, namespace: str) -> bool:
        """Say whether all quotas of the namespace are known, and their changes reported."""
        return self._watched.get(namespace, self._watching_all)

    def namespace(self, name: str, now: float) -> NamespaceSnapshot | None:
        """Show one namespace; None: it is unknown."""
        now = self._shared.clock(now)
        handler = self._handlers.get(name)
        return None if handler is None else namespace_snapshot(handler, now)

    def explain(self, request: Request, now: float) -> Explanation | None:
        """Explain why a request waits; None if it does not wait."""
        now = self._shared.clock(now)
        if request.state != "waiting":
            return None
        handler = self._handlers[request.namespace]
        return explain(handler, request, handler.line.ahead(place_of(request)), self._shared, now)

    def outlook(
        self,
        name: str,
        wanted: Iterable[tuple[Demand, int]],
        now: float,
        elsewhere: Mapping[tuple[str, str], int] = NOTHING_ELSEWHERE,
    ) -> Outlook:
        """Say what would happen to creates in a namespace that come now, each demand so many times.

        ``elsewhere`` is what other gates hold and reserve there, by quota and resource.
        """
        now = self._shared.clock(now)
        handler = self._handlers.get(name)
        if handler is None:
            return nothing_known(observing=self.is_watched(name))
        return outlook(handler, wanted, now, elsewhere)

    def tally(self, name: str, row: int, now: float) -> tuple[Tally, int | None]:
        """Count who waits why and for what in a namespace, from this row of its line on; say with which row to go on.

        Start with row 0; None: that was the last one.
        """
        now = self._shared.clock(now)
        handler = self._handlers.get(name)
        if handler is None:
            return Tally(Counter(), Counter()), None
        return tally(handler, self._shared, row, ROWS_LOOKED_AT, now)

    def page(self, after: str | None, limit: int, now: float) -> NamespacePage:
        """Show up to ``limit`` namespaces (fewer if they are large) by name, from behind ``after`` on.

        A namespace that exists all the while is on exactly one page.
        """
        return self._register.page(after, limit, self._shared.clock(now))

    def changes(self, since: int, limit: int, now: float) -> Changes:
        """Show up to ``limit`` namespaces (fewer if they are large) that have changed after the change ``since``.

        Start with 0 for all; then ask with ``upto`` of the answer before.
        """
        return self._register.changes(since, limit, self._shared.clock(now))

    def waiting(self, after: Cursor | None, limit: int, now: float, namespace: str | None = None) -> WaitingPage:
        """Show up to ``limit`` waiting requests, of one namespace or of all, from behind ``after`` on.

        A page before the last one may have fewer, or be empty. Who waits all the while is on exactly one page.
        """
        return self._register.waiting(after, limit, self._shared.clock(now), namespace, self._shared)

    def flows(self, now: float) -> dict[str, WindowSnapshot]:
        """Show the overload windows."""
        now = self._shared.clock(now)
        return {name: window.snapshot(now) for name, window in self._shared.flows.items()}

    def snapshot(self, now: float) -> Snapshot:
        """Show all namespaces at once, which takes long where there are many: see ``page``."""
        now = self._shared.clock(now)
        shown = {name: namespace_snapshot(handler, now) for name, handler in self._handlers.items()}
        return Snapshot(shown, self.flows(now), self.settle_time)

    def remember_page(self, after: str | None, limit: int, now: float) -> MemoryPage:
        """Return what ``remember`` does, for up to ``limit`` namespaces from behind ``after`` on."""
        return self._register.remember(after, limit, self._shared.clock(now), self.settle_time)

    def remember(self, now: float) -> Memory:
        """Return what is known of quotas, for ``recall`` by the controller of a later process.

        This takes long where there are many namespaces: see ``remember_page``.
        """
        now = self._shared.clock(now)
        known = {name: remember(handler.knowledge, now) for name, handler in self._handlers.items()}
        return Memory({name: quotas for name, quotas in known.items() if quotas}, self.settle_time)

    # -- inside ---------

    def _make(self, namespace: str) -> ComputeResourceAwareBackOffHandler:
        observing = self._watched.get(namespace, self._watching_all)
        told = namespace in self._ends_told
        handler = ComputeResourceAwareBackOffHandler(namespace, self._shared, observing=observing, ends_told=told)
        handler.knowledge.undated_at = self._watch_changed_at
        handler.pace.halted = namespace in self._halted
        self._handlers[namespace] = handler
        self._register.enter(handler)
        self._expire_at = min(self._expire_at, self._shared.now + self.policy.idle_ttl)
        self._due_at = min(self._due_at, self._expire_at)
        return handler

    def _set_watch(self, now: float, namespace: str | None, *, healthy: bool) -> None:
        now = self._shared.clock(now)
        if namespace is None:
            self._watching_all = healthy
            self._watch_changed_at = now
            self._watched.clear()
            for handler in self._handlers.values():
                handler.watch(healthy=healthy, now=now)
        else:
            if healthy == self._watching_all:
                self._watched.pop(namespace, None)  # as all others: short-lived namespaces leave no entry behind
            else:
                self._watched[namespace] = healthy
            self.of(namespace).watch(healthy=healthy, now=now)

    def _wake(self, handler: Woken, at: float) -> None:
        if at < handler.wake_at:
            handler.wake_at = at
            self._count += 1
            heapq.heappush(self._alarms, (at, self._count, handler))
            if at < self._due_at:  # noqa: PLR1730 - each refusal comes here
                self._due_at = at

    def _prune_alarms(self) -> None:
        """Drop alarms that were replaced by earlier ones: each handler needs one only."""
        self._alarms = [alarm for alarm in self._alarms if alarm[0] == alarm[2].wake_at]
        heapq.heapify(self._alarms)

    def _do_due(self, now: float) -> None:
        """Wake the handlers whose alarm is due, then give out turns, then forget what is idle."""
        alarms = self._alarms
        due = []
        while alarms and alarms[0][0] <= now:
            at, _, handler = heapq.heappop(alarms)
            if at == handler.wake_at:
                handler.wake_at = FOREVER
                due.append(handler)
        if len(alarms) > 64 + 4 * len(self._handlers):
            self._prune_alarms()
        for handler in due:
            handler.advance(now)
        self._take_turns(now)
        if self._expire_at == NO_FACT:  # ``of`` made the first namespace before any time was told
            self._expire_at = now + self.policy.idle_ttl
        if now >= self._expire_at:
            self._expire(now)
        self._due_at = min(self._alarms[0][0] if self._alarms else FOREVER, self._expire_at)

    def _take_turns(self, now: float) -> None:
        """Let the waiting namespaces send through each contended overload window, one create each in turn."""
        for window in list(self._shared.contended):
            while window.turns and window.is_open(now):
                handler = next(iter(window.turns))
                handler.take_turn(window, window.turns.pop(handler), now)
            if not window.turns:
                del self._shared.contended[window]

    def _expire(self, now: float) -> None:
        """Forget idle namespaces, and idle shapes and learned ceilings of the others: a few, and the rest soon."""
        limit = now - self.policy.idle_ttl
        left = self._to_expire = self._to_expire or [*reversed(self._handlers)]
        steps = EXPIRE_STEPS
        while left and steps > 0:
            name = left.pop()
            handler = self._handlers[name]  # only expiry forgets one
            steps -= 1 + handler.knowledge.size + len(handler.knowledge.shapes)
            if handler.forget_idle(limit, now):
                del self._handlers[name]
                self._register.leave(handler)
                self._shared.blocked.pop(name, None)
                handler.wake_at = FOREVER
        if left:
            self._expire_at = now + EXPIRE_PAUSE
            return
        for name, window in list(self._shared.flows.items()):
            if window.in_flight == 0 and not window.turns and max(window.not_before, window.used_at) < limit:
                del self._shared.flows[name]
        self._expire_at = now + self.policy.idle_ttl / 2 if self._handlers else FOREVER
