"""What a caller asks of the gate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine.explaining import Explanation


@dataclass
class Creation:
    """What a caller asks for: one POST of ``body`` to a namespaced collection.

    ``server`` and ``credential`` name the overload window (any strings that tell two of them apart); ``resource``
    is ``pods`` or ``jobs.batch``. ``timeout`` bounds the waiting, in seconds; ``key`` is an idempotency key: the
    same key gives the same object, across restarts too. ``on_wait`` is called with the engine's Explanation (or
    None) whenever the create stands in line.
    """

    server: str
    credential: str
    namespace: str
    resource: str
    body: dict[str, Any]
    priority: int = 0
    timeout: float | None = None
    key: str | None = None
    on_wait: Callable[[Explanation | None], object] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Options:
    """What ``waiting`` was given."""

    timeout: float | None = None
    priority: int = 0
    key: str | None = None
    on_wait: Callable[[Any], object] | None = None
