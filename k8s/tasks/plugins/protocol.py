"""The interface of a plugin: it builds a Kubernetes object from a task, and reads the phase from the object's status.

A plugin is pure: it gets and returns plain data, without I/O or a clock, so that its phases can be tried on any object
(``backoff-ctrl phase``). Names and shape are those of Flyte's ``k8s.Plugin``; manifests are plain Kubernetes JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from backoff_ctrl.k8s.kube.charges.parts import Part
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, NAME_LEAST, NAME_MAX, Kind
from backoff_ctrl.k8s.kube.cluster.rights import Right

from .field_names import Flaw, field_flaw, type_of, unknown_field
from .phases import PhaseInfo

if TYPE_CHECKING:
    from .config import K8sPluginConfig  # loads pydantic, which --help does not need


class PluginError(Exception):
    """A plugin is invalid, two have the same name, or none serves a task type; the message says what to do."""


class PluginBugError(Exception):
    """A plugin raised an exception outside its protocol."""

    def __init__(self, plugin: str, method: str, error: BaseException, hide: Callable[[str], str] = str) -> None:
        """``hide`` removes secrets from a text."""
        super().__init__(f"plugin {plugin} failed in {method}: {type(error).__name__}: {hide(str(error))}")


class TaskSpecError(ValueError):
    """A task can't be built, and its user has to change it. ``path`` names the field, ``spec.container.image``."""

    def __init__(self, path: str, message: str) -> None:
        """``message`` says what is wrong with it, and what is valid."""
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


WHAT_RUNS: Final = ("container", "podTemplate", "primaryContainer", "template")
"""The fields of a spec that say what runs: a task type reads some of them."""
TASKS: Final = "tasks.backoff-ctrl.dev"
"""The resource that rights on tasks without a Kubernetes object are given for."""


def rights_on_tasks(verb: str, spec: Mapping[str, Any]) -> tuple[Right, ...]:
    """Return the rights that a task needs which has no object of its own, but may read secrets of its namespace."""
    named = {str(each.get("secret", "")) for each in (spec.get("secrets") or {}).values()} if verb == "create" else ()
    return (Right.on(verb, TASKS), *(Right.on("get", "secrets", name) for name in sorted(named)))


@dataclass(frozen=True, slots=True)
class PluginProperties:
    """How the manager treats a plugin's objects. A name is cut to ``generated_name_max_length`` characters."""

    disable_inject_owner_references: bool = False
    disable_inject_finalizer: bool = False
    disable_delete_resource_on_finalize: bool = False
    generated_name_max_length: int = NAME_MAX


@dataclass(frozen=True, slots=True)
class TaskMetadata:
    """The task and the attempt: names, labels and owners are made from it.

    ``uid`` is the task's own, ``attempt`` counts from 0, ``generated_name`` is the name of the attempt's object before
    it is cut. ``owner`` is the owner reference of an object in the cluster that the task belongs to, if any.
    """

    namespace: str
    name: str
    uid: str
    attempt: int
    generated_name: str
    store: str = ""
    """The id of the task's store, which bounds any sweep."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: Mapping[str, Any] | None = None
    service_account: str = ""
    interruptible: bool = False
    project: str = ""
    domain: str = ""
    priority: int = 0
    timeout: float | None = None
    """Seconds that its create may wait for room; None: any time."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The input of ``build``. ``spec`` is the task's, as it was written, checked in its general part.

    ``spec["container"]`` is a container, ``spec["podTemplate"]`` a pod's metadata and spec, ``spec["template"]`` the
    object itself: each plugin decides which of them it reads. ``spec["custom"]`` is any JSON for other parameters: the
    plugin checks it, and names a wrong field as ``spec.custom.rounds``. ``spec["resources"]`` and ``spec["env"]``
    override. ``pod_template`` is the PodTemplate ``default-pod-template-name`` of the task's namespace, if there is
    one.
    """

    metadata: TaskMetadata
    type: str
    spec: Mapping[str, Any]
    config: K8sPluginConfig
    pod_template: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PluginContext:
    """Further input for the phase, beside the object.

    ``pods`` are the pods that belong to it (see ``RelatedPods``). ``now`` is the present time for grace periods, in
    UTC.
    """

    config: K8sPluginConfig
    now: datetime
    pods: tuple[JSON, ...] = ()


class Plugin(Protocol):
    """One kind of work. All methods are pure and quick; any exception but ``TaskSpecError`` is a bug of the plugin."""

    def build_identity_resource(self, task: TaskMetadata) -> JSON:
        """Return ``apiVersion`` and ``kind`` of the object; the manager adds its name and namespace."""

    def build_resource(self, task: TaskContext) -> JSON:
        """Return the object to create. Raises ``TaskSpecError``."""

    def get_task_phase(self, context: PluginContext, resource: JSON) -> PhaseInfo:
        """Return the phase by the object's status. ``resource`` is the object from the API server."""

    def get_properties(self) -> PluginProperties:
        """Return how the manager treats the objects."""

    def is_terminal(self, resource: JSON) -> bool:
        """Return whether the object has ended and will not change again."""

    def get_completion_time(self, resource: JSON) -> datetime | None:
        """Return when it ended, in UTC; None: it has not, or the time is unknown."""


@runtime_checkable
class PluginAbortOverride(Protocol):
    """A plugin whose objects are not simply deleted when a task is aborted."""

    def on_abort(self, task: TaskMetadata, resource: JSON) -> AbortBehavior:
        """Return what to do. It may be called again after a restart, and has to return the same."""


