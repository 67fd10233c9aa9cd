"""The bytes of bodies that are held, within a bound: each holder has at most what it leaves free."""

from __future__ import annotations

from collections import Counter
from typing import Final


class HeldBytes:
    """Counted by who holds them: an address, or a namespace. So the bytes of one let those of another in."""

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._of: Counter[str] = Counter()
        self.total = 0

    def have_room(self, who: str, more: int) -> bool:
        """Return whether ``who`` may hold so many more."""
        return self._of[who] + more <= self._most - self.total - more

    def add(self, who: str, more: int) -> None:
        """Count so many more, or less."""
        self.total += more
        self._of[who] += more
        if not self._of[who]:
            del self._of[who]
