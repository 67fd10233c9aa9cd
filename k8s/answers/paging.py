"""Lists that come page by page: what is one, and where it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE: Final = 500
"""Objects in one answer: 500 pods are about 4 MB."""
PAGES_MAX: Final = 10_000
"""Pages of a list: five million objects are more than any namespace has."""


class EndlessListError(Exception):
    """A list that goes on with a page that it has given, or without end."""


class Pages:
    """The ``continue`` tokens of one list. ``token``: of the page to ask for; empty for the first."""

    def __init__(self) -> None:
        """Begin with the first page."""
        self.token = ""
        self._seen: set[str] = set()

    def go_on(self, metadata: Mapping[str, Any]) -> bool:
        """Take in what a page says of itself; say whether there is another. Raises ``EndlessListError``."""
        more = metadata.get("continue")
        if not isinstance(more, str) or not more:
            return False
        if more in self._seen or len(self._seen) >= PAGES_MAX:
            raise EndlessListError
        self._seen.add(more)
        self.token = more
        return True


def is_list(answer: Mapping[str, Any]) -> bool:
    """Say whether an answer is a list of objects; Go writes an empty one as null."""
    return "items" in answer and isinstance(answer["items"], list | None)
