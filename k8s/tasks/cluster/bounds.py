"""How much the operator keeps of the Tasks of one namespace: those of one tenant leave its memory to the others.

A Task may have 1.5 MB, which take 20 MB once they are parsed. So a spec beyond a bound is refused: its Task fails, with
a sentence. A Task beyond the share of its namespace is left out until others of that namespace have ended. Of a Task
that has ended, and of one that is left out and being deleted, the small fields are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import is_going
from backoff_ctrl.k8s.kube.watching.shares import Shares, size_of
from backoff_ctrl.k8s.tasks.model import JSON
from backoff_ctrl.k8s.tasks.stepping import has_begun
from backoff_ctrl.k8s.tasks.store import Stored

from .objects import Read

SPEC_MAX: Final = 1 << 20
"""Bytes of memory of the spec, the labels and the annotations of one Task."""
TASK_MAX: Final = 4 << 20
"""Bytes of one Task with its status, and what is built from its spec."""
NAMESPACE_MAX: Final = 32 << 20
"""Bytes of the unfinished Tasks of one namespace: about 2,000."""
ALL_MAX: Final = 96 << 20
SMALL: Final = 4 << 10
"""Bytes of a field that is kept of a Task that has ended."""
TOO_LARGE: Final = (
    f"spec: it is more than the operator keeps of one Task ({SPEC_MAX >> 20} MiB of memory, with labels and "
    "annotations): put what is large into a ConfigMap, or into the image"
)
LEFT_OUT: Final = (
    "the Tasks of its namespace that have not ended are more than the operator keeps of one namespace: it begins once "
    "others have ended, or were deleted"
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A Task beyond the share of its namespace. ``size``: bytes of memory of what would be kept."""

    namespace: str
    name: str
    uid: str
    size: int

    @property
    def body(self) -> JSON:
        """What identifies it, as an object."""
        return {"metadata": {"namespace": self.namespace, "name": self.name, "uid": self.uid}}

    @property
    def sentence(self) -> str:
        return f"Task {self.namespace}/{self.name}: {LEFT_OUT}"


class TaskShares:
    """See the module. On one event loop."""

    def __init__(self, of_namespace: int = NAMESPACE_MAX, of_all: int = ALL_MAX, of_spec: int = SPEC_MAX) -> None:
        self._of_spec = of_spec
        self._shares = Shares(TASK_MAX, of_namespace, of_all, guaranteed=min(of_namespace, 2 * of_spec))

    def is_too_large(self, read: Read) -> bool:
        return size_of([read.spec, read.metadata], self._of_spec) > self._of_spec

    def take(self, task: Stored, status: Mapping[str, Any], *, known: bool) -> LeftOut | None:
        """Count what is kept of a Task that has not ended; None: it is to be kept.

        One that is ``known``, or has begun, is kept in any case: it was within the share when it came.
        """
        what = {"spec": task.spec, "metadata": task.metadata, "status": status}
        force = known or has_begun(task.status)
        if self._shares.take(task.namespace, task.uid, what, force=force) is None:
            return None
        return LeftOut(task.namespace, task.name, task.uid, size_of(what, TASK_MAX))

    def give_back(self, namespace: str, uid: str) -> None:
        self._shares.give_back(namespace, uid)

    def has_room(self, left: LeftOut) -> bool:
        return self._shares.has_room(left.namespace, left.size)


def refused(read: Read) -> Read:
    """Return what is kept of a spec that is too large."""
    return replace(slim(read), refused=TOO_LARGE)


def slim(read: Read) -> Read:
    """Return the small fields of a spec."""
    metadata = {part: _small(fields) for part, fields in read.metadata.items() if isinstance(fields, dict)}
    return replace(read, metadata=_small(metadata), spec={"type": "", **_small(read.spec)})


def _small(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if size_of(value, SMALL) <= SMALL}


def is_over(task: Stored, body: Mapping[str, Any]) -> bool:
    """Return whether the whole of a Task is not needed any more."""
    return not task.open or (is_going(body) and not has_begun(task.status))
