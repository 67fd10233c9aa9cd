"""Tasks of the type ``rollout``: a Deployment, which has succeeded once all of its replicas serve."""

from __future__ import annotations

from datetime import datetime

from backoff_ctrl.plugins import (
    JSON,
    Kind,
    PhaseInfo,
    PluginContext,
    PluginEntry,
    PluginProperties,
    TaskContext,
    TaskMetadata,
    TaskSpecError,
    failed,
    object_of,
    pod_template,
    queued,
    running,
    success,
)

DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")


class RolloutPlugin:
    """Every method is pure: it reads what it is given, and asks no cluster."""

    def build_identity_resource(self, task: TaskMetadata) -> JSON:
        """Say which kind of object a task has."""
        return {"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind}

    def build_resource(self, task: TaskContext) -> JSON:
        """Return the object to create. Its name, namespace and labels are the manager's to add."""
        made = object_of(task, DEPLOYMENT)
        template = made["spec"].get("template")
        made["spec"]["template"] = pod_template(task, template, "spec.template.spec.template")
        made["spec"]["progressDeadlineSeconds"] = patience_of(task)
        return made

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


def patience_of(task: TaskContext) -> int:
    """Read the plugin's own parameter, the seconds in which a replica has to be there."""
    custom = task.spec.get("custom", {})
    if not isinstance(custom, dict) or custom.keys() - {"patienceSeconds"}:
        raise TaskSpecError("spec.custom", "a rollout has one parameter, such as {patienceSeconds: 120}")
    seconds = custom.get("patienceSeconds", 600)
    if type(seconds) is not int or seconds < 1:
        raise TaskSpecError("spec.custom.patienceSeconds", "must be a whole number of seconds, 1 or more")
    return seconds


entry = PluginEntry(
    id="rollout",
    registered_task_types=("rollout",),
    resource_to_watch=DEPLOYMENT,
    plugin=RolloutPlugin(),
)
