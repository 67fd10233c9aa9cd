"""The first create into a namespace reads its quotas before it is sent, so that not even that one is refused.

Creates that come while the reading is under way wait for it: it takes one round trip. What came of it does not matter
here: where quotas may not be read, or the answer does not come, creates go on and learn.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from backoff_ctrl.k8s.charges.quotas import UnreadableQuotaError, read_quota

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backoff_ctrl.engine.quotas import ObservedQuota
    from backoff_ctrl.k8s.answers.answer import Answer

FirstStep: TypeAlias = Literal["go", "read", "wait"]
"""What a create does first."""
READ_PATIENCE: Final = 2.0
"""Seconds that a create waits for the reading: it would be sent unread rather than late."""
NAMESPACES_MAX: Final = 10_000
"""Beyond this many the namespaces that have been quiet for too long are swept out."""


@dataclass(slots=True)
class _Reading:
    waiting: list[Callable[[], None]] = field(default_factory=list)


class FirstContact:
    """Which namespaces are known, and who waits for the reading of which. Thread-safe.

    A namespace without a create for ``quiet`` seconds is a stranger again: the engine forgets it then, too.
    """

    def __init__(self, quiet: float) -> None:
        """Know nobody."""
        self._quiet = quiet
        self._lock = threading.Lock()
        self._met: dict[str, _Reading | float] = {}  # being read, or when it was last spoken of

    def ask(self, namespace: str, go: Callable[[], None], now: float) -> FirstStep:
        """Say what a create of this namespace does first; ``go`` is called once the reading it waits for is over.

        Who is told to read must call ``done`` in any case.
        """
        with self._lock:
            met = self._met.get(namespace)
            if isinstance(met, _Reading):
                met.waiting.append(go)
                return "wait"
            known = met is not None and now - met < self._quiet
            self._met[namespace] = now if known else _Reading()
            if len(self._met) > NAMESPACES_MAX:
                self._sweep(now)
            return "go" if known else "read"

    def done(self, namespace: str, now: float) -> list[Callable[[], None]]:
        """Take in that the reading is over, well or not; return whom to let go on, in the order they came."""
        with self._lock:
            met = self._met.get(namespace)
            self._met[namespace] = now
            return met.waiting if isinstance(met, _Reading) else []

    def _sweep(self, now: float) -> None:
        for namespace, met in list(self._met.items()):
            if not isinstance(met, _Reading) and now - met >= self._quiet:
                del self._met[namespace]


def quotas_of(answer: Answer) -> Iterator[tuple[str, ObservedQuota]]:
    """Read a list of quotas, by name; nothing of an answer that is no such list, nor quotas that can't be read."""
    listed = answer.json() if answer.ok else None
    items = None if listed is None else listed.get("items")
    for item in items if isinstance(items, list) else ():
        metadata = item.get("metadata") if isinstance(item, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        try:
            seen = read_quota(item)
        except UnreadableQuotaError:
            continue
        if isinstance(name, str) and name:
            yield name, seen
