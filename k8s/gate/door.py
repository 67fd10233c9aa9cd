"""What ``Gate`` and ``AsyncGate`` have in common: a part in a ledger, and how they are looked at and closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.creates.naming import NAMES

from .closing import cancel_all
from .ledger import Ledger

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from backoff_ctrl.engine.controller import Controller

    from .modes import Mode
    from .timers import LoopTimers, ThreadTimers
    from .waiters import GateCounts


class Door:
    """A way into a ledger.

    ``mode`` is ``enforce``, ``shadow`` (decide and count, but send everything) or ``off``: one for all, a mapping by
    namespace (``"*"`` for the others), or a function of the namespace. ``clock`` returns seconds. ``rng`` makes
    names and jitter repeatable. ``ledger`` shares the ledger of another gate; the other arguments are then that gate's.
    """

    _timers: ClassVar[type[LoopTimers | ThreadTimers]]

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        mode: Mode | Mapping[str, Mode] | Callable[[str], Mode] = "enforce",
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """Open. No thread and no task is started before the first create."""
        self.ledger = ledger if ledger is not None else Ledger(self._timers(clock), policy or Policy(), mode, rng)
        self._names = rng if rng is not None else NAMES

    @property
    def controller(self) -> Controller:
        """The engine, to look at. It is not thread-safe: report news through ``ledger``."""
        return self.ledger.controller

    @property
    def counts(self) -> GateCounts:
        """What the gate has done so far."""
        return self.ledger.counts

    def waiting(self) -> list[str]:
        """Describe each create that has not ended, in a line: its state, and what it waits for."""
        return [create.describe() for create in self.ledger.under_way()]

    def cancel_own(self, why: str) -> None:
        """Cancel the creates that callers of this gate wait for, and log which ones. ``why`` begins what is logged."""
        cancel_all(self.ledger.under_way(self), why)
