"""The plugin ``sidecar``: a pod template whose primary container is the task; the others only serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.plugins.pods.building import pod_of_template
from backoff_ctrl.k8s.plugins.pods.plugin import PODS, PodPlugin
from backoff_ctrl.k8s.plugins.protocol import PluginEntry

if TYPE_CHECKING:
    from backoff_ctrl.k8s.plugins.protocol import JSON, TaskContext


class SidecarPlugin(PodPlugin):
    """The task ends with ``spec.primaryContainer``, whatever the other containers do."""

    def build_resource(self, task: TaskContext) -> JSON:
        """Return the pod. Raises ``TaskSpecError``."""
        return pod_of_template(task, needs_primary=True)


entry = PluginEntry("sidecar", ("sidecar",), PODS, SidecarPlugin())
