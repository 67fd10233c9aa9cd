"""The part of the ledger that gangs ask: they join the line here, draw, give back, and are told what became of them."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from backoff_ctrl.engine.errors import GangError
from backoff_ctrl.engine.gangs import Draw, GivenBack, Grant, Look, Reservation
from backoff_ctrl.engine.tickets import Refusal
from backoff_ctrl.k8s.charges.remembered import remembered_footprint
from backoff_ctrl.k8s.gate.locked_engine import LockedEngine

from .expected import Expected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backoff_ctrl.engine.controller import Controller
    from backoff_ctrl.engine.demand import Demand
    from backoff_ctrl.engine.requests import Request
    from backoff_ctrl.engine.seats import Identity
    from backoff_ctrl.k8s.creates.creation import Creation
    from backoff_ctrl.k8s.gate.waiters import Waiter

    from .admitted import AdmittedGang
    from .expected import Expectation

log = logging.getLogger(__name__)


class GangDesk(LockedEngine):
    """An engine behind a lock, with gangs."""

    on_gang: Callable[[str], object] | None = None
    """Called with a namespace where others make members of a gang: watch its pods for what ``look_for`` says."""

    def _begin(self) -> None:
        self._expected = Expected()  # a new engine, after an internal error or a fork, knows no gang
        super()._begin()

    def know(self, gang: AdmittedGang) -> None:
        """Expect the pods that others are to make for an admitted gang."""
        if gang.asked.pods_made:
            self._expected.add(gang)
            self._tell_watch(gang)

    def root_stored(self, gang: AdmittedGang, manifest: Mapping[str, Any], resource: str) -> None:
        """Note an object that a gang created, as it is stored: the pods that it owns are of that gang."""
        self._expected.stored(gang, manifest, resource, self.timers.now())
        self._tell_watch(gang)

    def _tell_watch(self, gang: AdmittedGang) -> None:
        if self.on_gang is not None:
            self.on_gang(gang.namespace)

    def look_for(self, namespace: str) -> Expectation | None:
        """Say which pods of gangs are to be looked for in a namespace; None: none."""
        return self._expected.look_for(namespace, self.timers.now())

    def label_of(self, uid: str) -> str | None:
        """Return the label of the gang that created the object with this uid; None: no gang did."""
        return self._expected.label_of(uid)

    def member_seen(self, label: str, uid: str, manifest: Mapping[str, Any]) -> None:
        """Report a pod of the gang with this label, with its manifest as it is stored."""
        gang = self._expected.of_label(label)
        if gang is None or not uid or not self.appeared(gang, uid, manifest, "pods"):
            return
        if gang.made:
            self._expected.drop(gang)
            self.give_back_gang(gang)  # of what is left nobody can say whether it was made

    def reserve(self, request: Reservation, waiter: Waiter, *, standing: bool) -> None:
        """Put a gang in line. The waiter is called back, perhaps before this returns."""
        self._act(lambda engine, now: engine.reserve(request, now, standing=standing), request, waiter)

    def member(self, creation: Creation, number: str, demand: Demand, flow: str) -> Request | None:
        """Describe a create as a draw of its gang; None: it is no member of it, or none is left."""
        with self._lock:
            return creation.gang.member(number, demand, flow, self.controller)  # type: ignore[no-any-return]

    def stand(self, request: Request, waiter: Waiter, identity: Identity | None = None) -> None:
        """Put a request in line; draw it if it is a gang's. The waiter is called back, perhaps before this returns."""
        if isinstance(request, Draw):
            self._act(partial(self._draw, request), request, waiter)
        else:
            super().stand(request, waiter, identity)

    def _draw(self, draw: Draw, engine: Controller, now: float) -> None:
        try:
            engine.draw(draw, now)
        except GangError as error:  # another thread drew the last member meanwhile
            self._call_back(Refusal(draw, "given-back", str(error)))

    def give_back_gang(self, gang: AdmittedGang) -> None:
        """End a gang: what is undrawn is no longer reserved."""

        def give_back(engine: Controller, now: float) -> None:
            if gang.gang is not None and engine is gang.engine:
                engine.give_back(gang.gang, now)

        self._act(give_back)

    def appeared(self, gang: AdmittedGang, uid: str, manifest: Mapping[str, Any], resource: str) -> bool:
        """Report a member of a gang that somebody else created; say whether it counts as one."""
        try:
            charged = remembered_footprint(manifest, resource)
        except Exception as error:  # noqa: BLE001 - law 18: it only helps
            self.failed_open(error)
            return False

        def note(engine: Controller, now: float) -> bool:
            return gang.gang is not None and engine is gang.engine and engine.appeared(gang.gang, uid, charged, now)

        return bool(self._act(note))

    def looked(self, namespace: str, *, readable: bool | None) -> None:
        """Report how a read of the quotas ended that a gang waits for; None: it failed."""
        self._act(lambda engine, now: engine.looked(namespace, now, readable=readable))

    # -- what the engine says, with the lock held ---------

    def _call_back_gang(self, effect: Grant | GivenBack | Look) -> None:
        if isinstance(effect, Look):
            self._find_reader(effect.namespace)
        elif isinstance(effect, Grant):
            self._granted(effect, self._waiters.get(effect.request))
            self._waiters.pop(effect.request, None)  # last: if a Ctrl-C comes before, it goes on ungated
        else:
            log.warning(
                "gang %s of namespace %s: %d of its members were drawn, then none for %g s; what was reserved for the "
                "other %d is given back",
                effect.gang.id,
                effect.gang.namespace,
                effect.drawn,
                effect.gang.limit,
                effect.undrawn,
            )

    def _granted(self, grant: Grant, waiter: Any) -> None:
        if waiter is not None:
            self.owed.add(waiter, partial(waiter.granted, grant.gang, self.controller))
        else:  # it left between the decision and now
            self.owed.add(None, partial(self._act, lambda engine, now: engine.give_back(grant.gang, now)))

    def _find_reader(self, namespace: str) -> None:
        """Let a gang that waits read the quotas of its namespace; the engine hears how that ended."""
        gangs: list[Any] = [
            waiter
            for request, waiter in self._waiters.items()
            if isinstance(request, Reservation) and request.namespace == namespace
        ]
        reader = next((gang for gang in gangs if gang.reads_quotas), None)
        if reader is not None:
            self.owed.add(None, reader.read_quotas)
        else:
            readable = False if gangs else None  # None: all have left meanwhile
            self.owed.add(None, partial(self.looked, namespace, readable=readable))
