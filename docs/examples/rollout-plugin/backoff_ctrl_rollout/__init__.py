"""Tasks of the type ``rollout``: a Deployment, which has succeeded once all of its replicas serve."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from backoff_ctrl.k8s.plugins.phases import PhaseInfo, failed, queued, running, success
from backoff_ctrl.k8s.plugins.protocol import (
    Kind,
    PluginContext,
    PluginEntry,
    PluginProperties,
    TaskContext,
    TaskMetadata,
    TaskSpecError,
)

JSON = dict[str, Any]


class RolloutPlugin:
    """Every method is pure: it reads what it is given, and asks no cluster."""

    def build_identity_resource(self, task: TaskMetadata) -> JSON:
        """Say which kind of object a task has."""
        return {"apiVersion": "apps/v1", "kind": "Deployment"}

    def build_resource(self, task: TaskContext) -> JSON:
        """Return the object to create. Its name, namespace and labels are the manager's to add."""
        template = task.spec.get("template")
        if not template or template.get("kind") != "Deployment":
            raise TaskSpecError("spec.template", "a rollout needs a Deployment here")
        return {**template, **self.build_identity_resource(task.metadata)}

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        """Say what the Deployment's status means."""
        wanted = resource["spec"].get("replicas", 1)
        status = resource.get("status") or {}
        for condition in status.get("conditions") or ():
            if condition["type"] == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
                return failed("RolloutStuck", condition.get("message", "it makes no progress"), cleanup=True)
        if status.get("observedGeneration", 0) < resource["metadata"].get("generation", 1):
            return queued("its controller has not seen it yet")
        serving = min(status.get("updatedReplicas", 0), status.get("availableReplicas", 0))
        return success() if serving >= wanted else running(f"{serving} of {wanted} replicas serve")

    def get_properties(self) -> PluginProperties:
        """A Deployment stays when its task has succeeded: it serves."""
        return PluginProperties(disable_delete_resource_on_finalize=True)

    def is_terminal(self, resource: JSON) -> bool:
        """A Deployment may always change again."""
        return False

    def get_completion_time(self, resource: JSON) -> datetime | None:
        """It never ends."""
        return None


entry = PluginEntry(
    id="rollout",
    registered_task_types=("rollout",),
    resource_to_watch=Kind("apps/v1", "Deployment", "deployments"),
    plugin=RolloutPlugin(),
)
