"""The blocks of a namespace and the probes that find out whether they still hold.

A shape may probe when every block that it meets is ready; the one probe counts for all of them. Where news comes
by itself (a watched quota) there is no block, unless a refusal contradicted what had been seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .backoff import FOREVER, probe_delay
from .blocks import Block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .ceilings import Ceiling
    from .knowledge import Knowledge
    from .line import Shape
    from .shared import Shared
    from .tickets import Rejected, Ticket

_LAG_MAX: Final = 5.0  # seconds that the release lag learns to be, at most


def blocking(shape: Shape) -> list[Ceiling]:
    """List the ceilings that have no room for one more of this shape."""
    return [ceiling for ceiling, amount in shape.meets if amount > ceiling.room]


class Probing:
    """When which block of one namespace may be probed. ``lag`` is learned: from an own pod's end to room."""

    __slots__ = ("_knowledge", "_namespace", "_policy", "_rng", "_shared", "lag", "suspect_at")

    def __init__(self, namespace: str, knowledge: Knowledge, shared: Shared) -> None:
        """Start without blocks."""
        self._namespace = namespace
        self._knowledge = knowledge
        self._shared = shared
        self._policy = shared.policy
        self._rng = shared.rng
        self.lag = shared.policy.release_lag
        self.suspect_at = FOREVER  # when a shape that is perhaps too large may ask its second time

    def ready_blocks(self, shape: Shape, now: float) -> list[Block] | None:
        """Return the blocks that a create of this shape would probe, or None if it may not probe now."""
        if shape.suspected is not None and now < shape.suspected_next:
            self.suspect_at = min(self.suspect_at, shape.suspected_next)
            return None
        blocks = []
        for ceiling, amount in shape.meets:
            if amount <= ceiling.room:
                continue
            block = ceiling.block
            if block is None:
                if self._knowledge.is_watched(ceiling.quota):
                    return None
                block = self._begin(ceiling, ceiling.answered)
            if not block.is_ready(now):
                return None
            blocks.append(block)
        return blocks

    def refused(self, rejected: Rejected, fresh: Mapping[str, int], ticket: Ticket | None, now: float) -> None:
        """Move the blocks that a refusal is about: what it names holds, what its own quota did not name has room.

        ``fresh`` are the named resources whose amounts were news, and how much room the news added. Any other
        create than a block's own probe never advances its steps, and moves it only by news.
        """
        quota = self._knowledge.quotas[rejected.quota]
        for name in rejected.limited:
            ceiling = quota.ceilings.get(name)
            block = ceiling.block if ceiling is not None else None
            if ceiling is not None and block is not None and ticket is not None and block.probe is ticket:
                self._learn_lag(block, early=True)
                block.refused(now, self._policy, self._rng, stirred=fresh.get(name, 0) > 0)
                if name not in fresh and self._knowledge.is_watched(quota):
                    ceiling.block = None  # news came while the probe was out, and goes on coming
            elif name not in fresh or ceiling is None:
                continue
            elif block is None:
                self._begin(ceiling, now)
            else:
                block.late(now, self._policy, self._rng)
        if ticket is None or not ticket.probe:
            return
        meets = dict(ticket.shape.meets)
        for ceiling in self._knowledge.ceilings():  # all: what the shape meets may have changed since it was sent
            block = ceiling.block
            if block is None or block.probe is not ticket:
                continue
            if self._knowledge.is_watched(ceiling.quota):
                ceiling.block = None
            if ceiling.quota is not quota or ceiling not in meets:
                block.elsewhere(now, self._policy, self._rng)
                continue
            block.passed()
            if ticket.sent > ceiling.answered:
                ceiling.disprove(max(0, meets[ceiling] - ceiling.room))

    def _learn_lag(self, block: Block, *, early: bool) -> None:
        """Learn from a hinted probe whether it came too early."""
        if block.hinted is None:
            return
        block.hinted = None
        self.lag = min(_LAG_MAX, self.lag * 2 + 0.001) if early else max(self._policy.release_lag, self.lag * 0.9)

    def ended(self, ticket: Ticket, *, passed: bool) -> None:
        """Take in a probe that got in, or one that ended without an answer about its blocks."""
        if not ticket.probe:
            return
        for ceiling in self._knowledge.ceilings():
            block = ceiling.block
            if block is None or block.probe is not ticket:
                continue
            if self._knowledge.is_watched(ceiling.quota):
                ceiling.block = None
            if not passed:
                block.undecided()
                continue
            self._learn_lag(block, early=False)
            block.passed()

    def hint(self, now: float) -> None:
        """Bring probes forward: an own pod ended, and room may follow."""
        for ceiling in self._knowledge.ceilings():
            if ceiling.block is not None and not self._knowledge.is_watched(ceiling.quota):
                ceiling.block.arm(now + self.lag)

    def dissolve(self) -> None:
        """Forget the blocks of all watched quotas: news comes by itself. One with a probe out stays until its end."""
        for ceiling in self._knowledge.ceilings():
            block = ceiling.block
            if block is not None and block.probe is None and self._knowledge.is_watched(ceiling.quota):
                ceiling.block = None

    def open_due(self, now: float) -> bool:
        """Open the blocks whose time has come; say whether somebody may now go who could not before."""
        opened = now >= self.suspect_at
        for ceiling in self._knowledge.ceilings():
            block = ceiling.block
            if block is not None and block.state == "shut" and block.is_ready(now):
                opened = True
        return opened

    def rest(self) -> None:
        """Forget the blocks while nobody waits: the next refusal starts at the first step again."""
        for ceiling in self._knowledge.ceilings():
            if ceiling.block is not None and ceiling.block.state != "probing":
                ceiling.block = None

    def next_due(self) -> float:
        """Return when the next probe may go, as far as timers decide."""
        due = self.suspect_at
        for ceiling in self._knowledge.ceilings():
            block = ceiling.block
            if block is not None and block.state == "shut" and block.due < due:
                due = block.due
        return due

    def _begin(self, ceiling: Ceiling, since: float) -> Block:
        """Block a ceiling whose news does not come by itself: who could watch it may want to know."""
        block = ceiling.block = Block(since + probe_delay(0, self._policy.base, self._policy.cap, self._rng))
        self._shared.blocked[self._namespace] = None
        return block
