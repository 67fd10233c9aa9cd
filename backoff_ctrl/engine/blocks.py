"""A block: what shapes wait for at one (namespace, quota, resource), with its back-off. A state machine as a table.

Between probes a blocked shape calls the server zero times. One create, the probe, finds out whether the block
still holds; after a success the next may go at once, one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from .backoff import probe_delay, steps_to_cap
from .errors import TicketError

if TYPE_CHECKING:
    import random

    from .policy import Policy

BlockState = Literal["shut", "ready", "probing"]
BlockEvent = Literal["timer", "probe", "refused", "passed", "elsewhere", "undecided", "late"]

BLOCKS: Final[dict[BlockState, dict[BlockEvent, BlockState]]] = {
    "shut": {"timer": "ready", "late": "shut"},
    "ready": {
        "probe": "probing",
        "late": "shut",  # a create that seemed to fit was refused: the block holds, at the same step
    },
    "probing": {
        "refused": "shut",  # the probe met this block: one step of back-off
        "passed": "ready",  # the next probe may go at once
        "elsewhere": "shut",  # another quota refused it first: nothing was learned, the same step again
        "undecided": "ready",  # overloaded, failed or never sent: the question was not asked
        "late": "probing",
    },
}
"""What each event makes of a block. An event that a state does not list is a bug and raises ``TicketError``."""


class Block:
    """One ceiling's back-off: its state, the step it is at, and when its next probe may go."""

    __slots__ = ("attempts", "due", "hinted", "probe", "state", "succeeded")

    def __init__(self, due: float, attempts: int = 0) -> None:
        """Start shut until ``due``."""
        self.state: BlockState = "shut"
        self.attempts = attempts
        self.due = due
        self.probe: object = None  # the ticket of the probe that is out
        self.hinted: float | None = None
        self.succeeded = False  # the last probe got in

    def happens(self, event: BlockEvent) -> None:
        """Take one step of the table."""
        try:
            self.state = BLOCKS[self.state][event]
        except KeyError:
            raise TicketError(f"a block is {self.state}: {event!r} is not allowed in that state") from None

    def is_ready(self, now: float) -> bool:
        """Say whether a probe may go; a timer that has run out counts."""
        if self.state == "shut" and now >= self.due:
            self.happens("timer")
        return self.state == "ready"

    def sends(self, probe: object) -> None:
        """Let this create through as the probe."""
        self.happens("probe")
        self.probe = probe

    def refused(self, now: float, policy: Policy, rng: random.Random, *, stirred: bool) -> None:
        """Back off: the probe came back refused by this block.

        The step goes up by one, unless the refusal is no sign of a quiet quota: it answered the question that
        followed a success ("is there more?"), or its amounts show that room came free (``stirred``).
        """
        self.happens("refused")
        if not (self.succeeded or stirred):
            self.attempts = min(self.attempts + 1, steps_to_cap(policy.base, policy.cap))
        self.succeeded = False
        self._wait(now, policy, rng)

    def elsewhere(self, now: float, policy: Policy, rng: random.Random) -> None:
        """Wait the same step again: the probe was refused by another quota first."""
        self.happens("elsewhere")
        self._wait(now, policy, rng)

    def passed(self) -> None:
        """Be ready again, one step lower: the probe got in."""
        self.happens("passed")
        self.probe = None
        self.succeeded = True
        self.attempts = max(0, self.attempts - 1)

    def undecided(self) -> None:
        """Be ready again: the probe ended without an answer about this block."""
        self.happens("undecided")
        self.probe = None

    def late(self, now: float, policy: Policy, rng: random.Random) -> None:
        """Hear a refusal of a create that was not the probe: it never advances the steps."""
        was = self.state
        self.happens("late")
        if was == "ready":
            self.due = now + probe_delay(self.attempts, policy.base, policy.cap, rng)

    def arm(self, due: float) -> None:
        """Bring the next probe forward: something was heard that may mean room."""
        if self.state == "shut" and due < self.due:
            self.due = due
            self.hinted = due

    def _wait(self, now: float, policy: Policy, rng: random.Random) -> None:
        self.probe = None
        self.due = now + probe_delay(self.attempts, policy.base, policy.cap, rng)
