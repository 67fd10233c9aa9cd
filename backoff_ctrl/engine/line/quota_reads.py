"""Reads of one namespace's quotas that gangs wait for where no watch reports them: a read takes the place of a probe.

No create could teach that the *sum* of a gang fits. Reads are paced as probes are, by a block of their own: one at a
time, with a back-off after each that let no gang in.
"""

from __future__ import annotations

from typing import Final

from backoff_ctrl.engine.backoff import FOREVER
from backoff_ctrl.engine.gangs.gang import Look
from backoff_ctrl.engine.shared import Shared

from .blocks import Block

_READ: Final = "a read of the quotas"  # what is out while the block is probing


class QuotaReads:
    """When the quotas of a namespace are read, and whether what was read may admit a gang."""

    __slots__ = ("_namespace", "_shared", "block", "in_vain", "unreadable", "wanted", "weighing")

    def __init__(self, namespace: str, shared: Shared) -> None:
        self._namespace = namespace
        self._shared = shared
        self.block: Block | None = None  # the pace
        self.unreadable = False  # the quotas can't be read: it is unknown whether a whole gang fits
        self.wanted = False  # a gang waits for one
        self.weighing = False  # gangs are weighed by what was read; it may be settling still
        self.in_vain = True  # what was read has let no gang in

    def may_try_again(self, now: float) -> bool:
        """Say whether quotas that could not be read are to be tried again: the right may have been granted since."""
        return self.block is None or self.block.state != "shut" or now >= self.block.due

    def ended(self, now: float, *, readable: bool | None) -> bool:
        """Note the end of the read that is out; None: it failed. Say whether one was.

        A second one is that of a read which was given up before.
        """
        if self.block is None or self.block.state != "probing" or self.weighing:
            return False
        if readable is not None:
            self.unreadable = not readable
            self.weighing = readable
            self.in_vain = True
        if not readable:
            self._refused(self.block, now)
        return True

    def _refused(self, block: Block, now: float) -> None:
        block.refused(now, self._shared.policy, self._shared.rng, stirred=False)

    def bring_forward(self, at: float) -> None:
        """Read soon: there is a hint of room."""
        if self.block is not None:
            self.block.arm(at)

    def lapse(self, now: float) -> None:
        """Give up a read whose end is never reported."""
        if self.block is not None and now >= self.lapses_at:
            self.block.elsewhere(now, self._shared.policy, self._shared.rng)

    @property
    def lapses_at(self) -> float:
        """When the end of the read that is out is no longer expected; infinity if none is, or its news settle."""
        if self.block is None or self.block.state != "probing" or self.weighing:
            return FOREVER
        return self.block.due + self._shared.policy.ticket_max

    def is_due(self, now: float) -> bool:
        """Say whether a read that a gang waits for may be made now."""
        return self.wanted and self.block is not None and self.block.is_ready(now)

    def next_at(self, *, awaited: bool) -> float:
        """Return when time alone changes the outcome. ``awaited``: a gang waits in line."""
        if self.block is None or self.block.state == "probing":
            return self.lapses_at
        return self.block.due if self.wanted and awaited else FOREVER

    def weighed(self, now: float) -> None:
        """What was read has settled, and all who wait were weighed by it."""
        assert self.block is not None
        self.weighing = False
        if self.in_vain:
            self._refused(self.block, now)
        else:
            self.block.passed(now)

    def dropped(self, now: float) -> None:
        """Drop what was read: no gang waits for it any more."""
        assert self.block is not None
        self.weighing = False
        self.block.undecided(now)

    def ask(self, now: float) -> None:
        """Ask for a read, unless it is too early for one."""
        if self.block is None or self.block.rests(now, self._shared.policy.cap):
            self.block = Block(now)
            self._shared.blocked[self._namespace] = None
        if self.block.is_ready(now):
            self.block.due = now  # the read lapses by that
            self.block.sends(_READ)
            self._shared.effects.append(Look(self._namespace))
