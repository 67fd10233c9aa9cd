"""The generic plugin: builds the task's custom resource, and tells its phase by the operator's config."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.plugins.config.durations import format_duration
from backoff_ctrl.k8s.plugins.marks import is_going, metadata_of
from backoff_ctrl.k8s.plugins.phases import ErrorKind, Phase, PhaseInfo, failed
from backoff_ctrl.k8s.plugins.pods.checked import refuse_custom
from backoff_ctrl.k8s.plugins.pods.reading import mapping, mappings, moment
from backoff_ctrl.k8s.plugins.protocol import Kind, PluginEntry, PluginProperties, TaskSpecError
from backoff_ctrl.k8s.plugins.related import cause_of_failure, explained, never_starting, own_pods, still_starting
from backoff_ctrl.k8s.plugins.templates import object_of

from .defaults import add_defaults
from .parts import gang_parts
from .states import last_ended, ruling_on, said_by, told_by, word_of

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
        refuse_custom(task)
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
        stuck = never_starting(pods, context) or self._lost(context, resource, told.state)
        if stuck is not None:
            return replace(stuck, custom=info.custom)
        return info if info.phase is Phase.RUNNING else info.with_reason(still_starting(pods, context))

    def pod_labels(self, resource: JSON) -> Mapping[str, str]:
        """Return the labels of the pods that are looked at; empty while the object doesn't tell one of them."""
        if self.config.pods is None:
            return {}
        found = {name: said_by(value, resource) for name, value in self.config.pods.labels.items()}
        return found if all(found.values()) else {}

    def pod_names(self, resource: JSON) -> tuple[str, ...]:
        """Return the names of the main pods, in the states in which their failure counts."""
        main = self.config.pods.main if self.config.pods else None
        if main is None or told_by(self.config, resource).state not in main.states:
            return ()
        return tuple(dict.fromkeys(filter(None, (name.of(resource) for name in main.names))))

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

    def _lost(self, context: PluginContext, resource: JSON, state: str) -> PhaseInfo | None:
        """Return the failure of a main pod, where the object still says that it runs.

        What its operator is about to do is left to it: a pod that is being deleted is replaced.
        """
        main = self.config.pods.main if self.config.pods else None
        if main is None or state not in main.states:
            return None
        labels = dict(self.pod_labels(resource))
        if labels:
            labels |= {name: said_by(value, resource) for name, value in main.labels.items()}
        names = self.pod_names(resource)
        mains = [pod for pod in context.pods if not is_going(pod) and _is_main(pod, resource, labels, names)]
        cause = cause_of_failure(mains, context, latest=False)
        if cause is None or self._may_restart(resource, cause, context):
            return None
        said = f"the {self.kind.kind} still says {state}, but a pod that it can't do without has failed"
        info = failed(main.code, said, retryable=True, cleanup=True)
        return replace(explained(info, cause), occurred_at=cause.occurred_at)

    def _may_restart(self, resource: JSON, cause: PhaseInfo, context: PluginContext) -> bool:
        main = self.config.pods.main if self.config.pods else None
        again = main.restarted if main else None
        if again is None or cause.occurred_at is None or context.now - cause.occurred_at >= again.within:
            return False
        return any(word_of(value) not in again.unless for value in again.path.all(resource) or [""])

    def _with_facts(self, info: PhaseInfo, resource: JSON) -> PhaseInfo:
        """Add what the config wants to be shown of the object, and when it ended."""
        shown = {name: value for name, path in self.config.show.items() if (value := path.first(resource)) is not None}
        ended = self.get_completion_time(resource) if info.phase.is_terminal else None
        return replace(info, custom=shown, occurred_at=ended or info.occurred_at)


def entry_of(config: OperatorConfig) -> PluginEntry:
    """Return the registry's entry for an operator."""
    plugin = GenericPlugin(config)
    return PluginEntry(config.id, tuple(config.task_types), plugin.kind, plugin)


def _is_main(pod: JSON, resource: JSON, labels: Mapping[str, str], names: tuple[str, ...]) -> bool:
    """Whether a pod is one of the main ones, by all its labels or by its name; not one of another such object."""
    metadata, own = metadata_of(pod), metadata_of(resource)
    carried, owners = mapping(metadata.get("labels")), mappings(metadata.get("ownerReferences"))
    if any(each.get("kind") == resource.get("kind") and each.get("uid") != own.get("uid") for each in owners):
        return False
    by_labels = len(labels) > 0 and all(labels.values()) and labels.items() <= carried.items()
    return by_labels or metadata.get("name") in names


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
