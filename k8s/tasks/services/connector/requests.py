"""The messages that a connector gets of a task: its template, its inputs, and what is known of this attempt. Pure.

``spec.template`` is the TaskTemplate, in the JSON that Flyte writes it in; ``spec.custom`` and ``spec.container`` are
short for two of its fields. Two keys beside Flyte's are read there: ``inputs``, and ``outputPrefix``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from flyteidl.admin.agent_pb2 import CreateRequestHeader, CreateTaskRequest, TaskExecutionMetadata
from flyteidl.core.identifier_pb2 import (
    Identifier,
    NodeExecutionIdentifier,
    ResourceType,
    TaskExecutionIdentifier,
    WorkflowExecutionIdentifier,
)
from flyteidl.core.literals_pb2 import KeyValuePair, LiteralMap
from flyteidl.core.security_pb2 import Identity
from flyteidl.core.tasks_pb2 import Container, ContainerPort, Resources, TaskTemplate
from google.protobuf import json_format

from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.tasks.plugins.field_names import CONTAINER, names_of
from backoff_ctrl.k8s.tasks.plugins.marks import key_of_task, marks_of
from backoff_ctrl.k8s.tasks.plugins.protocol import (
    TaskContext,
    TaskMetadata,
    TaskSpecError,
    check_fields,
    insist_on_fields,
    object_at,
    objects_at,
    text_at,
)

from .literals import inputs_of, struct_of
from .settings import ID, TaskType

TEMPLATE: Final = "spec.template"
_UNREAD: Final = {
    "podTemplate": "write a pod as spec.template.k8sPod",
    "primaryContainer": "a connector has no pods: leave it out",
    "resources": "write them into spec.container.resources",
    "accelerator": "write it as spec.template.extendedResources",
}
_RESOURCES: Final = {
    "cpu": Resources.CPU,
    "memory": Resources.MEMORY,
    "nvidia.com/gpu": Resources.GPU,
    "ephemeral-storage": Resources.EPHEMERAL_STORAGE,
}
_PLACEHOLDER: Final = "{{."


@dataclass(frozen=True, slots=True)
class Request:
    """A task in Flyte's words."""

    template: TaskTemplate
    inputs: LiteralMap
    output_prefix: str
    metadata: TaskExecutionMetadata

    @property
    def type(self) -> TaskType:
        """Its task type and version."""
        return TaskType(self.template.type, self.template.task_type_version)

    def spelt(self, name: str) -> Request:
        """Return the same with its task type as the connector spells it."""
        template = TaskTemplate()
        template.CopyFrom(self.template)
        template.type = name
        return replace(self, template=template)

    def message(self) -> CreateTaskRequest:
        """Return it for ``CreateTask``."""
        return CreateTaskRequest(
            inputs=self.inputs,
            template=self.template,
            output_prefix=self.output_prefix,
            task_execution_metadata=self.metadata,
        )

    def header(self) -> CreateRequestHeader:
        """Return it for ``ExecuteTaskSync``, without its inputs: they are sent next."""
        return CreateRequestHeader(
            template=self.template, output_prefix=self.output_prefix, task_execution_metadata=self.metadata
        )


def request_of(task: TaskContext, secrets: Mapping[str, str] | None = None, outputs_below: str = "") -> Request:
    """Return a task in Flyte's words. Raises ``TaskSpecError``.

    ``secrets`` are the values of ``spec.secrets``. ``outputs_below`` is where outputs are written, unless the task
    names its own place.
    """
    for field, instead in _UNREAD.items():
        if task.spec.get(field) is not None:
            raise TaskSpecError(f"spec.{field}", f"a connector does not read it: {instead}")
    written = object_at(task.spec, "template", "spec")
    inputs = object_at(written, "inputs", TEMPLATE)
    prefix = text_at(written, "outputPrefix", TEMPLATE)
    template = _template(task, {key: each for key, each in written.items() if key not in ("inputs", "outputPrefix")})
    about = task.metadata
    if not prefix and outputs_below:
        prefix = "/".join((outputs_below.rstrip("/"), about.namespace, about.name, about.uid, str(about.attempt)))
    return Request(
        template,
        inputs_of(inputs, template.interface, f"{TEMPLATE}.inputs"),
        prefix,
        _execution(task, {**dict(_values(task.spec, "spec")), **(secrets or {})}),
    )


