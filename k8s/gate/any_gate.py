"""What ``Gate`` and ``AsyncGate`` have in common: a part in a ledger, and how they are looked at and closed."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.creates.creation import Mode, Modes, mode_of
from backoff_ctrl.k8s.gate.creates.naming import UNSIGNED, Signature
from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.gate.runtime.host import Alarms, after_fork

from .ledger import Ledger
from .locked_engine import GateCounts
from .settings import note_unknown
from .unfinished import closing

NAMES: Final = random.Random()
"""The source of random names: seeded once per process from the operating system (asking it for each name costs more
than the rest of the naming), and not affected by the caller's ``random.seed``."""
after_fork(NAMES.seed)  # so that two forks do not draw the same names
note_unknown()  # when a program imports the library


class AnyGate(ABC):
    """A way into a ledger.

    ``mode`` is ``enforce``, ``shadow`` (decide and count, but send everything) or ``off``: one for all, a mapping by
    namespace (``"*"`` for the others), or a function of the namespace. ``clock`` returns seconds. ``rng`` makes
    names and jitter repeatable. ``signature`` names this gate and those whose create ids it keeps. ``ledger`` shares
    the ledger of another gate; policy, clock, randomness and signature are then that gate's.

    A gate with a mode alone joins the shared ledger of the first client that it is given to. Any other is
    a line of its own, which learns from refusals only. Raises ``OptionError`` for an unknown mode.
    """

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        mode: Modes | None = None,
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        signature: Signature = UNSIGNED,
        ledger: Ledger | None = None,
    ) -> None:
        self.given_mode = mode
        self.names = rng if rng is not None else NAMES
        self._mode = None if mode is None else mode_of(mode)
        self._ledger = ledger
        self._make: Callable[[], Ledger] = lambda: Ledger(self._alarms(clock), policy, "enforce", rng, signature)
        self._joins = mode is not None and not (policy or clock or rng or ledger) and signature is UNSIGNED

    @staticmethod
    @abstractmethod
    def _alarms(clock: Callable[[], float] | None) -> Alarms:
        """Return the clock of a ledger of its own."""

    @property
    def ledger(self) -> Ledger:
        """The ledger: the given or the joined one, else one of its own, made at the first use."""
        ledger = self._ledger
        return ledger if ledger is not None else self.join(self._make())

    def joins(self) -> bool:
        """Return whether it joins the ledger of the client that it is given to."""
        return self._joins and self._ledger is None

    def join(self, ledger: Ledger) -> Ledger:
        """Become a way into this ledger, if it is not one into another already; return which one it is."""
        found: Ledger = vars(self).setdefault("_joined", ledger)  # one step, so that two threads join the same
        self._ledger = found
        return found

    def mode(self, namespace: str) -> Mode:
        """Return the mode of a namespace."""
        return (self._mode or self.ledger.mode)(namespace)

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

    def waiting_now(self) -> list[Wait]:
        """Return the waiters of this gate's ledger with their reasons: the longest wait first."""
        return self.ledger.waiting_now()

    def cancel_own(self, why: str) -> None:
        """Cancel the creates that callers of this gate wait for, and log which ones. ``why`` begins what is logged."""
        line = self.ledger.line
        line.stop(closing([each for each in line.under_way(self) if each.stopped is None], why))
