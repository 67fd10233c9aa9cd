"""Small plugins of the tests' own: real ones, whose objects are pods, Jobs and config maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, failed, initializing, queued, running, success
from backoff_ctrl.k8s.tasks.plugins.protocol import (
    AbortBehavior,
    PluginContext,
    PluginEntry,
    PluginProperties,
    TaskContext,
    TaskMetadata,
    TaskSpecError,
)

POD = Kind("v1", "Pod", "pods")
JOB = Kind("batch/v1", "Job", "jobs")


@dataclass
class PodPlugin:
    """One pod of one container."""

    properties: PluginProperties = field(default_factory=PluginProperties)
    builds: int = 0

    def build_identity_resource(self, task: TaskMetadata) -> JSON:
        return {"apiVersion": "v1", "kind": "Pod"}

    def build_resource(self, task: TaskContext) -> JSON:
        """The container of the task, with what its template says of metadata."""
        self.builds += 1
        container = task.spec.get("container")
        if not isinstance(container, dict):
            raise TaskSpecError("spec.container", "a container is needed")
        spec = {"containers": [{"name": "main", "image": "busybox:1", **container}], "restartPolicy": "Never"}
        template = task.spec.get("podTemplate") or {}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": template.get("metadata") or {},
            "spec": {**spec, **(template.get("spec") or {})},
        }

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        status = resource.get("status") or {}
        match status.get("phase"):
            case "Running":
                return running("running")
            case "Succeeded":
                return success()
            case "Failed":
                return failed("Exited", "it exited with 1", retryable=True, cleanup=True)
        if any(each.get("status") == "False" for each in status.get("conditions") or ()):
            return queued("unschedulable")
        return queued("pending") if not status.get("containerStatuses") else initializing("starting")

    def get_properties(self) -> PluginProperties:
        return self.properties

    def is_terminal(self, resource: JSON) -> bool:
        return (resource.get("status") or {}).get("phase") in ("Succeeded", "Failed")

    def get_completion_time(self, resource: JSON) -> datetime | None:
        return None


class JobPlugin(PodPlugin):
    """A Job, as it is written in the task, which also looks at its pods."""

    def build_resource(self, task: TaskContext) -> JSON:
        self.builds += 1
        return dict(task.spec["template"])

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        """By the Job's conditions, and how many of its pods run."""
        for condition in (resource.get("status") or {}).get("conditions") or ():
            if condition["status"] == "True" and condition["type"] == "Complete":
                return success()
            if condition["status"] == "True" and condition["type"] == "Failed":
                return failed("JobFailed", "it failed")
        return running(f"{len(context.pods)} pods") if context.pods else queued("no pods yet")

    def is_terminal(self, resource: JSON) -> bool:
        conditions = (resource.get("status") or {}).get("conditions") or ()
        return any(each["status"] == "True" and each["type"] in ("Complete", "Failed") for each in conditions)

    def pod_labels(self, resource: JSON) -> Mapping[str, str]:
        return {"job-name": resource["metadata"]["name"]}


@dataclass
class AbortingPlugin(PodPlugin):
    """One that says itself how its pods are aborted."""

    behavior: AbortBehavior = field(default_factory=lambda: AbortBehavior(delete=True))

    def on_abort(self, task: TaskMetadata, resource: JSON) -> AbortBehavior:
        return self.behavior


NOTHING: Any = object()


@dataclass
class BuggyPlugin(PodPlugin):
    """One that can't count, unless it ``says`` something else, or ``understands``."""

    says: Any = NOTHING
    understands: bool = False

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        if self.understands:
            return super().get_task_phase(context, resource)
        if self.says is not NOTHING:
            return self.says  # type: ignore[no-any-return]
        raise ZeroDivisionError("of seven by nothing")


def entry(plugin: Any, *types: str, kind: Kind = POD, default: bool = False, name: str = "") -> PluginEntry:
    return PluginEntry(name or types[0], types, kind, plugin, is_default=default)


def task(
    name: str = "one",
    *,
    type: str = "container",  # noqa: A002 - the word of the task
    cpu: str = "1",
    namespace: str = "team",
    config: K8sPluginConfig | None = None,
    spec: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> TaskContext:
    """A task of one container, whose requests and limits are equal."""
    amounts = {"cpu": cpu, "memory": "1Mi"}
    container = {"container": {"resources": {"requests": amounts, "limits": amounts}}}
    about = {"uid": f"uid-{name}", "attempt": 0, "generated_name": f"{name}-0", **metadata}
    return TaskContext(
        TaskMetadata(namespace=namespace, name=name, **about),
        type,
        container if spec is None else spec,
        K8sPluginConfig() if config is None else config,
    )
