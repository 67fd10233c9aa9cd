"""Keeps the latest news of every quota and watch, so that a new engine learns what its predecessor knew.

After an internal error the ledger starts a new engine. The watch goes on and does not send again what it has sent, so
the new engine learns it from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine.controller import Controller

    News = Callable[[Controller, float], object]
    Subject = tuple[str | None, str | None]
    """Namespace (None: all) and quota (None: the watch of its quotas)."""

HALT = "/halt"
"""Stands in a subject for a namespace that an operator halted: no quota has a slash in its name."""
POD_ENDS = ""
"""In a subject this means the watch of pods, in place of a quota's name: no quota has an empty one."""


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
        """Forget a namespace's lost watch: a new engine assumes none. While all namespaces are watched it stays."""
        if (None, None) not in self._news:
            self._news.pop((namespace, None), None)

    def clear(self) -> None:
        """Drop all news: a new engine failed on it."""
        self._news.clear()

    def repeat(self, engine: Controller, now: float) -> None:
        """Give all of it to a new engine: the quotas first, then the watches, which mean that no quota is missing."""
        kept = list(self._news.items())
        for _, news in sorted(kept, key=lambda item: item[0][1] is None):
            news(engine, now)
