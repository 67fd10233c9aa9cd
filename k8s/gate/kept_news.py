"""Keeps the latest news of every quota and watch, so that a new engine learns what its predecessor knew.

After an internal error the ledger begins with a new engine. The watch goes on meanwhile, and does not repeat itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine.controller import Controller

    News = Callable[[Controller, float], None]
    Subject = tuple[str | None, str | None]
    """Namespace (None: all) and quota (None: the watch of its quotas)."""

POD_ENDS = ""
"""Stands in a subject for the watch of pods: no quota has an empty name."""


class KeptNews:
    """The latest news of each subject, in order of arrival. Changes are single steps of the dict and need no lock."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._news: dict[Subject, News] = {}

    def keep(self, subject: Subject, news: News) -> None:
        """Replace what was known of the subject."""
        self._news.pop(subject, None)  # so that the order is that of arrival
        self._news[subject] = news

    def drop(self, subject: Subject) -> None:
        """Forget the subject."""
        self._news.pop(subject, None)

    def drop_lost(self, namespace: str | None) -> None:
        """Drop the news that a watch was lost: a new engine assumes no watch. Kept if all namespaces are watched."""
        if (None, None) not in self._news:
            self._news.pop((namespace, None), None)

    def clear(self) -> None:
        """Drop all news: a new engine failed on it."""
        self._news.clear()

    def repeat(self, engine: Controller, now: float) -> None:
        """Give all of it to a new engine: the quotas first, then the watches, which say that no quota is missing."""
        kept = list(self._news.items())
        for _, news in sorted(kept, key=lambda item: item[0][1] is None):
            news(engine, now)
