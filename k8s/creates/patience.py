"""How often one create is tried, and how long it pauses. Pure: randomness is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

    from backoff_ctrl.k8s.answers.rejections import Lane

    from .treatments import Treatment

SERVER_LIMIT: Final = 40.0
"""Seconds after which a create is over on the API server: it ends there at 34 s, and this has a margin."""
LOOK_AGAIN: Final = 30.0
"""A name that the caller gave is looked up at its first refusal, then at most this often: others may take it."""
LOOK_TRIES: Final = 6
PAUSE_FIRST: Final = 0.25
PAUSE_LONGEST: Final = 8.0


class Patience:
    """Counts the answers of one lane in a row; another lane begins anew."""

    def __init__(self, rng: random.Random) -> None:
        """Begin patient."""
        self._rng = rng
        self._lane: Lane | None = None
        self.in_a_row = 0

    def wears_out(self, lane: Lane, treatment: Treatment) -> bool:
        """Count one more; True when the lane's limit is passed."""
        self.in_a_row = self.in_a_row + 1 if lane is self._lane else 1
        self._lane = lane
        return treatment.tries is not None and self.in_a_row > treatment.tries

    def pause(self, tries: int) -> float:
        """Return a jittered pause that doubles with the tries, from 0.25-0.5 s up to 4-8 s."""
        longest = min(PAUSE_LONGEST, PAUSE_FIRST * 2.0 ** min(tries, 10))
        return self._rng.uniform(longest / 2, longest)
