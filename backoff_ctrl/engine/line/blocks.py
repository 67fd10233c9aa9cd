"""Blocks: what shapes wait for at one (namespace, quota, resource), with its back-off, and the probes that test it.

While a block holds, only one waiting request at a time is sent, to test for room: the probe. Between probes the server
is not called at all. After a probe succeeds the next may be sent at once. A block without probes goes back step by
step, and ends: by then a refusal is no longer expected. A block ends with time or with news. It stays when its line is
empty at it any more.

A shape may send a probe when every block that it meets is ready; one probe counts for all of them. A watched quota
needs no probes, since its changes are reported: it has a block only if a refusal contradicted what was observed.
"""

from __future__ import annotations

import random
from collections.abc import Container, Mapping
from typing import Final, Literal

from backoff_ctrl.engine.backoff import FOREVER, probe_delay, steps_to_cap
from backoff_ctrl.engine.errors import TicketError
from backoff_ctrl.engine.facts.ceilings import Ceiling
from backoff_ctrl.engine.facts.outcomes import Rejected
from backoff_ctrl.engine.facts.shapes import Shape
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.engine.shared import Shared
from backoff_ctrl.engine.tickets import Ticket

from .knowledge import Knowledge

_LAG_MAX: Final = 5.0  # seconds: the longest release lag that is learned

BlockState = Literal["shut", "ready", "probing"]
BlockEvent = Literal["timer", "probe", "refused", "passed", "elsewhere", "undecided", "late"]

BLOCKS: Final[dict[BlockState, dict[BlockEvent, BlockState]]] = {
    "shut": {"timer": "ready", "late": "shut"},
    "ready": {
        "probe": "probing",
        "late": "shut",  # a create that should have fitted was refused: the block holds, at the same step
    },
    "probing": {
        "refused": "shut",  # this block refused the probe: one step of back-off
        "passed": "ready",  # the next probe may be sent at once
        "elsewhere": "shut",  # another quota refused the probe first: no fact was learned, the same step again
        "undecided": "ready",  # overloaded, failed or never sent: no quota was asked
        "late": "probing",
    },
}
"""The state that each event leads to. An event that a state does not list is a bug and raises ``TicketError``."""


class Block:
    """One ceiling's back-off: its state, its step (``attempts``), and from when on a probe may be sent (``due``)."""

    __slots__ = ("attempts", "due", "hinted", "probe", "state", "succeeded")

    def __init__(self, due: float, attempts: int = 0) -> None:
        """Start shut; the first probe may be sent at ``due``."""
        self.state: BlockState = "shut"
        self.attempts = attempts
        self.due = due
        self.probe: object = None  # the ticket of the probe that is out
        self.hinted: float | None = None
        self.succeeded = False  # the last probe was admitted by the server

    def happens(self, event: BlockEvent) -> None:
        """Move to the state that the table gives."""
        try:
            self.state = BLOCKS[self.state][event]
        except KeyError:
            raise TicketError(f"a block is {self.state}: {event!r} is not allowed in that state") from None

    def is_ready(self, now: float) -> bool:
        """Say whether a probe may be sent now, after opening a block whose timer has run out."""
        if self.state == "shut" and now >= self.due:
            self.happens("timer")
        return self.state == "ready"

    def sends(self, probe: object) -> None:
        self.happens("probe")
        self.probe = probe

    def refused(self, now: float, policy: Policy, rng: random.Random, *, stirred: bool) -> None:
        """Back off, since the quota of this block refused the probe.

        The step rises by one, unless the quota is evidently in motion: the probe before was admitted, or the amounts
        of the refusal show that room came free in the meantime (``stirred``).
        """
        self.happens("refused")
        if not (self.succeeded or stirred):
            self.attempts = min(self.attempts + 1, steps_to_cap(policy.base, policy.cap))
        self.succeeded = False
        self._wait(now, policy, rng)

    def elsewhere(self, now: float, policy: Policy, rng: random.Random) -> None:
        """Wait for the same step again: another quota refused the probe first."""
        self.happens("elsewhere")
        self._wait(now, policy, rng)

    def passed(self, now: float) -> None:
        """Be ready again, one step lower: the server admitted the probe."""
        self.happens("passed")
        self.probe = None
        self.due = now
        self.succeeded = True
        self.attempts = max(0, self.attempts - 1)

    def undecided(self, now: float) -> None:
        """Be ready again: the probe ended without an answer from any quota."""
        self.happens("undecided")
        self.probe = None
        self.due = now

    def rests(self, now: float, cap: float) -> bool:
        """Go one step back for every ``cap`` seconds that no probe was sent though it was due; say if that ended it."""
        if self.state == "probing" or now < self.due + cap:
            return False
        spans = int((now - self.due) / cap)
        self.due += spans * cap
        self.attempts -= spans
        return self.attempts < 0

    def late(self, now: float, policy: Policy, rng: random.Random) -> None:
        """Note the refusal of a create that was not the probe: the step stays the same."""
        was = self.state
        self.happens("late")
        if was == "ready":
            self.due = now + probe_delay(self.attempts, policy.base, policy.cap, rng)

    def arm(self, due: float) -> None:
        """Bring the next probe forward to ``due``: there may be room by then."""
        if self.state == "shut" and due < self.due:
            self.due = due
            self.hinted = due

    def _wait(self, now: float, policy: Policy, rng: random.Random) -> None:
        self.probe = None
        self.due = now + probe_delay(self.attempts, policy.base, policy.cap, rng)


