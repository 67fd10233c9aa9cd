"""What carries an attempt out: the plugin manager, as the reconciler sees it; and what it is told of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from backoff_ctrl.k8s.plugins.protocol import TaskContext, TaskMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.plugins.config import K8sPluginConfig
    from backoff_ctrl.k8s.plugins.phases import PhaseInfo

    from .store import Stored

Key: TypeAlias = tuple[str, int]
"""A task's uid and the number of the attempt: one object each."""


class Handled(Protocol):
    """What became of an attempt: its phase, and what has to be given back at the next step."""

    @property
    def info(self) -> PhaseInfo:
        """Its phase, with the reason, the message and the code that the task's status shows."""

    @property
    def state(self) -> dict[str, Any] | None:
        """What the next step is given."""


class Executor(Protocol):
    """Carries attempts out. Each method may be called again with the same state, after a restart too."""

    async def handle(self, task: TaskContext, state: dict[str, Any] | None) -> Handled:
        """Do the next thing for an attempt, and say how it is. Never waits for quota."""

    async def abort(self, task: TaskContext, state: dict[str, Any] | None) -> Handled:
        """End an attempt."""

    async def sweep(self, task: TaskContext, state: dict[str, Any] | None) -> None:
        """End what has appeared behind the abort of an attempt; ``state`` is what the abort returned."""

    async def finalize(self, task: TaskContext, state: dict[str, Any] | None) -> None:
        """Let go of what an attempt that has ended still holds."""


def context_of(task: Stored, store: str, config: K8sPluginConfig) -> TaskContext:
    """Return what the plugin manager is told of a task's present attempt."""
    spec: Mapping[str, Any] = task.spec
    attempt = task.status.attempt
    metadata = TaskMetadata(
        namespace=task.namespace,
        name=task.name,
        uid=task.uid,
        attempt=attempt,
        generated_name=f"{task.name}-{task.uid[:8]}-{attempt}",
        store=store,
        labels=task.metadata.get("labels", {}),
        annotations=task.metadata.get("annotations", {}),
        service_account=spec.get("serviceAccount", ""),
        interruptible=spec.get("interruptible", False),
        project=spec.get("project", ""),
        domain=spec.get("domain", ""),
        priority=spec.get("priority", 0),
    )
    return TaskContext(metadata, spec["type"], spec, config)
