"""What all plugins whose object is a pod have in common: everything but how the pod is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.plugins.protocol import Kind, PluginProperties

from .status import demystify_pod_status, get_completion_time, is_terminal

if TYPE_CHECKING:
    from datetime import datetime

    from backoff_ctrl.k8s.plugins.phases import PhaseInfo
    from backoff_ctrl.k8s.plugins.protocol import JSON, PluginContext, TaskMetadata

PODS: Final = Kind("v1", "Pod", "pods")


class PodPlugin:
    """A task that is one pod; a plugin adds ``build_resource``."""

    def build_identity_resource(self, task: TaskMetadata) -> JSON:  # noqa: ARG002  # the same for every task
        """Return what every pod begins with."""
        return {"apiVersion": PODS.api_version, "kind": PODS.kind}

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        """Say what the pod's status means."""
        return demystify_pod_status(resource, context)

    def get_properties(self) -> PluginProperties:
        """Return the defaults."""
        return PluginProperties()

    def is_terminal(self, resource: JSON) -> bool:
        """Say whether the pod has ended."""
        return is_terminal(resource)

    def get_completion_time(self, resource: JSON) -> datetime | None:
        """Return when it ended."""
        return get_completion_time(resource)
