"""What a plain retry loop would have sent: the basis of "calls saved", which is an estimate and is called so.

The loop that is compared with sends at once, and again 1, 2, 4, 8, 16 and then every 20 s after each refusal: after
1, 3, 7, 15, 31, 51, 71, ... seconds. A create that waited W seconds here would have cost it one attempt at the start
and one for each of these times up to W; all of them refused. What the gate itself sent in vain is taken off.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

_EARLY: Final = (0.0, 1.0, 3.0, 7.0, 15.0, 31.0)
_EVERY: Final = 20.0


def loop_attempts(waited: float) -> int:
    """Return how many refused attempts the loop would have made in so many seconds; 0 for no wait at all."""
    if waited <= 0:
        return 0
    if waited < _EARLY[-1]:
        return bisect_right(_EARLY, waited)
    return len(_EARLY) + int((waited - _EARLY[-1]) // _EVERY)


def calls_saved(waited: float, refused: int) -> int:
    """Return the attempts saved for one create that waited so long, of which the gate had ``refused`` ones."""
    return max(0, loop_attempts(waited) - refused)
