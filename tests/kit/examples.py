"""The number of examples that a property test draws."""

from __future__ import annotations

from hypothesis import settings


def examples(usual: int) -> int:
    """Return ``usual`` in the default hypothesis profile, and proportionally fewer or more (at least 5) in others."""
    return max(5, round(usual * settings().max_examples / 100))
