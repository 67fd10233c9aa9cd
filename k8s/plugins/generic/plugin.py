"""The generic plugin: builds the task's custom resource, and tells its phase by the operator's config."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.plugins.config.durations import format_duration
from backoff_ctrl.k8s.plugins.phases import ErrorKind, Phase, PhaseInfo, failed
from backoff_ctrl.k8s.plugins.pods.reading import mapping, moment
from backoff_ctrl.k8s.plugins.protocol import Kind, PluginEntry, PluginProperties, TaskSpecError
from backoff_ctrl.k8s.plugins.related import cause_of_failure, explained, never_starting, own_pods, still_starting
from backoff_ctrl.k8s.plugins.templates import object_of

from .defaults import add_defaults
from .parts import gang_parts
from .states import last_ended, ruling_on, said_by, told_by

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from backoff_ctrl.k8s.charges.parts import Part
    from backoff_ctrl.k8s.plugins.protocol import JSON, PluginContext, TaskContext, TaskMetadata

    from .config import OperatorConfig
    from .states import Ruling

OPERATOR_TIMEOUT: Final = "OperatorTimeout"
"""The code of an object that no operator has looked at in time."""


class GenericPlugin:
    """Runs the custom resources of one operator. The task's ``template`` is the resource itself."""

    def __init__(self, config: OperatorConfig) -> None:
        """Serve the operator that ``config`` describes."""
        self.config = config
        found = config.resource
        self.kind = Kind(found.api_version, found.kind, found.plural)

    def build_identity_resource(self, task: TaskMetadata) -> JSON:
        """Return ``apiVersion`` and ``kind``."""
        del task
        return {"apiVersion": self.kind.api_version, "kind": self.kind.kind}

    def build_resource(self, task: TaskContext) -> JSON:
        """Return the task's template, with the platform's defaults in the pod templates that the config names."""
        made = object_of(task, self.kind)
        if task.spec.get("resources"):
            raise TaskSpecError(
                "spec.resources", f"a {self.kind.kind} makes pods of several kinds: write their resources into its spec"
            )
        add_defaults(self.config, made, task)
        gang_parts(self.config, self.kind.resource, made)  # what can't be read can't wait for room either
        return made

    def parts(self, resource: Mapping[str, object]) -> tuple[Part, ...]:
        """Return the objects that the operator will make of a resource. Raises ``TaskSpecError``."""
        return gang_parts(self.config, self.kind.resource, resource)

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        """Say what the state means, and what the object's pods tell beside it."""
        told = told_by(self.config, resource)
        if told.state == "" and self._is_suspended(resource):
            return self._with_facts(PhaseInfo(Phase.QUEUED, reason="Suspended"), resource)
        ruling = ruling_on(self.config, resource, told)
        overdue = None if self._is_held(resource, told.state) else self._overdue(context, resource, ruling)
        if overdue is not None:
            return overdue
        pods = own_pods(context, self.pod_labels(resource)) if self.config.pods else []
        info = self._with_facts(_info(ruling), resource)
        if info.phase.is_failure:
            return explained(info, cause_of_failure(pods, context, latest=False))
        if info.phase.is_terminal:
            return info
        stuck = never_starting(pods, context)
        if stuck is not None:
            return replace(stuck, custom=info.custom)
        return info if info.phase is Phase.RUNNING else info.with_reason(still_starting(pods, context))

    def pod_labels(self, resource: JSON) -> Mapping[str, str]:
        """Return the labels of the pods that are looked at; empty while the object doesn't tell one of them."""
        if self.config.pods is None:
            return {}
        found = {name: said_by(value, resource) for name, value in self.config.pods.labels.items()}
        return found if all(found.values()) else {}

    def get_properties(self) -> PluginProperties:
        """Say how long names may be, and whether objects are owned."""
        return PluginProperties(
            disable_inject_owner_references=not self.config.owned,
            generated_name_max_length=self.config.name_max_length,
        )

    def is_terminal(self, resource: JSON) -> bool:
        """Say whether the state is one that ends a task."""
        return ruling_on(self.config, resource, told_by(self.config, resource)).phase.is_terminal

    def get_completion_time(self, resource: JSON) -> datetime | None:
        """Return the first of the completion times that is set, else since when the last condition holds."""
        told = told_by(self.config, resource)
        if not ruling_on(self.config, resource, told).phase.is_terminal:
            return None
        times = (moment(value) for path in self.config.completion_time for value in path.all(resource))
        return next(filter(None, times), told.since)

    def _is_suspended(self, resource: JSON) -> bool:
        return self.config.suspended is not None and self.config.suspended.first(resource) is True

    def _is_held(self, resource: JSON, state: str) -> bool:
        """Whether the object is held back on purpose, or was until a moment ago."""
        held = self.config.started.not_in if self.config.started else ()
        return self._is_suspended(resource) or state in held

    def _overdue(self, context: PluginContext, resource: JSON, ruling: Ruling) -> PhaseInfo | None:
        """Return a failure where the operator has had its time, and hasn't looked at the object."""
        started = self.config.started
        if started is None or not started.within or ruling.phase is not Phase.QUEUED:
            return None
        known = (moment(mapping(resource.get("metadata")).get("creationTimestamp")), last_ended(self.config, resource))
        since = max(filter(None, known), default=None)  # a job that is resumed is started anew
        if started.path.first(resource) or since is None or context.now - since <= started.within:
            return None
        message = (
            f"the operator hasn't started the {self.kind.kind} within {format_duration(started.within)} of its "
            "creation, or of its resumption: is it running, and does it watch this namespace?"
        )
        return failed(OPERATOR_TIMEOUT, message, kind=ErrorKind.SYSTEM, retryable=True, cleanup=True)

    def _with_facts(self, info: PhaseInfo, resource: JSON) -> PhaseInfo:
        """Add what the config wants to be shown of the object, and when it ended."""
        shown = {name: value for name, path in self.config.show.items() if (value := path.first(resource)) is not None}
        ended = self.get_completion_time(resource) if info.phase.is_terminal else None
        return replace(info, custom=shown, occurred_at=ended or info.occurred_at)


def entry_of(config: OperatorConfig) -> PluginEntry:
    """Return the registry's entry for an operator."""
    plugin = GenericPlugin(config)
    return PluginEntry(config.id, tuple(config.task_types), plugin.kind, plugin)


def _info(ruling: Ruling) -> PhaseInfo:
    if not ruling.phase.is_failure:
        return PhaseInfo(ruling.phase, reason=ruling.reason, occurred_at=ruling.since)
    info = failed(
        ruling.code,
        ruling.reason,
        kind=ruling.kind,
        retryable=ruling.phase is Phase.RETRYABLE_FAILURE,
        cleanup=ruling.cleanup,
    )
    return replace(info, occurred_at=ruling.since)