@runtime_checkable
class RelatedPods(Protocol):
    """A plugin that needs the pods that were made of its object: only they show that an image can't be pulled."""

    def pod_labels(self, resource: JSON) -> Mapping[str, str]:
        """Return labels that only the object's own pods have. Empty: they have no labels yet."""


@runtime_checkable
class NamedPods(Protocol):
    """A plugin that also knows its object's pods by name, for operators that give them other labels, or none."""

    def pod_names(self, resource: JSON) -> Sequence[str]:
        """Return the names of the pods; they are read if no pod is found by labels."""


@runtime_checkable
class MakesPods(Protocol):
    """A plugin that knows which pods controllers will make of its object: they are admitted with it, as a gang.

    For other plugins only the parts of the kinds that ``footprint`` knows are known.
    """

    def parts(self, resource: JSON) -> tuple[Part, ...]:
        """Return what controllers will make of the object. Raises ``TaskSpecError`` for an unreadable one."""


@dataclass(frozen=True, slots=True)
class AbortBehavior:
    """How an object is ended: deleted, patched, or replaced; exactly one of the three.

    ``patch`` is a JSON merge patch. ``delete_on_error``: where the patch or the update fails, it is deleted instead.
    """

    delete: bool = False
    patch: JSON | None = None
    update: JSON | None = None
    delete_on_error: bool = False

    def __post_init__(self) -> None:
        """Raise ``PluginError`` unless exactly one way is chosen."""
        if [self.delete, self.patch is not None, self.update is not None].count(True) != 1:
            raise PluginError("an abort either deletes the object, patches it or updates it: choose exactly one")


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """A plugin in the registry. ``is_default``: it serves the task types that no other plugin serves."""

    id: str
    registered_task_types: tuple[str, ...]
    resource_to_watch: Kind
    plugin: Plugin
    is_default: bool = False

    def __post_init__(self) -> None:
        """Raise ``PluginError`` for an invalid entry."""
        check_names(self.id, self.registered_task_types)
        length = self.plugin.get_properties().generated_name_max_length
        if not NAME_LEAST <= length <= 253:
            raise PluginError(f"plugin {self.id} asks for names of at most {length} characters: 8 to 253 are possible")

    def check(self, task: TaskContext) -> None:
        """Try to build the object of a task. Raises ``TaskSpecError``."""
        self.plugin.build_resource(task)

    def rights(self, verb: str, spec: Mapping[str, Any]) -> tuple[Right, ...]:  # noqa: ARG002 - as of every entry
        """Return the rights that a caller over HTTP needs to ``create``, ``get`` or ``delete`` such a task.

        Those on the object itself: the plugin manager's account may do more than its callers may.
        """
        return (Right.on(verb, self.resource_to_watch.resource),)


def check_names(id_: str, task_types: tuple[str, ...]) -> None:
    """Raise ``PluginError`` for an entry without an id, or without task types."""
    if not id_.strip():
        raise PluginError("a plugin without an id was registered: give it one")
    if not task_types or not all(each.strip() for each in task_types):
        raise PluginError(f"plugin {id_} names no task types, or an empty one: it could never be chosen")


def object_at(parent: Mapping[str, Any], key: str, path: str) -> JSON:
    """Return an object field; empty if it is missing or null. Raises ``TaskSpecError`` for anything else."""
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _misfit(value, f"{path}.{key}", "an object")
    return dict(value)


def objects_at(parent: Mapping[str, Any], key: str, path: str, each: str = "must be an object") -> list[JSON]:
    """Return a list of objects; empty if it is missing or null. Raises ``TaskSpecError``; ``each``: an item."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _misfit(value, f"{path}.{key}", "a list")
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise TaskSpecError(f"{path}.{key}[{index}]", each)
    return [dict(item) for item in value]


def text_at(parent: Mapping[str, Any], key: str, path: str) -> str:
    """Return a text; empty if it is missing or null. Raises ``TaskSpecError`` for anything else."""
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _misfit(value, f"{path}.{key}", "a text")
    return value


def _misfit(value: object, path: str, what: str) -> TaskSpecError:
    return TaskSpecError(path, f"must be {what}, not {type_of(value)}")


def check_fields(found: Any, model: str, path: str) -> None:
    """Raise ``TaskSpecError`` for a misspelt name or a wrong type of a field, at any depth.

    ``model`` is the official client's.
    """
    refuse(field_flaw(found, model, path))


def insist_on_fields(found: Iterable[str], known: Iterable[str], path: str) -> None:
    """Raise ``TaskSpecError`` for a field that is not among the known ones: no plugin would read it."""
    refuse(unknown_field(found, known, path))


def refuse(flaw: Flaw | None) -> None:
    """Raise ``TaskSpecError`` for a flaw, if there is one."""
    if flaw is not None:
        raise TaskSpecError(flaw.path, flaw.said)


def refuse_custom(task: TaskContext) -> None:
    """Raise ``TaskSpecError`` if a task has parameters for a plugin without any: it would not read them."""
    if task.spec.get("custom") is not None:
        raise TaskSpecError("spec.custom", f"tasks of type {task.type} have no parameters of their own: leave it out")


def refuse_unread(task: TaskContext, *read: str) -> None:
    """Raise ``TaskSpecError`` if a task says what to run in a field that its type does not read."""
    for part in WHAT_RUNS:
        if part not in read and task.spec.get(part) is not None:
            instead = f"it reads {' and '.join(read)}" if read else "it runs nothing"
            raise TaskSpecError(f"spec.{part}", f"tasks of type {task.type} don't read it: leave it out ({instead})")
