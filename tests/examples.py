"""How many examples a property draws."""

from __future__ import annotations

from hypothesis import settings


def examples(usual: int) -> int:
    """Return that many in the usual profile; in the others fewer or more, as they do for all."""
    return max(5, round(usual * settings().max_examples / 100))
