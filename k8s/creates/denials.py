"""When a 403 counts: an API server that has just started denies everything until its RBAC is loaded.

Whoever was served before waits such a denial out, and so does a create that stood in line: it may be the first that is
sent. It counts once nothing else was answered for half a minute; then, and where nothing was ever served, each one
counts at once. The state is shared by all creates of a ledger. Pure.
"""

from __future__ import annotations

from typing import Final

WAITED_OUT: Final = 30.0
"""Seconds of nothing but denials after which they count. (A kube-apiserver denied for a second after its start.)"""
SUBJECTS_MAX: Final = 4096
"""Subjects remembered; beyond that the oldest is forgotten, and its next denial counts at once."""


class Denials:
    """Knows who was served. A subject is who asks for what, where. Each step is one of a dictionary: no lock."""

    def __init__(self) -> None:
        self._denied_since: dict[tuple[str, ...], float | None] = {}  # of whoever was served; None: not denied since

    def served(self, subject: tuple[str, ...]) -> None:
        """Note that the server did what was asked, or refused it for another reason than missing rights."""
        if self._denied_since.get(subject, 0.0) is not None:
            self._note(subject, None)

    def counts(self, subject: tuple[str, ...], now: float, *, waited: bool = False) -> bool:
        """Note a denial; say whether it counts. If not, ask again soon. ``waited``: who was denied stood in line."""
        if subject not in self._denied_since and not waited:
            return True
        since = self._denied_since.get(subject)
        if since is None:
            self._note(subject, now)
        elif now - since >= WAITED_OUT:
            self._denied_since.pop(subject, None)
            return True
        return False

    def _note(self, subject: tuple[str, ...], since: float | None) -> None:
        self._denied_since[subject] = since
        if len(self._denied_since) > SUBJECTS_MAX:
            self._denied_since.pop(next(iter(self._denied_since)), None)
