"""The plugins whose object is a pod: they differ in how it is built, and in whose end is the task's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from backoff_ctrl.k8s.kube.cluster.kinds import JSON, PODS
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.pod_building import pod_of_container, pod_of_template
from backoff_ctrl.k8s.tasks.plugins.pod_phases import demystify_pod_status, get_completion_time, is_terminal
from backoff_ctrl.k8s.tasks.plugins.protocol import (
    PluginContext,
    PluginEntry,
    PluginProperties,
    TaskContext,
    TaskMetadata,
)


class PodPlugin:
    """A task that is one pod."""

    def __init__(self, build: Callable[[TaskContext], JSON]) -> None:
        self._build = build

    def build_identity_resource(self, task: TaskMetadata) -> JSON:  # noqa: ARG002  # the same for every task
        return {"apiVersion": PODS.api_version, "kind": PODS.kind}

    def build_resource(self, task: TaskContext) -> JSON:
        return self._build(task)

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        return demystify_pod_status(resource, context)

    def get_properties(self) -> PluginProperties:
        return PluginProperties()

    def is_terminal(self, resource: JSON) -> bool:
        return is_terminal(resource)

    def get_completion_time(self, resource: JSON) -> datetime | None:
        return get_completion_time(resource)


# One container, ``spec.container``: the task ends with it; of the type ``raw-container``, with its pod.
container = PluginEntry("container", ("container", "python-task", "raw-container"), PODS, PodPlugin(pod_of_container))

# ``spec.podTemplate``: the task ends with its pod, or with its primary container if it names one, or has only one.
# Flyte's plugin of this name claims the types of the other two as well, and its stock registry refuses to start so.
pod = PluginEntry("pod", ("pod",), PODS, PodPlugin(partial(pod_of_template, needs_primary=False)))

# The same, but the task ends with ``spec.primaryContainer``; the other containers may go on.
sidecar = PluginEntry("sidecar", ("sidecar",), PODS, PodPlugin(partial(pod_of_template, needs_primary=True)))
