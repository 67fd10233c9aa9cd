"""Quota admission: checks every quota of a namespace and charges them all before the object is stored.

Source: ``k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go`` (1.36), ``CheckRequest``.
If the store then refuses the object, the charge is not given back; the next recount corrects it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from backoff_ctrl.k8s.lab.sandbox.faults import Faults
from backoff_ctrl.k8s.lab.sandbox.objects.answers import ApiError, bad_request, conflict, forbidden, internal
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import CLAIMS, EVENTS, PODS, QUOTAS, SERVICES, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON

from .amounts import Amount, AmountError
from .charges import Charge, applies, charge_of, matching_names, missing_constraints
from .ledger import QuotaLedger, QuotaState


class Attempt(NamedTuple):
    """A create (``old`` is None) or an update that is to be charged."""

    kind: Kind
    namespace: str
    name: str
    obj: JSON
    old: JSON | None = None
    subresource: str = ""
    dry_run: bool = False


class QuotaAdmission:
    def __init__(
        self, ledger: QuotaLedger, faults: Faults, clock: Callable[[], float], shuffler: random.Random | None = None
    ) -> None:
        """Check and charge the ledger's quotas. ``clock`` gives Unix seconds; ``shuffler`` mixes their order."""
        self._shuffler = shuffler
        self._ledger = ledger
        self._faults = faults
        self._clock = clock

    def admit(self, attempt: Attempt) -> None:
        """Charge all quotas; if one is exceeded, raise its refusal and leave all uncharged."""
        if not attempt.namespace or not self._handles(attempt):
            return
        states = self._ledger.states(attempt.namespace)
        if not states:
            return
        if self._faults.strikes("quota_timeout_share"):
            raise internal("resource quota evaluation timed out")
        try:
            charge = self._ledger.charge(attempt.kind, attempt.obj)
        except AmountError as error:
            raise bad_request(str(error)) from error
        charges = self._check(attempt, states, charge)
        if charges and not attempt.dry_run:
            self._write(attempt.namespace, charges)

    def _handles(self, attempt: Attempt) -> bool:
        kind, old = attempt.kind, attempt.old
        if kind is EVENTS:
            return False
        if old is None:
            return not attempt.subresource
        if kind is PODS:
            if attempt.subresource == "resize":
                return True
            before, after = (charge_of(kind, obj, 0).terminating for obj in (old, attempt.obj))
            return not attempt.subresource and before != after
        if kind is CLAIMS:
            return attempt.subresource in {"", "status"}
        return kind is SERVICES and not attempt.subresource

    def _check(
        self, attempt: Attempt, states: list[QuotaState], charge: Charge
    ) -> list[tuple[QuotaState, dict[str, Amount]]]:
        concerned = [state for state in states if self._concerns(state, attempt, charge)]
        if self._shuffler is not None:  # only these: what the controllers create must not change the order for others
            self._shuffler.shuffle(concerned)
        negative = [name for name, amount in charge.amounts.items() if amount.nano < 0]
        if negative:
            listed = ",".join(sorted(negative))
            raise self._refuse(attempt, f"quota usage is negative for resource(s): {listed}")
        charges = []
        for state in concerned:
            requested = self._delta(attempt, state, charge)
            if requested:
                charges.append((state, self._charged(attempt, state, requested)))
        return charges

    def _concerns(self, state: QuotaState, attempt: Attempt, charge: Charge) -> bool:
        """Whether a quota applies; refuses if it is not ready or requires fields that are unset. Raises 403."""
        names = state.names(attempt.kind)
        if not names or not applies(state.requirements, attempt.kind, charge):
            return False
        if attempt.kind is PODS:
            missing = missing_constraints(attempt.obj.get("spec") or {}, names)
            if missing:
                raise self._refuse(attempt, f"failed quota: {state.name}: {missing}")
        if any(name not in state.used for name in names):
            listed = ",".join(sorted(names))
            raise self._refuse(attempt, f"status unknown for quota: {state.name}, resources: {listed}")
        return True

    def _delta(self, attempt: Attempt, state: QuotaState, charge: Charge) -> dict[str, Amount]:
        """What this attempt adds to a quota: an update adds only what grows. Zeros are left out."""
        asked: Mapping[str, Amount] = charge.amounts
        if attempt.old is not None:
            before = charge_of(attempt.kind, attempt.old, self._clock())
            if applies(state.requirements, attempt.kind, before):
                asked = _growth(charge.amounts, before.amounts)
        return {name: amount for name, amount in asked.items() if amount.nano and name in state.hard}

    def _charged(self, attempt: Attempt, state: QuotaState, requested: dict[str, Amount]) -> dict[str, Amount]:
        """``used`` after the charge. Raises 403, which names only the exceeded resources."""
        if state.stale is not None:
            if self._clock() < state.stale_until:
                self._hold_against(attempt, state, requested, state.stale)
            state.stale = None
        self._hold_against(attempt, state, requested, state.used)
        used = dict(state.used)
        for name, amount in requested.items():
            used[name] = used[name].plus(amount) if name in used else amount
        return used

    def _hold_against(
        self, attempt: Attempt, state: QuotaState, requested: dict[str, Amount], used: Mapping[str, Amount]
    ) -> None:
        if attempt.subresource == "status":
            return
        exceeded = sorted(
            name
            for name, amount in requested.items()
            if amount.nano + (used[name].nano if name in used else 0) > state.hard[name].nano
        )
        if exceeded:
            text = ", ".join(
                f"{word}: {_listed(exceeded, amounts)}"
                for word, amounts in (("requested", requested), ("used", used), ("limited", state.hard))
            )
            raise self._refuse(attempt, f"exceeded quota: {state.name}, {text}")

    def _write(self, namespace: str, charges: list[tuple[QuotaState, dict[str, Amount]]]) -> None:
        """Charge one quota after another; after a conflict at the last, the earlier ones stay charged."""
        conflicting = charges[-1][0] if self._faults.strikes("quota_conflict_share") else None
        for state, used in charges:
            if state is conflicting:
                raise conflict(QUOTAS, state.name)
            self._ledger.write_status(namespace, state, used, hard=False)

    def _refuse(self, attempt: Attempt, why: str) -> ApiError:
        return forbidden(attempt.kind, attempt.name, why)


def _growth(after: Mapping[str, Amount], before: Mapping[str, Amount]) -> dict[str, Amount]:
    """Return by how much each amount grew; what did not is left out (``SubtractWithNonNegativeResult`` in quota)."""
    grown = {}
    for name, amount in after.items():
        rest = amount.minus(before[name]) if name in before else amount
        if rest.nano > 0:
            grown[name] = rest
    return grown


def _listed(names: Iterable[str], amounts: Mapping[str, Amount]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names if name in amounts)


def uncountable(hard: Iterable[str], kinds: Iterable[Kind]) -> set[str]:
    """Names in a quota that no kind is charged to; they are left out of ``status.used``."""
    names = set(hard)
    for kind in kinds:
        names -= matching_names(kind, names)
    return names
