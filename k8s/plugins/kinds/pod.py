"""The plugin ``pod``: a task that is a pod template, ``spec.podTemplate``, all of whose containers have to succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.plugins.pods.building import pod_of_template
from backoff_ctrl.k8s.plugins.pods.plugin import PODS, PodPlugin
from backoff_ctrl.k8s.plugins.protocol import PluginEntry

if TYPE_CHECKING:
    from backoff_ctrl.k8s.plugins.protocol import JSON, TaskContext


class PodTemplatePlugin(PodPlugin):
    """The task ends with its pod, or with its primary container if it names one, or has only one."""

    def build_resource(self, task: TaskContext) -> JSON:
        """Return the pod. Raises ``TaskSpecError``."""
        return pod_of_template(task, needs_primary=False)


# Flyte's plugin of this name claims the types of the other two as well, and its stock registry refuses to start so.
entry = PluginEntry("pod", ("pod",), PODS, PodTemplatePlugin())
