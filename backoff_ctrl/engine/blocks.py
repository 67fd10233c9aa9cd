"""A block: what shapes wait for at one (namespace, quota, resource), with its back-off; a state machine as a table.

While a block holds, only one waiting request at a time is sent, to test for room: the probe. Between probes the server
is not called at all. After a probe succeeds the next may be sent at once. A block that nobody probes goes back step by
step, and ends: by then a refusal is no longer expected.
"""

from __future__ import annotations

import random
from typing import Final, Literal

from .backoff import probe_delay, steps_to_cap
from .errors import TicketError
from .policy import Policy

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
        "elsewhere": "shut",  # another quota refused the probe first: nothing was learned, the same step again
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
        """Send this create as the probe."""
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
