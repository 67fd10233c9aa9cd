"""Paged lists: how to recognise a list, and how to follow its ``continue`` tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE: Final = 500
"""Objects per page: 500 pods are about 4 MB."""
PAGES_MAX: Final = 10_000
"""Pages per list: five million objects, more than any namespace holds."""


class EndlessListError(Exception):
    """A list repeats a ``continue`` token, or has more than ``PAGES_MAX`` pages."""


class Pages:
    """The ``continue`` tokens of one list. ``token`` is that of the next page to request; empty for the first."""

    def __init__(self) -> None:
        """Start at the first page: no token yet."""
        self.token = ""
        self._seen: set[str] = set()

    def go_on(self, metadata: Mapping[str, Any]) -> bool:
        """Read a page's metadata; return whether another page follows. Raises ``EndlessListError``."""
        more = metadata.get("continue")
        if not isinstance(more, str) or not more:
            return False
        if more in self._seen or len(self._seen) >= PAGES_MAX:
            raise EndlessListError
        self._seen.add(more)
        self.token = more
        return True


def is_list(answer: Mapping[str, Any]) -> bool:
    """Return whether an answer is a list of objects. Go writes an empty list as null."""
    return "items" in answer and isinstance(answer["items"], list | None)
