"""What ``Gate`` and ``AsyncGate`` have in common: a part in a ledger, and how they are looked at and closed."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.creates.modes import mode_of
from backoff_ctrl.k8s.creates.naming import NAMES, UNSIGNED, Signature

from .closing import cancel_all
from .ledger import Ledger

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from backoff_ctrl.engine.controller import Controller
    from backoff_ctrl.k8s.creates.modes import Mode, Modes
    from backoff_ctrl.k8s.creates.wait import Wait

    from .timers import LoopTimers, ThreadTimers
    from .waiters import GateCounts

_JOINING = threading.Lock()


class Door:
    """A way into a ledger.

    ``mode`` is ``enforce``, ``shadow`` (decide and count, but send everything) or ``off``: one for all, a mapping by
    namespace (``"*"`` for the others), or a function of the namespace. ``clock`` returns seconds. ``rng`` makes
    names and jitter repeatable. ``signature`` names this gate and those whose create ids it keeps. ``ledger`` shares
    the ledger of another gate; policy, clock, randomness and signature are then that gate's.

    A gate with a mode and nothing else joins the shared ledger of the first client that it is given to. Any other is
    a line of its own, which learns from refusals only. Raises ``OptionError`` for an unknown mode.
    """

    _timers: ClassVar[type[LoopTimers | ThreadTimers]]

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
        """Open. No thread and no task is started before the first create."""
        self.given_mode = mode
        self._mode = None if mode is None else mode_of(mode)
        self._ledger = ledger
        self._make = partial(_new_ledger, self._timers, policy, clock, rng, signature)
        self._joins = mode is not None and not (policy or clock or rng or ledger) and signature is UNSIGNED
        self._names = rng if rng is not None else NAMES

    @property
    def ledger(self) -> Ledger:
        """The ledger: the given or the joined one, else one of its own, made at the first use."""
        if self._ledger is None:
            self.join(self._make())
        assert self._ledger is not None
        return self._ledger

    def joins(self) -> bool:
        """Say whether it joins the ledger of the client that it is given to."""
        return self._joins and self._ledger is None

    def join(self, ledger: Ledger) -> None:
        """Become a way into this ledger, if it is not one into another already."""
        with _JOINING:
            self._ledger = self._ledger or ledger

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
        """Say who waits in the ledger of this gate, and why: those who wait longest first."""
        return self.ledger.waiting_now()

    def cancel_own(self, why: str) -> None:
        """Cancel the creates that callers of this gate wait for, and log which ones. ``why`` begins what is logged."""
        cancel_all(self.ledger, self.ledger.under_way(self), why)


def _new_ledger(
    timers: type[LoopTimers | ThreadTimers],
    policy: Policy | None,
    clock: Callable[[], float] | None,
    rng: random.Random | None,
    signature: Signature,
) -> Ledger:
    return Ledger(timers(clock), policy or Policy(), "enforce", rng, signature)


def _after_fork() -> None:
    """Replace the lock, which may be held for ever in the child."""
    global _JOINING  # noqa: PLW0603 - a lock cannot be reset otherwise
    _JOINING = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
