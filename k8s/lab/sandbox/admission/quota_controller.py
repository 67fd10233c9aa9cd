"""The quota controller: fills in new quotas, gives back what was released, and recounts everything periodically.

Like the real one, it writes a little later than the change that it reacts to. Admission looks only at
``status.used``, so a create sent in between is still refused.
Source: ``k8s.io/kubernetes/pkg/controller/resourcequota/resource_quota_controller.go`` (1.36).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping

from backoff_ctrl.k8s.lab.sandbox.faults import Faults, Settings
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import Kind, Kinds

from .amounts import Amount
from .ledger import QuotaLedger, QuotaState
from .quota import uncountable


class QuotaController:
    """Recounts a namespace some milliseconds after a release in it or a change of one of its quotas."""

    def __init__(
        self, ledger: QuotaLedger, kinds: Kinds, faults: Faults, settings: Settings, clock: Callable[[], float]
    ) -> None:
        """``clock`` gives Unix seconds."""
        self._ledger = ledger
        self._kinds = kinds
        self._faults = faults
        self._settings = settings
        self._clock = clock
        self._rng = random.Random(settings.seed + 3)
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._next_write = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._resyncing: asyncio.TimerHandle | None = None
        self._concerned: dict[str, set[str]] = {}
        ledger.on_release = self._released
        ledger.on_new_spec = self._changed

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        for namespace in self._concerned:
            self._arm(namespace, self._settings.fill_delay)
        self._resyncing = self._loop.call_later(self._settings.resync_every, self._resync)

    def stop(self) -> None:
        for handle in self._due.values():
            handle.cancel()
        self._due.clear()
        if self._resyncing is not None:
            self._resyncing.cancel()
        self._loop = None

    def recount(self, namespace: str) -> None:
        """Write the true counts into every quota of a namespace whose status differs from them."""
        armed = self._due.pop(namespace, None)
        if armed is not None:
            armed.cancel()
        self._concerned.pop(namespace, None)
        self._recount(namespace, self._ledger.states(namespace))

    def _recount_concerned(self, namespace: str) -> None:
        self._due.pop(namespace, None)
        names = self._concerned.pop(namespace, set())
        self._recount(namespace, [state for state in self._ledger.states(namespace) if state.name in names])

    def _recount(self, namespace: str, states: Iterable[QuotaState]) -> None:
        self._ledger.drop_expired(namespace)
        for state in states:
            missing = uncountable(state.spec_hard, self._kinds) if state.spec_hard else set()
            used = {name: amount for name, amount in state.recounted().items() if name not in missing}
            unfilled = not (state.obj.get("status") or {}).get("hard") and bool(state.spec_hard)
            if unfilled or state.hard != state.spec_hard or _amounts(used) != _amounts(state.used):
                self._let_admission_trail(state)
                self._ledger.write_status(namespace, state, used, hard=True)

    def recount_all(self) -> None:
        for namespace in self._ledger.namespaces():
            self.recount(namespace)

    def _let_admission_trail(self, state: QuotaState) -> None:
        """Let admission decide by the old amounts for a moment: its own cache may trail the watch."""
        if state.used and self._faults.strikes("stale_admission_share"):
            state.stale = state.used
            state.stale_until = self._clock() + self._rng.uniform(0, self._faults.stale_admission_s)

    def _released(self, namespace: str, kind: Kind) -> None:
        """After a release, recount the quotas that count this kind (``replenishQuota``)."""
        names = {state.name for state in self._ledger.states(namespace) if state.names(kind)}
        if names:
            self._concerned.setdefault(namespace, set()).update(names)
            self._arm(namespace, self._settings.release_delay + self._faults.late_release_s)

    def _changed(self, namespace: str, quota: str) -> None:
        self._concerned.setdefault(namespace, set()).add(quota)
        self._arm(namespace, self._settings.fill_delay)

    def _arm(self, namespace: str, delay: float) -> None:
        if self._loop is None:
            return  # the names are kept and recounted after the start
        if namespace not in self._due:
            delay += self._queue(self._loop.time())
            self._due[namespace] = self._loop.call_later(delay, self._recount_concerned, namespace)

    def _queue(self, now: float) -> float:
        """Seconds that a status write waits for its turn under the write limit."""
        if self._settings.writes_per_second is None:
            return 0.0
        at = max(self._next_write, now)
        self._next_write = at + 1 / self._settings.writes_per_second
        return at - now

    def _resync(self) -> None:
        self.recount_all()
        if self._loop is not None:
            self._resyncing = self._loop.call_later(self._settings.resync_every, self._resync)


def _amounts(used: Mapping[str, Amount]) -> dict[str, int]:
    """Amounts without their families: writing the same amount differently is no change."""
    return {name: amount.nano for name, amount in used.items()}
