"""The plugin ``container``: a task that is one container, ``spec.container``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.plugins.pods.building import pod_of_container
from backoff_ctrl.k8s.plugins.pods.plugin import PODS, PodPlugin
from backoff_ctrl.k8s.plugins.protocol import PluginEntry

if TYPE_CHECKING:
    from backoff_ctrl.k8s.plugins.protocol import JSON, TaskContext


class ContainerPlugin(PodPlugin):
    """The task ends with its container; of the type ``raw-container``, with its pod."""

    def build_resource(self, task: TaskContext) -> JSON:
        """Return the pod. Raises ``TaskSpecError``."""
        return pod_of_container(task)


entry = PluginEntry("container", ("container", "python-task", "raw-container"), PODS, ContainerPlugin())
