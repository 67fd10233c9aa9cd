"""How often one create is tried again, and how long it pauses between tries. Pure: randomness is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

    from backoff_ctrl.k8s.answers.rejections import Lane

    from .treatments import Treatment

SERVER_LIMIT: Final = 40.0
"""Seconds after which the API server has finished with a create: it ends each at 34 s, and this adds a margin."""
LOOK_AGAIN: Final = 30.0
"""Seconds between look-ups of a name the caller chose, after the first refusal: another client may take the name."""
LOOK_TRIES: Final = 6
"""Look-ups that may fail in a row."""
PAUSE_FIRST: Final = 0.25
PAUSE_LONGEST: Final = 8.0
"""Seconds; ``PAUSE_FIRST`` too."""


class Patience:
    """Counts the answers of one lane in a row; an answer of another lane starts a new count."""

    __slots__ = ("_lane", "_rng", "in_a_row")

    def __init__(self, rng: random.Random) -> None:
        """Start with no answers counted. ``rng`` gives the jitter of the pauses."""
        self._rng = rng
        self._lane: Lane | None = None
        self.in_a_row = 0

    def wears_out(self, lane: Lane, treatment: Treatment) -> bool:
        """Count one more answer; True once there are more of them in a row than the treatment allows."""
        self.in_a_row = self.in_a_row + 1 if lane is self._lane else 1
        self._lane = lane
        return treatment.tries is not None and self.in_a_row > treatment.tries

    def pause(self, tries: int) -> float:
        """Return a jittered pause in seconds that doubles with each try, from 0.25-0.5 s up to 4-8 s."""
        longest = min(PAUSE_LONGEST, PAUSE_FIRST * 2.0 ** min(tries, 10))
        return self._rng.uniform(longest / 2, longest)
