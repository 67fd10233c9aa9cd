"""Paths of objects at an API server, out of words that others may have written: owners, Secrets, names in a status.

The API server decodes a path before it splits it, so that no quoting keeps a slash within a name; and clients resolve
dots before they send. So a word that can't be one segment of a path makes no path: ``PathError``. No object can have
such a name, as client-go says, too (``IsValidPathSegmentName``). All other words are quoted.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

LONGEST: Final = 253
"""Characters of a name, a namespace, a group or a plural: the API server stores no longer ones."""


class PathError(ValueError):
    """No object can be there: a word of its path is empty, too long, dots alone, or has a slash or a percent sign."""


def group_path(api_version: str) -> str:
    """Return the path of an API group with its version: ``/apis/batch/v1``, ``/api/v1``. Raises ``PathError``."""
    words = api_version.split("/")
    if len(words) > 2:
        raise PathError(f"{api_version[:80]!r} is no group with a version")
    return "/".join(("/apis" if len(words) == 2 else "/api", *map(_segment, words)))


def path_to(
    group: str, plural: str, *, namespace: str | None = None, name: str | None = None, part: str | None = None
) -> str:
    """Return the path of all objects of a kind, of those of a namespace, of one by its name, or of a part of it.

    ``group`` is a ``group_path``. Raises ``PathError``.
    """
    within = () if namespace is None else ("namespaces", _segment(namespace))
    named = [_segment(word) for word in (plural, name, part) if word is not None]
    return "/".join((group, *within, *named))


def _segment(word: str) -> str:
    if not word or len(word) > LONGEST or word in {".", ".."} or "/" in word or "%" in word:
        raise PathError(f"{word[:80]!r} can't be in the path of an object")
    return quote(word, safe="", errors="replace")