def _template(task: TaskContext, written: JSON) -> TaskTemplate:
    about = task.metadata
    for field in ("custom", "container"):
        if task.spec.get(field) is not None and field in written:
            raise TaskSpecError(f"spec.{field}", f"it is in {TEMPLATE}.{field} as well: write it once")
    template = TaskTemplate()
    try:
        json_format.ParseDict(written, template)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        raise TaskSpecError(TEMPLATE, f"it is not a TaskTemplate: {str(error).splitlines()[0]}") from None
    template.type = _type(task, template.type)
    if task.spec.get("custom") is not None:
        template.custom.CopyFrom(struct_of(object_at(task.spec, "custom", "spec"), "spec.custom"))
    if task.spec.get("container") is not None:
        template.container.CopyFrom(_container(object_at(task.spec, "container", "spec")))
    for index, argument in enumerate(template.container.args):
        if _PLACEHOLDER in argument:
            raise TaskSpecError(
                f"{TEMPLATE}.container.args[{index}]",
                f"{argument[:80]!r} names what Flyte alone fills in: write the value itself",
            )
    if not template.HasField("id"):
        template.id.CopyFrom(_task_id(about))
    return template


def _type(task: TaskContext, written: str) -> str:
    """Return the task type: that of the template, where the task's own says only ``connector``."""
    own = task.type.strip()
    if own.lower() == ID:
        if not written:
            raise TaskSpecError(f"{TEMPLATE}.type", f"a task of type {ID} says here which task type it is")
        return written
    if written and written.lower() != own.lower():
        raise TaskSpecError(f"{TEMPLATE}.type", f"it is {written!r}, and spec.type is {own!r}: leave one out")
    return written or own


def _container(written: JSON) -> Container:
    """Return a container of Kubernetes in Flyte's form."""
    path = "spec.container"
    check_fields(written, CONTAINER, path)
    insist_on_fields(written, names_of(CONTAINER), path)
    ports = [ContainerPort(container_port=each.get("containerPort")) for each in objects_at(written, "ports", path)]
    resources = object_at(written, "resources", path)
    return Container(
        image=text_at(written, "image", path),
        command=_texts(written, "command", path),
        args=_texts(written, "args", path),
        env=[KeyValuePair(key=name, value=value) for name, value in _values(written, path)],
        ports=ports,
        resources=Resources(
            requests=_amounts(resources, "requests", f"{path}.resources"),
            limits=_amounts(resources, "limits", f"{path}.resources"),
        ),
    )


def _texts(written: JSON, key: str, path: str) -> list[str]:
    found = written.get(key) or []
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise TaskSpecError(f"{path}.{key}", "must be a list of texts")
    return found


def _amounts(written: JSON, key: str, path: str) -> Iterator[Resources.ResourceEntry]:
    for name, amount in object_at(written, key, path).items():
        if name not in _RESOURCES:
            raise TaskSpecError(f"{path}.{key}.{name}", f"Flyte knows only {', '.join(_RESOURCES)}")
        yield Resources.ResourceEntry(name=_RESOURCES[name], value=str(amount))


def _values(parent: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the variables below ``env``. They must be plain values: a connector can't resolve references."""
    for index, each in enumerate(objects_at(parent, "env", path)):
        place = f"{path}.env[{index}]"
        if "valueFrom" in each:
            raise TaskSpecError(f"{place}.valueFrom", "a connector gets values alone: name a secret in spec.secrets")
        yield text_at(each, "name", place), text_at(each, "value", place)


def _execution(task: TaskContext, variables: Mapping[str, str]) -> TaskExecutionMetadata:
    about = task.metadata
    retries = task.spec.get("retries") or {}
    execution = WorkflowExecutionIdentifier(
        project=about.project, domain=about.domain, name=f"{about.name}-{about.uid[:8]}"
    )
    return TaskExecutionMetadata(
        task_execution_id=TaskExecutionIdentifier(
            task_id=_task_id(about),
            node_execution_id=NodeExecutionIdentifier(node_id=about.name, execution_id=execution),
            retry_attempt=about.attempt,
        ),
        namespace=about.namespace,
        labels={**about.labels, **marks_of(key_of_task(about), about.store)},
        annotations=about.annotations,
        k8s_service_account=about.service_account,
        environment_variables=variables,
        max_attempts=1 + int(retries.get("user", 0)),
        interruptible=about.interruptible,
        identity=Identity(k8s_service_account=about.service_account),
    )


def _task_id(about: TaskMetadata) -> Identifier:
    return Identifier(
        resource_type=ResourceType.TASK,
        project=about.project,
        domain=about.domain,
        name=about.name,
        version=about.uid,
    )
