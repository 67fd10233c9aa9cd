"""The PodTemplate ``default-pod-template-name`` that the pods of a namespace are built on, read now and then."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.plugins.protocol import Kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from backoff_ctrl.k8s.plugins.protocol import JSON, TaskContext

    from .objects import Objects

POD_TEMPLATES: Final = Kind("v1", "PodTemplate", "podtemplates")
_KEPT_MAX: Final = 1000


class PodTemplates:
    """Templates by namespace and name; each is believed for ``default-pod-template-resync``."""

    def __init__(self, objects: Objects, now: Callable[[], datetime], home: str = "") -> None:
        """``home`` is the manager's own namespace, whose template serves where a namespace has none."""
        self._objects, self._now = objects, now
        self._home = home or os.environ.get("POD_NAMESPACE", "")
        self._kept: dict[tuple[str, str], tuple[datetime, JSON | None]] = {}

    async def complete(self, task: TaskContext) -> TaskContext:
        """Return the task with its PodTemplate, if the settings name one. Raises ``ClusterError``."""
        name = task.config.default_pod_template_name
        if not name or task.pod_template is not None:
            return task
        found = await self._template(task, task.metadata.namespace, name)
        if found is None and self._home:
            found = await self._template(task, self._home, name)
        return replace(task, pod_template=found)

    async def _template(self, task: TaskContext, namespace: str, name: str) -> JSON | None:
        kept = self._kept.get((namespace, name))
        if kept and self._now() - kept[0] < task.config.default_pod_template_resync:
            return kept[1]
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        found = await self._objects.read(POD_TEMPLATES, namespace, name)
        self._kept[namespace, name] = (self._now(), found)
        return found
