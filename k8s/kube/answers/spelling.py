"""Misspelt names: which known one is meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

LISTED_MAX: Final = 30
"""Names that a hint lists."""
_LONG: Final = 128
"""A longer name is no misspelt one: its distance to others would take long to compute."""


def misspelt(written: str, known: Iterable[str]) -> str | None:
    """Return the known name that differs from the written one by a slip; None: by more, so it may be another name.

    A slip is another case, another separator, or a letter left out, added, changed or swapped: two in a longer name.
    """
    if len(written) > _LONG:
        return None
    plain = _plain(written)
    most = 2 if len(plain) > 5 else 1
    found = ((_distance(plain, _plain(each), most), abs(len(each) - len(written)), each) for each in known)
    distance, _, name = min(found, default=(most + 1, 0, ""))
    return name if distance <= most else None


def abbreviated(written: str, known: Iterable[str]) -> str | None:
    """Return the shortest known name that three or four letters stand for, as ``cmd`` for ``command``, or None."""
    plain = _plain(written)
    if len(plain) not in (3, 4):
        return None
    return min((each for each in known if _shortens(plain, _plain(each))), key=len, default=None)


def _shortens(written: str, known: str) -> bool:
    """Return whether letters of a longer name are left out, but for its first one."""
    left = iter(known)
    return written[0] == known[:1] and len(written) < len(known) and all(letter in left for letter in written)


def near(written: str, known: Iterable[str]) -> str | None:
    """Return the known name that resembles an unknown one most, if any resembles it."""
    plain: dict[str, str] = {}
    for each in known:
        plain.setdefault(_plain(each), each)
    if (slip := misspelt(written, plain.values())) is not None:
        return slip
    alike = get_close_matches(_plain(written[:_LONG]), plain, 1)
    return plain[alike[0]] if alike else None


def hint(written: str, known: Iterable[str]) -> str:
    """Return the known name that an unknown one resembles most, as a question, or else all known ones."""
    names = list(known) if isinstance(known, list | tuple) else sorted(known)
    if (meant := near(written, names)) is not None:
        return f"did you mean {meant}?"
    left_out = ", ..." if len(names) > LISTED_MAX else ""
    return f"choose from {', '.join(names[:LISTED_MAX])}{left_out}" if names else "leave it out"


def _plain(name: str) -> str:
    """Return a name without what spellings of one word differ in."""
    return name.replace("-", "").replace("_", "").lower()


def _distance(one: str, other: str, most: int) -> int:
    """Return how many letters are left out, added, changed, or swapped with the next one; ``most + 1``: more."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return min(row[-1], most + 1)
