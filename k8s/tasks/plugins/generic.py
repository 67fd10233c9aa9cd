"""The generic plugin: it runs any custom resource, described by a config of JSONPaths (``operator_config``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import FieldError, is_going, mapping, mappings, metadata_of, moment
from backoff_ctrl.k8s.kube.charges.parts import Part
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.operators.operator_config import OperatorConfig, PodsMade
from backoff_ctrl.k8s.kube.operators.paths import joined, word_of
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.kube.operators.reading import (
    has_ended,
    last_ended,
    parts_made,
    said_by,
    templates_of,
    told_by,
)
from backoff_ctrl.k8s.kube.operators.sections import format_duration

from .meanings import meaning_of
from .phases import PhaseInfo, failed
from .pod_building import TEMPLATE, object_of, pod_template
from .pod_phases import cause_of_failure, explained, never_starting, own_pods, still_starting
from .protocol import (
    PluginContext,
    PluginEntry,
    PluginProperties,
    TaskContext,
    TaskMetadata,
    TaskSpecError,
    refuse_custom,
    refuse_unread,
)

OPERATOR_TIMEOUT: Final = "OperatorTimeout"
"""The code of an object that no operator has looked at in time."""
_CONTAINER: Final = "container."
"""The prefix of a container's fields."""


class GenericPlugin:
    """Runs the custom resources of one operator. The task's ``template`` is the resource itself."""

    def __init__(self, config: OperatorConfig) -> None:
        self.config = config
        found = config.resource
        self.kind = Kind(found.api_version, found.kind, found.plural)

    def build_identity_resource(self, task: TaskMetadata) -> JSON:
        del task
        return {"apiVersion": self.kind.api_version, "kind": self.kind.kind}

    def build_resource(self, task: TaskContext) -> JSON:
        refuse_custom(task)
        refuse_unread(task, "template")
        made = object_of(task, self.kind)
        if task.spec.get("resources"):
            raise TaskSpecError(
                "spec.resources", f"a {self.kind.kind} makes pods of several kinds: write their resources into its spec"
            )
        add_defaults(self.config, made, task)
        gang_parts(self.config, self.kind.resource, made)  # an unreadable object can't wait for room either
        return made

    def parts(self, resource: Mapping[str, object]) -> tuple[Part, ...]:
        return gang_parts(self.config, self.kind.resource, resource)

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        told = told_by(self.config, resource)
        if told.state == "" and self._is_suspended(resource):
            return self._with_facts(PhaseInfo(Phase.QUEUED, reason="Suspended"), resource)
        info = self._with_facts(meaning_of(self.config, resource, told), resource)
        overdue = None if self._is_held(resource, told.state) else self._overdue(context, resource, info)
        if overdue is not None:
            return overdue
        pods = own_pods(context, self.pod_labels(resource)) if self.config.pods else []
        if info.phase.is_failure:
            return explained(info, cause_of_failure(pods, context, latest=False))
        if info.phase.is_terminal:
            return info
        stuck = never_starting(pods, context) or self._lost(context, resource, told.state)
        if stuck is not None:
            return replace(stuck, custom=info.custom)
        return info if info.phase is Phase.RUNNING else info.with_reason(still_starting(pods, context))

    def pod_labels(self, resource: JSON) -> Mapping[str, str]:
        """Return the labels of the object's pods; empty while the object lacks one of the values."""
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
        return PluginProperties(
            disable_inject_owner_references=not self.config.owned,
            generated_name_max_length=self.config.name_max_length,
        )

    def is_terminal(self, resource: JSON) -> bool:
        return has_ended(self.config, resource)

    def get_completion_time(self, resource: JSON) -> datetime | None:
        """Return the first completion time that is set, else the time of the last condition."""
        told = told_by(self.config, resource)
        if not meaning_of(self.config, resource, told).phase.is_terminal:
            return None
        return self.config.ended_at(resource) or told.since

    def _is_suspended(self, resource: JSON) -> bool:
        return self.config.suspended is not None and self.config.suspended.first(resource) is True

    def _is_held(self, resource: JSON, state: str) -> bool:
        """Whether the object is held back on purpose, or was until a moment ago."""
        held = self.config.started.not_in if self.config.started else ()
        return self._is_suspended(resource) or state in held

    def _overdue(self, context: PluginContext, resource: JSON, info: PhaseInfo) -> PhaseInfo | None:
        """Return a failure if the operator hasn't looked at the object in time."""
        started = self.config.started
        if started is None or not started.within or info.phase is not Phase.QUEUED:
            return None
        known = (moment(metadata_of(resource).get("creationTimestamp")), last_ended(self.config, resource))
        since = max(filter(None, known), default=None)  # a resumed job starts again
        if started.path.first(resource) or since is None or context.now - since <= started.within:
            return None
        message = (
            f"the operator hasn't started the {self.kind.kind} within {format_duration(started.within)} of its "
            "creation, or of its resumption: is it running, and does it watch this namespace?"
        )
        return failed(OPERATOR_TIMEOUT, message, kind=ErrorKind.SYSTEM, retryable=True, cleanup=True)

    def _lost(self, context: PluginContext, resource: JSON, state: str) -> PhaseInfo | None:
        """Return the failure of a main pod, where the object still reports that it runs.

        A pod that is being deleted doesn't count: its operator is about to replace it.
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
        """Add the details that the config names, and the time of the end."""
        ended = self.get_completion_time(resource) if info.phase.is_terminal else None
        return replace(info, custom=self.config.facts(resource), occurred_at=ended or info.occurred_at)


def entry_of(config: OperatorConfig) -> PluginEntry:
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


def gang_parts(config: OperatorConfig, resource_name: str, manifest: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return what a manifest makes, as ``parts_made`` does. Raises ``TaskSpecError``."""
    try:
        return parts_made(config, resource_name, manifest)
    except FieldError as error:
        raise TaskSpecError("spec.template", str(error)) from None


def add_defaults(config: OperatorConfig, made: JSON, task: TaskContext) -> None:
    ready: set[int] = set()  # a section shared by a YAML alias gets its defaults once
    for entry in config.pods_made:
        about = task if entry.interruptible else replace(task, metadata=replace(task.metadata, interruptible=False))
        for section, place in _sections(entry, made):
            if id(section) not in ready:
                path = joined(TEMPLATE, place)
                whole = (
                    _filled(section, entry.fields, path, about) if entry.fields else pod_template(about, section, path)
                )
                section.clear()
                section.update(whole)
                ready.add(id(section))


def _sections(entry: PodsMade, made: JSON) -> list[tuple[JSON, str]]:
    if not entry.defaults:
        return []
    if entry.fields:
        return [(found, place) for found, place in entry.section.places(made) if isinstance(found, dict)]
    return [(template, place) for template, place, _ in templates_of(entry, made)]


def _filled(section: JSON, fields: Mapping[str, str], path: str, task: TaskContext) -> JSON:
    """Return a section with the fields of a pod made from it."""
    container: JSON = {"name": "main", "image": "any"}
    spec: JSON = {"containers": [container]}
    for own, name in fields.items():
        if section.get(own) is not None:
            _holder(spec, name)[name.removeprefix(_CONTAINER)] = section[own]
    ready = pod_template(task, {"spec": spec}, path)["spec"]
    found: dict[str, Any] = {
        own: _holder(ready, name).get(name.removeprefix(_CONTAINER)) for own, name in fields.items()
    }
    return {**section, **{own: value for own, value in found.items() if value not in (None, [], {})}}


def _holder(spec: JSON, name: str) -> JSON:
    holder: JSON = spec["containers"][0] if name.startswith(_CONTAINER) else spec
    return holder
