"""What a caller asks the gate to create, and the options of one create."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine.explaining import Explanation


@dataclass
class Creation:
    """One POST of ``body`` to a namespaced collection.

    ``server`` and ``credential`` select the overload window (any strings that tell two of them apart); ``resource``
    is ``pods`` or ``jobs.batch``. ``timeout`` limits the waiting, in seconds. ``key`` is an idempotency key: the
    same key gives the same object, even after a restart. ``on_wait`` is called with the engine's Explanation (or
    None) each time the create starts to wait in line.
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

    @property
    def label(self) -> str:
        """How people know it: resource, namespace and name, ``pods team/web-*`` where the name is still to be drawn."""
        return f"{self.resource} {self.namespace}/{self.name}"

    @property
    def name(self) -> str:
        """The name in the manifest; its ``generateName`` followed by ``*`` where it has none."""
        metadata = self.body.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        return metadata.get("name") or f"{metadata.get('generateName') or ''}*"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a create that ``waiting`` sets. They have the meanings of the fields of ``Creation``."""

    timeout: float | None = None
    priority: int = 0
    key: str | None = None
    on_wait: Callable[[Any], object] | None = None