class Probing:
    """The blocks of one namespace by ceiling. ``lag``: seconds from the end of one of our pods to room, learned."""

    __slots__ = ("_knowledge", "_namespace", "_policy", "_rng", "_shared", "blocks", "lag", "suspect_at")

    def __init__(self, namespace: str, knowledge: Knowledge, shared: Shared) -> None:
        self._namespace = namespace
        self._knowledge = knowledge
        self._shared = shared
        self._policy = shared.policy
        self._rng = shared.rng
        self.blocks: dict[Ceiling, Block] = {}
        self.lag = shared.policy.release_lag
        self.suspect_at = FOREVER  # when the line is to be scanned, such as for a shape that perhaps never fits

    def ready_blocks(self, shape: Shape, now: float, own: Mapping[Ceiling, int] | None = None) -> list[Block] | None:
        """Return the blocks that a create of this shape would probe, or None if it may not probe now.

        ``own``: the room that a gang's member may take instead of everybody's.
        """
        if shape.suspected is not None and now < shape.suspected_next:
            self.suspect_at = min(self.suspect_at, shape.suspected_next)
            return None
        blocks = []
        for ceiling, amount in shape.meets:
            if amount <= (ceiling.room if own is None else own.get(ceiling, 0)):
                continue
            if own is None and amount <= ceiling.room + ceiling.reserved + ceiling.doubted:
                return None  # the server would store it, in the room of a gang
            block = self.blocks.get(ceiling)
            if block is None or block.rests(now, self._policy.cap):
                if self._knowledge.is_watched(ceiling.quota):
                    return None
                block = self._begin(ceiling, ceiling.answered)
            elif block.state == "shut" and block.is_ready(now):  # its timer has run out, and was not seen to yet:
                self.suspect_at = now  # if this create is not sent, others may wait for this block alone
            if not block.is_ready(now):
                return None
            blocks.append(block)
        return blocks

    def refused(self, rejected: Rejected, fresh: Mapping[Ceiling, int], ticket: Ticket | None, now: float) -> None:
        """Move the blocks that a refusal is about: what it names is full; what its own quota did not name has room.

        ``fresh`` has the named ceilings whose amounts were news, each with the room that the news added. Only the
        block's own probe advances its back-off. Any other create moves the block only if its refusal was news.
        """
        if ticket is not None and ticket.probe:
            self._probe_refused(rejected, fresh, ticket, now)
            return
        for ceiling in fresh:
            block = self.blocks.get(ceiling)
            if block is None or block.state != "shut":
                self._is_full(ceiling, now)

    def _is_full(self, ceiling: Ceiling, now: float) -> None:
        block = self.blocks.get(ceiling)
        if block is None:
            self._begin(ceiling, now)
        else:
            block.late(now, self._policy, self._rng)

    def _probe_refused(self, rejected: Rejected, fresh: Mapping[Ceiling, int], ticket: Ticket, now: float) -> None:
        quota = self._knowledge.quotas[rejected.quota]
        for name in rejected.limited:
            ceiling = quota.ceilings.get(name)
            if ceiling is None:
                continue
            block = self.blocks.get(ceiling)
            if block is not None and block.probe is ticket:
                self._learn_lag(block, early=True)
                block.refused(now, self._policy, self._rng, stirred=fresh.get(ceiling, 0) > 0)
                if ceiling not in fresh and self._knowledge.is_watched(quota.name):
                    del self.blocks[ceiling]  # news came while the probe was out, and more will come
            elif ceiling in fresh:
                self._is_full(ceiling, now)
        self._refused_elsewhere(ticket, rejected.quota, now)

    def _refused_elsewhere(self, ticket: Ticket, refused_by: str, now: float) -> None:
        """Move the blocks of a refused probe that its refusal did not name."""
        meets = dict(ticket.shape.meets)  # which may have changed since it was sent: hence the look at all blocks
        for ceiling, block in self._probed_by(ticket):
            if self._knowledge.is_watched(ceiling.quota):
                del self.blocks[ceiling]
            if ceiling.quota != refused_by or ceiling not in meets:
                block.elsewhere(now, self._policy, self._rng)
                continue
            block.passed(now)
            if ticket.sent > ceiling.answered:  # there was room for this create, if perhaps not for others in flight
                ceiling.disprove(max(0, ceiling.used + meets[ceiling] - ceiling.limited))

    def _probed_by(self, ticket: Ticket) -> list[tuple[Ceiling, Block]]:
        return [(ceiling, block) for ceiling, block in self.blocks.items() if block.probe is ticket]

    def _learn_lag(self, block: Block, *, early: bool) -> None:
        """Learn from the end of a probe that a hint brought forward. ``early``: it was refused, so it came too soon."""
        if block.hinted is None:
            return
        block.hinted = None
        self.lag = min(_LAG_MAX, self.lag * 2 + 0.001) if early else max(self._policy.release_lag, self.lag * 0.9)

    def ended(self, ticket: Ticket, now: float, *, passed: bool) -> None:
        """Move the blocks of a probe that was admitted by the server, or that ended without an answer about them."""
        if not ticket.probe:
            return
        for ceiling, block in self._probed_by(ticket):
            if self._knowledge.is_watched(ceiling.quota):
                del self.blocks[ceiling]
            if not passed:
                block.undecided(now)
                continue
            self._learn_lag(block, early=False)
            block.passed(now)

    def hint(self, now: float) -> None:
        """Bring probes forward: an own pod ended, and room may follow."""
        for ceiling, block in self.blocks.items():
            if not self._knowledge.is_watched(ceiling.quota):
                block.arm(now + self.lag)

    def dissolve(self) -> None:
        """Drop the blocks of watched quotas, whose changes are reported. One with a probe out stays until its end."""
        if not self._knowledge.observing:
            return
        for ceiling, block in list(self.blocks.items()):
            if block.probe is None and self._knowledge.is_watched(ceiling.quota):
                del self.blocks[ceiling]

    def retain(self, ceilings: Container[Ceiling]) -> None:
        """Drop the blocks of all ceilings but these: the others no longer exist."""
        self.blocks = {ceiling: block for ceiling, block in self.blocks.items() if ceiling in ceilings}

    def open_due(self, now: float) -> bool:
        """Open the blocks whose time has come; say whether any probe may now be sent that could not be before."""
        opened = now >= self.suspect_at
        for block in self.blocks.values():
            if block.state == "shut" and block.is_ready(now):
                opened = True
        return opened

    def end(self, ceiling: Ceiling) -> None:
        """End a block because of news: room was reported. One with a probe out stays until its end."""
        block = self.blocks.get(ceiling)
        if block is not None and block.probe is None:
            del self.blocks[ceiling]

    def drop_rested(self, now: float) -> None:
        """Drop the blocks that have ended because no create probed them for long."""
        self.blocks = {c: block for c, block in self.blocks.items() if not block.rests(now, self._policy.cap)}

    def next_due(self) -> float:
        """Return when the timers let the next probe be sent; infinity if they do not."""
        due = self.suspect_at
        for block in self.blocks.values():
            if block.state == "shut" and block.due < due:
                due = block.due
        return due

    def _begin(self, ceiling: Ceiling, since: float) -> Block:
        """Block a ceiling of a quota that is not watched; list its namespace for those who could watch it."""
        block = self.blocks[ceiling] = Block(since + probe_delay(0, self._policy.base, self._policy.cap, self._rng))
        self._shared.blocked[self._namespace] = None
        return block
