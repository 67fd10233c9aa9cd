"""The status of the quotas of every namespace, beside the true counts of what is in the store (the recount)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from backoff_ctrl.k8s.lab.sandbox.objects.kinds import EVENTS, PODS, QUOTAS, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.store import ADDED, DELETED, Event, Store
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, load

from .amounts import ZERO, Amount, amounts_of
from .charges import Charge, Requirement, applies, charge_of, freed_at, gives_back, matching_names, requirements_of


def _ignore(_namespace: str, _what: object) -> None:
    """The callback until the quota controller sets its own."""


class QuotaState:
    """One ResourceQuota, parsed. ``used`` and ``hard`` come from its status, which is all that admission uses."""

    __slots__ = ("_names", "actual", "hard", "name", "obj", "requirements", "spec_hard", "stale", "stale_until", "used")

    def __init__(self, obj: JSON) -> None:
        self.actual: dict[str, Amount] = {}
        self.stale: Mapping[str, Amount] | None = None
        self.stale_until = 0.0
        self.read(obj)

    def read(self, obj: JSON) -> None:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        self.obj = obj
        self.name: str = obj["metadata"]["name"]
        self.requirements: tuple[Requirement, ...] = requirements_of(spec)
        self.spec_hard = amounts_of(spec.get("hard"))
        self.hard = amounts_of(status.get("hard"))
        self.used = amounts_of(status.get("used"))
        self._names: dict[tuple[Kind, bool], frozenset[str]] = {}

    def names(self, kind: Kind, *, spec: bool = False) -> frozenset[str]:
        """Names in status.hard (or, with ``spec``, in spec.hard) that an object of this kind may be charged to."""
        known = self._names.get((kind, spec))
        if known is None:
            known = matching_names(kind, self.spec_hard if spec else self.hard)
            self._names[kind, spec] = known
        return known

    def forget_names(self) -> None:
        self._names.clear()

    def count(self, kind: Kind, charge: Charge, sign: int) -> None:
        """Add an object to the recount (``sign`` 1), or remove it (-1)."""
        if not applies(self.requirements, kind, charge):
            return
        for name in self.names(kind, spec=True):
            amount = charge.amounts.get(name)
            if amount is not None:
                before = self.actual.get(name, ZERO)
                self.actual[name] = before.plus(amount) if sign > 0 else before.minus(amount)

    def recounted(self) -> dict[str, Amount]:
        """``status.used`` after a recount: every countable name of spec.hard."""
        return {name: self.actual.get(name, ZERO) for name in self.spec_hard}


class QuotaLedger:
    """Follows the store: the charge of each object, the state of each quota, and which quotas a release affects."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._states: dict[str, dict[str, QuotaState]] = {}
        self._charges: dict[str, dict[Kind, dict[str, Charge]]] = {}
        self._dying: dict[str, dict[str, float]] = {}
        self._known: tuple[JSON | None, Charge | None] = (None, None)
        self.on_release: Callable[[str, Kind], None] = _ignore
        self.on_new_spec: Callable[[str, str], None] = _ignore
        store.listen(self._follow)

    def namespaces(self) -> list[str]:
        return list(self._states)

    def states(self, namespace: str) -> list[QuotaState]:
        """The quotas of a namespace, by name: the order in which admission checks them."""
        states = self._states.get(namespace)
        return [states[name] for name in sorted(states)] if states else []

    def state(self, namespace: str, name: str) -> QuotaState | None:
        return self._states.get(namespace, {}).get(name)

    def charge(self, kind: Kind, obj: JSON) -> Charge:
        """Compute the charge of an object that is about to be stored, and remember it for that."""
        charge = charge_of(kind, obj, self._clock())
        self._known = (obj, charge)
        return charge

    def write_status(self, namespace: str, state: QuotaState, used: dict[str, Amount], *, hard: bool) -> None:
        """Store ``status.used``; with ``hard``, also copy ``spec.hard`` to ``status.hard``."""
        texts = {name: str(amount) for name, amount in used.items()}
        state.used = amounts_of(texts)  # the status keeps no family that its text does not show
        if hard:
            state.hard = dict(state.spec_hard)
            state.forget_names()
        obj = state.obj
        obj["status"] = {"hard": {name: str(amount) for name, amount in state.hard.items()}, "used": texts}
        self._store.replace(QUOTAS, self._store.get(QUOTAS, namespace, state.name), obj)

    def drop_expired(self, namespace: str) -> None:
        """Stop counting pods whose deletion is overdue (a lost node never confirms it)."""
        dying = self._dying.get(namespace, {})
        now = self._clock()
        for name in [name for name, deadline in dying.items() if deadline < now]:
            del dying[name]
            stored = self._store.of(PODS).get(namespace, name)
            if stored is not None:
                self._recharge(namespace, PODS, name, charge_of(PODS, stored.parse(), now))

    def _follow(self, kind: Kind, event: Event, obj: JSON) -> None:
        if not event.namespace or kind is EVENTS:
            return
        if kind is QUOTAS:
            self._follow_quota(event, obj)
        known_obj, known = self._known
        if event.type == DELETED:
            charge = None
        else:
            charge = known if known is not None and known_obj is obj else charge_of(kind, obj, self._clock())
        if kind is PODS:
            self._follow_deletion(event, obj)
        if known_obj is obj:
            self._known = (None, None)
        before = self._recharge(event.namespace, kind, event.name, charge)
        if before is not None and event.type != ADDED and (charge is None or gives_back(kind, before, charge)):
            self.on_release(event.namespace, kind)

    def _follow_quota(self, event: Event, obj: JSON) -> None:
        states = self._states.setdefault(event.namespace, {})
        state = states.get(event.name)
        if event.type == DELETED:
            states.pop(event.name, None)
            if not states:
                del self._states[event.namespace]
            return
        if state is not None and state.obj is obj:
            return  # our own write of the status
        if state is None:
            states[event.name] = state = QuotaState(load(event.data))
            changed = recounted = True
        else:
            hard, requirements = _numbers(state.spec_hard), state.requirements
            state.read(load(event.data))
            changed = hard != _numbers(state.spec_hard)  # changing a selector triggers no recount
            recounted = changed or requirements != state.requirements
        if recounted:
            self._count_all(event.namespace, state)
        if changed:
            self.on_new_spec(event.namespace, event.name)

    def _count_all(self, namespace: str, state: QuotaState) -> None:
        state.actual = {}
        for kind, charges in self._charges.get(namespace, {}).items():
            for charge in charges.values():
                state.count(kind, charge, 1)

    def _follow_deletion(self, event: Event, pod: JSON) -> None:
        deadline = None if event.type == DELETED else freed_at(pod)
        dying = self._dying.setdefault(event.namespace, {}) if deadline is not None else None
        if dying is not None and deadline is not None:
            dying[event.name] = deadline
        elif event.namespace in self._dying:
            self._dying[event.namespace].pop(event.name, None)

    def _recharge(self, namespace: str, kind: Kind, name: str, charge: Charge | None) -> Charge | None:
        """Replace the charge that an object counts with; returns the previous one."""
        charges = self._charges.setdefault(namespace, {}).setdefault(kind, {})
        before = charges.pop(name, None)
        if charge is not None:
            charges[name] = charge
        if before == charge:
            return before
        for state in self._states.get(namespace, {}).values():
            if before is not None:
                state.count(kind, before, -1)
            if charge is not None:
                state.count(kind, charge, 1)
        return before


def _numbers(amounts: Mapping[str, Amount]) -> dict[str, int]:
    return {name: amount.nano for name, amount in amounts.items()}
