"""The first create in a namespace lists its quotas before it is sent, so that not even that one is refused.

Creates that come meanwhile wait for the list: it takes one round trip. If quotas may not be listed, or no answer comes,
they go on and learn from refusals.
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
"""What a create does first: join the line, list the quotas, or wait for another create's list."""
READ_PATIENCE: Final = 2.0
"""Seconds that a create waits for the list: it is sent without it rather than late."""
NAMESPACES_MAX: Final = 10_000
"""Above this number, namespaces without a recent create are forgotten."""


@dataclass(slots=True)
class _Listing:
    waiting: list[Callable[[], None]] = field(default_factory=list)


class FirstList:
    """Knows whose quotas were listed, and which creates wait for which list. Thread-safe.

    A namespace without a create for ``quiet`` seconds is listed again: the engine forgets it by then, too.
    """

    def __init__(self, quiet: float) -> None:
        """``quiet`` is in seconds. No namespace is known yet."""
        self._quiet = quiet
        self._lock = threading.Lock()
        self._met: dict[str, _Listing | float] = {}  # being listed, or the time of its last create

    def ask(self, namespace: str, go: Callable[[], None], now: float) -> FirstStep:
        """Say what a create in this namespace does first. For "wait", ``go`` is called once the list is there.

        A create that is to list the quotas ("read") must call ``done`` in any case.
        """
        with self._lock:
            met = self._met.get(namespace)
            if isinstance(met, _Listing):
                met.waiting.append(go)
                return "wait"
            known = met is not None and now - met < self._quiet
            self._met[namespace] = now if known else _Listing()
            if len(self._met) > NAMESPACES_MAX:
                self._sweep(now)
            return "go" if known else "read"

    def done(self, namespace: str, now: float) -> list[Callable[[], None]]:
        """Note that the list is over, whatever came of it; return the ``go`` of the waiting creates, oldest first."""
        with self._lock:
            met = self._met.get(namespace)
            self._met[namespace] = now
            return met.waiting if isinstance(met, _Listing) else []

    def _sweep(self, now: float) -> None:
        for namespace, met in list(self._met.items()):
            if not isinstance(met, _Listing) and now - met >= self._quiet:
                del self._met[namespace]


def quotas_of(answer: Answer) -> Iterator[tuple[str, ObservedQuota]]:
    """Yield the quotas of a list by name. An answer that is no such list yields none; malformed quotas are skipped."""
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
