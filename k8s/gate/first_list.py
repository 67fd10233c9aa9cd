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
"""Seconds that a create waits for the list. After that it is sent without."""
NAMESPACES_MAX: Final = 10_000
"""Above this number, namespaces without a recent create are forgotten."""


@dataclass(slots=True)
class _Listing:
    waiting: list[Callable[[], None]] = field(default_factory=list)


class FirstList:
    """Knows whose quotas were listed, and which creates wait for which list. Thread-safe.

    A namespace without a create for ``quiet`` seconds is listed again: the engine forgets it by then, too. One whose
    quotas are watched is never listed: the watch has reported them all, and its news is newer than a list.
    """

    def __init__(self, quiet: float, is_watched: Callable[[str], bool] = lambda _: False) -> None:
        """``quiet`` is in seconds; ``is_watched`` says whether a namespace's quotas are watched. None is known yet."""
        self._quiet = quiet
        self._is_watched = is_watched
        self._lock = threading.Lock()
        self._met: dict[str, _Listing | float] = {}  # being listed, or the time of its last create

    def ask(self, namespace: str, go: Callable[[], None], now: float) -> FirstStep:
        """Say what a create in this namespace does first. For "wait", ``go`` is called once the list is there.

        A create that is to list the quotas ("read") must call ``done`` in any case.
        """
        known = self._is_known(namespace, now) or self._is_watched(namespace)
        with self._lock:
            met = self._met.get(namespace)
            if isinstance(met, _Listing):
                met.waiting.append(go)
                return "wait"
            if len(self._met) > NAMESPACES_MAX:
                self._sweep(now)
            self._met[namespace] = now if known else _Listing()  # last: if anything above fails, nobody is left waiting
            return "go" if known else "read"

    def _is_known(self, namespace: str, now: float) -> bool:
        met = self._met.get(namespace)
        return met is not None and not isinstance(met, _Listing) and now - met < self._quiet

    def done(self, namespace: str, now: float, owe: Callable[[Callable[[], None]], object]) -> None:
        """Note that the list is over, whatever came of it; owe the waiting creates their ``go``, oldest first."""
        with self._lock:
            met = self._met.get(namespace)
            if isinstance(met, _Listing):
                for go in met.waiting:
                    owe(go)
            self._met[namespace] = now  # last: if a Ctrl-C breaks this off, it is done again

    def _sweep(self, now: float) -> None:
        for namespace, met in list(self._met.items()):
            if not isinstance(met, _Listing) and now - met >= self._quiet:
                del self._met[namespace]


def quotas_of(answer: Answer) -> Iterator[tuple[str, ObservedQuota]]:
    """Yield the quotas of a list by name; none if the answer is no list of quotas. Malformed quotas are skipped."""
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
