"""The life of one object as a table: what it is, what is seen of it, what it is then and what is done. Pure.

It is stored only as the object itself: after a restart the table begins again with what its fields say.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

from .kinds import Left, Subject


class State(StrEnum):
    """What an object is to us."""

    NEW = "new"
    LEFT = "left alone"
    WAITING = "waiting"
    REFUSED = "refused"
    """It can't be let in as things are: it never fits, or it may not be resumed."""
    GRANTED = "granted"
    """Its room is reserved, and it is being resumed."""
    RUNNING = "running"
    ENDED = "ended"
    GONE = "gone"


class Seen(StrEnum):
    """What is seen of an object, or has become of what was done for it."""

    LEFT = "it is left alone"
    SUSPENDED = "it is suspended, and ours to let in"
    RUNS = "it is not suspended"
    ENDED = "it has ended"
    GONE = "it is gone"
    GRANT = "the line has its turn"
    REFUSAL = "the line refuses it"
    RESUMED = "it was resumed by us"
    DENIAL = "the API server does not let us resume it"
    NEWS = "what refused it has changed"


class Act(StrEnum):
    """What is done, in this order where there are several."""

    DROP = "leave the line, and give back what is reserved"
    JOIN = "join the line"
    COMPARE = "join it again, if it makes something else than what waits"
    RESUME = "resume it"
    STAND = "reserve what it makes without waiting, and take in what lives of it"
    CONFIRM = "see whether our patch resumed it; if others did, reserve its room anew, as that of what runs"
    FOLLOW = "keep no more than it still makes"


Row: TypeAlias = Mapping[Seen, tuple[State, tuple[Act, ...]]]

_FRESH: Final[Row] = {
    Seen.LEFT: (State.LEFT, ()),
    Seen.SUSPENDED: (State.WAITING, (Act.JOIN,)),
    Seen.RUNS: (State.RUNNING, (Act.STAND,)),
    Seen.ENDED: (State.ENDED, ()),
    Seen.GONE: (State.GONE, ()),
}
"""For what has neither a place in line nor anything reserved."""
_DROPPED: Final[Row] = {
    Seen.LEFT: (State.LEFT, (Act.DROP,)),
    Seen.SUSPENDED: (State.WAITING, (Act.DROP, Act.JOIN)),
    Seen.RUNS: (State.RUNNING, (Act.DROP, Act.STAND)),
    Seen.ENDED: (State.ENDED, (Act.DROP,)),
    Seen.GONE: (State.GONE, (Act.DROP,)),
}
LIFE: Final[Mapping[State, Row]] = {
    State.NEW: _FRESH,
    State.LEFT: _FRESH,
    State.ENDED: _FRESH,
    State.WAITING: {
        **_DROPPED,
        Seen.SUSPENDED: (State.WAITING, (Act.COMPARE,)),
        Seen.GRANT: (State.GRANTED, (Act.RESUME,)),
        Seen.REFUSAL: (State.REFUSED, ()),
    },
    State.REFUSED: {
        **_DROPPED,
        Seen.SUSPENDED: (State.REFUSED, (Act.COMPARE,)),
        Seen.NEWS: (State.WAITING, (Act.DROP, Act.JOIN)),
    },
    State.GRANTED: {
        **_DROPPED,
        Seen.SUSPENDED: (State.GRANTED, ()),  # the patch is under way; if it conflicts, the object is looked at again
        Seen.RUNS: (State.RUNNING, (Act.CONFIRM, Act.FOLLOW)),
        Seen.RESUMED: (State.RUNNING, (Act.FOLLOW,)),
        Seen.DENIAL: (State.REFUSED, (Act.DROP,)),
    },
    State.RUNNING: {**_DROPPED, Seen.RUNS: (State.RUNNING, (Act.FOLLOW,))},
    State.GONE: {},
}


def step(state: State, seen: Seen) -> tuple[State, tuple[Act, ...]]:
    """Return the next state and what is done. An event without a meaning in a state has no effect: it came too late."""
    return LIFE[state].get(seen, (state, ()))


def seen_of(subject: Subject, left: Left | None) -> Seen:
    """Return what a stored object shows.

    ``left``: why it is not ours to let in (``left_waiting``); None: it is ours.
    """
    if subject.is_over:
        return Seen.ENDED
    if left is not None:
        return Seen.LEFT
    return Seen.SUSPENDED if subject.is_suspended else Seen.RUNS
