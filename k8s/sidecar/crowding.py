"""Which connection ends where one more comes than there are places for.

What takes a place may keep it: a watch lasts as long as its caller likes, and kubectl's create is held for up to a day.
So an address that has more than its share of the places loses its own first, and one that has more than any other may
lose what is in use: a pod that takes all places keeps no other pod out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from .passing import Guest, Shared

SHARE: Final = 8
"""An address that has more than one of so many parts of the places loses its own first."""


G = TypeVar("G", bound="Guest")
Since: TypeAlias = "tuple[Guest, float]"


def make_room(shared: Shared, newcomer: str, now: float) -> bool:
    """End a connection for one more from this address; return whether there is one that may end."""
    leaves = _leaver(shared, newcomer, now)
    if leaves is None:
        return False
    leaves.give_way()
    return True


def _leaver(shared: Shared, newcomer: str, now: float) -> Guest | None:
    crowd, most = max(shared.addresses.items(), key=itemgetter(1), default=("", 0))
    is_over = most * SHARE > shared.limits.connections

    def may_leave(each: Guest) -> bool:
        return not is_over or each.address == crowd

    silent: list[Since | None] = [_oldest(shared.silent, may_leave), _oldest(shared.handshakes, may_leave)]
    if any(silent):
        return min(filter(None, silent), key=itemgetter(1))[0]
    owing = {each: each.heard for each in shared.callers if each.owes and may_leave(each)}
    quiet: list[Since | None] = [
        _oldest(shared.idle, may_leave),
        min(owing.items(), key=itemgetter(1), default=None),
    ]
    found = min(filter(None, quiet), key=itemgetter(1), default=None)
    if found is not None and now - found[1] >= shared.limits.spare_s:
        return found[0]
    if most <= shared.addresses[newcomer] + 1:
        return None
    return max((each for each in shared.callers if each.address == crowd), key=attrgetter("heard"), default=None)


def _oldest(since: Mapping[G, float], may_leave: Callable[[Guest], bool]) -> Since | None:
    """Return the first, which is the oldest, that may leave."""
    return next(((each, when) for each, when in since.items() if may_leave(each)), None)
