"""The Task as people write it: the YAML of today is the custom resource of tomorrow, and these shapes are its schema.

Kubernetes JSON in it (a container, a pod's spec, an object of any kind) is not checked here: the plugin and the API
server do that. All other fields are checked here. Times are RFC 3339 in UTC, to the millisecond.

The parts of a status are dataclasses, for the status API answers with them too. In a stored status pydantic checks and
names them as its model is configured (``apiVersion``); in the API's JSON their keys are their fields (``api_version``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_serializer
from pydantic.alias_generators import to_camel

API_VERSION: Final = "backoff-ctrl.dev/v1alpha1"
KIND: Final = "Task"
NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
NAMESPACE: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DURATION: Final = r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?$"
RETRIES_MAX: Final = 1000
ALIAS: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
SECRETS_MAX: Final = 64
NEEDS_MAX: Final = 1000
NOTED_WITH: Final = {"signal": "signalled", "abort": "aborted"}
"""Fields of a spec that ask something of a task, each with the field that says who asked it, and when."""
COMES_LATER: Final = frozenset({"signal", "signalled", "aborted"})
"""Fields of a spec that are no part of what a task is."""
ASKED_LATER: Final = COMES_LATER | {"again"}
"""Fields of a spec that ask something of a task that runs, or has ended."""
MUTABLE: Final = ASKED_LATER | {"abort"}
"""What may change in the spec of a Task; a store that is no API server keeps the abort beside the spec."""
UNSEEN: Final = "no manager has seen it yet"
"""The reason of a task that is stored, and nothing else."""
JSON = dict[str, Any]
Whose = Literal["USER", "SYSTEM"]
"""Who has to fix a failure: the author of the task, or the platform."""
Ending = Literal["Success", "Failure", "Any"]
"""How a task has to end for those that need it to begin."""


class Shape(BaseModel):
    """A part of a task: unknown keys are errors, values are not converted, and immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True, frozen=True,
        use_attribute_docstrings=True,
    )  # fmt: skip


def seconds_of(duration: str) -> int:
    """Return the seconds of a duration such as ``1h30m``. Raises ``ValueError``."""
    if not duration or not (found := re.fullmatch(DURATION, duration)):
        raise ValueError('write a duration such as "90s", "15m" or "1h30m"')
    hours, minutes, seconds = (int(part[:-1]) if part else 0 for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


def _duration(text: str) -> str:
    if not seconds_of(text):
        raise ValueError("a time of 0 would end the task at once: leave it out to wait as long as it takes")
    return text


Duration = Annotated[str, AfterValidator(_duration)]
"""A time in a spec, such as ``1h30m``."""


class Metadata(Shape):
    """The name of the task, and the labels and annotations of its objects."""

    name: str = Field(pattern=NAME, max_length=253, description="Unique in its namespace.")
    namespace: str | None = Field(
        default=None, pattern=NAMESPACE, max_length=63, description="Where its objects are made."
    )
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Retries(Shape):
    """The number of further attempts after failures of the user, and of the platform."""

    user: int = Field(default=0, ge=0, le=RETRIES_MAX)
    """After failures of the user's code."""
    system: int = Field(default=3, ge=0, le=RETRIES_MAX)
    """After failures of the platform."""


class SecretKey(Shape):
    """One key of a Secret of the task's namespace. It is read at each use, and never stored or logged."""

    secret: str = Field(pattern=NAME, max_length=253)
    """The name of the Secret."""
    key: str = Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)
    """Its key."""


class Need(Shape):
    """A task of the same namespace that has to end before this one begins, and how."""

    task: str = Field(pattern=NAME, max_length=253)
    """Its name."""
    ended: Ending = "Success"
    """Failure: it failed or was aborted; Any: it ended in whatever way."""

    @model_serializer
    def _short(self) -> str | dict[str, str]:
        """Write the usual case as a name, so that equal tasks compare equal however they are written."""
        return self.task if self.ended == "Success" else {"task": self.task, "ended": self.ended}


class Asked(Shape):
    """Who asked something of a task, and when: written beside the request by what asks for them."""

    by: str = Field(default="", max_length=253)
    """A user of the cluster or of this machine, or the program that wrote it; empty: it is not known."""
    at: str = Field(default="", max_length=40)
    """When, in RFC 3339; empty: it came with the task."""


class TaskSpec(Shape):
    """What is to run. Which of ``container``, ``podTemplate`` and ``template`` is read depends on the type."""

    type: str = Field(min_length=1, max_length=253, description="The task type: it chooses the plugin.")
    container: JSON | None = None
    """A Kubernetes container; for the type container. Without resources it gets 1 cpu and 1Gi."""
    pod_template: JSON | None = None
    """metadata and spec of a pod; for the types pod and sidecar."""
    primary_container: str | None = None
    """The container of a podTemplate whose end is the end of the task."""
    template: JSON | None = None
    """The object itself: a Job, a JobSet, any custom resource."""
    custom: Any = None
    """Parameters of the plugin: any JSON, which the plugin checks and its page describes."""
    resources: JSON | None = None
    """requests and limits, in place of those of the container; by default 1 cpu and 1Gi."""
    env: list[JSON] | None = None
    """Variables added to the container's own."""
    secrets: dict[Annotated[str, Field(pattern=ALIAS, max_length=253)], SecretKey] = Field(
        default_factory=dict, max_length=SECRETS_MAX
    )
    """Secrets of its namespace, by the name under which the task uses them; a container gets them as variables."""
    accelerator: JSON | None = None
    """The GPU that it runs on: device or deviceClass, and partitionSize or unpartitioned."""
    retries: Retries = Retries()
    """How often it is tried again after a failure."""
    interruptible: bool = False
    """Whether it may run on preemptible nodes."""
    priority: int = Field(
        default=0, ge=-(2**31), lt=2**31, description="Its place in the line for quota; higher goes first."
    )
    timeout: Duration | None = None
    """How long an attempt waits for quota at most, or for its signal, such as 1h30m; null: as long as it takes."""
    deadline: Duration | None = None
    """How long an attempt runs at most, such as 1h30m; null: as long as it takes. It counts from when it runs; one that
    is created and does not begin to run ends after as long."""
    ttl: Duration | None = None
    """How long the task is kept after its end; null, or more than tasks.gc.max-ttl: as long as that setting says."""
    project: str = Field(default="", max_length=253)
    """The project that it belongs to; its objects have it as a label, and the platform's settings may name it."""
    domain: str = Field(default="", max_length=253)
    """The domain of the project, such as development or production; likewise."""
    service_account: str = Field(default="", max_length=253)
    """The service account of its pods; empty: that of the pod's own spec, or the namespace's default."""
    needs: list[
        Annotated[
            Need,
            BeforeValidator(
                lambda given: {"task": given} if isinstance(given, str) else given,
                json_schema_input_type=Annotated[str, Field(pattern=NAME, max_length=253)] | Need,
            ),
        ]
    ] = Field(
        default_factory=list,
        max_length=NEEDS_MAX,
        description="Tasks of the same namespace that have to end first: a name, if it has to succeed, else task and "
        "ended (Success, Failure or Any).",
    )
    abort: bool = False
    """The request to end it, which can't be taken back."""
    aborted: Asked | None = None
    """Who requested its end, and when. It is written with abort, and can't be changed."""
    signal: Any = None
    """What a task of the type signal waits for: any JSON but null, which becomes its output. It can't be changed."""
    signalled: Asked | None = None
    """Who gave the signal, and when. It is written with the signal, and can't be changed."""
    again: int = Field(default=0, ge=0)
    """Of a task in the cluster: raise it, and the task runs once more when it has ended, with all its retries."""


@dataclass(frozen=True)  # without slots: the status API writes what `vars` returns
class TaskObject:
    """The object of the present attempt."""

    api_version: str
    """Its API group and version."""
    kind: str
    """Its kind."""
    name: str
    """Its name."""
    uid: str = ""
    """Empty until the API server has answered."""


@dataclass(frozen=True)
class TaskWait:
    """What a task in ``WaitingForResources`` waits for. Amounts are Quantities, times RFC 3339."""

    reason: str
    """quota, or another reason why it is not sent."""
    quota: str = ""
    """The quota that is full; empty: none is known."""
    resource: str = ""
    """The resource of that quota."""
    asked: str = "0"
    """How much of it the object asks for."""
    left: str = "0"
    """How much of it is left."""
    limited: str = "0"
    """The limit of the quota."""
    place: int = 1
    """Its place in the line of its namespace; 1 is next."""
    next_probe_at: str | None = None
    """When the API server is asked again at the latest."""
    estimated_at: str | None = None
    """When it is likely to be created; null: unknown."""


@dataclass(frozen=True)
class TaskEvent:
    """One phase that a task has entered."""

    phase: str
    """The phase."""
    at: str
    """When it came into this phase."""
    attempt: int
    """0 is the first."""
    reason: str = ""
    """Why, in a sentence."""
    code: str | None = None
    """What failed, in one word."""
    kind: Whose | None = None
    """Who caused the failure."""


@dataclass(frozen=True)
class TaskLink:
    """Where a log is found."""

    name: str
    """What it is the log of."""
    uri: str
    """Its address."""


@dataclass(frozen=True)
class TaskTold:
    """One event about the object."""

    text: str
    """What happened, in a sentence."""
    at: str
    """When it happened."""


class Retried(Shape):
    """Retries so far, by who caused the failure."""

    user: int = 0
    """After failures of the user's code."""
    system: int = 0
    """After failures of the platform."""


class TaskStatus(Shape):
    """The status, which only the reconciler writes."""

    phase: str = "NotReady"
    """NotReady, WaitingForResources, Running, Success and the like."""
    version: int = 0
    """The plugin's own progress within the phase."""
    reason: str = UNSEEN
    """Why it is in this phase, in a sentence."""
    code: str | None = None
    """What failed, in one word."""
    kind: Whose | None = None
    """Who caused the failure: the author of the task, or the platform."""
    attempt: int = 0
    """0 is the first."""
    plugin: str | None = None
    """The plugin that runs it; null: none has yet."""
    object: TaskObject | None = None
    """The object of the present attempt; null: there is none."""
    wait: TaskWait | None = None
    """What it waits for; null: it does not wait."""
    retried: Retried = Field(default_factory=Retried)
    """Further attempts so far."""
    again: int = 0
    """What spec.again was when it last began to run with all its retries."""
    next_attempt_at: str | None = None
    """When the next attempt begins, after one that failed."""
    runs_since: str | None = None
    """When the present attempt began to run; null: it has not."""
    queued_since: str | None = None
    """When the present attempt was created, or began to be; null: it was not."""
    earlier_object: TaskObject | None = None
    """The last object of an earlier attempt, whose log may still be there; null: there was none."""
    earlier_attempt: int = 0
    """The attempt that earlier_object belongs to."""
    plugin_state: JSON | None = None
    """What the manager keeps of the attempt from one step to the next."""
    created_at: str = ""
    """When it was created."""
    since: str = ""
    """When it came into this phase."""
    ended_at: str | None = None
    """When it ended and its object was released; null: it has not."""
    cleaned: bool = True
    """False while the object of an ended attempt is still to be released."""
    logs: list[TaskLink] = Field(default_factory=list)
    """Where its logs are found."""
    reasons: list[TaskTold] = Field(default_factory=list)
    """The latest 20 events about its objects."""
    history: list[TaskEvent] = Field(default_factory=list)
    """The phases that it has entered, the oldest first; of more than 50 the first and the latest."""
    history_left_out: int = 0
    """How many phases are left out of the history, after the first."""
    custom: JSON = Field(default_factory=dict)
    """Further data of the plugin."""
    outputs: JSON | None = None
    """What the attempt has computed, if its plugin reports that."""


class Task(Shape):
    """A task in a file. ``status`` is read-only: a new task may not have one."""

    api_version: Literal["backoff-ctrl.dev/v1alpha1"]
    kind: Literal["Task"]
    metadata: Metadata
    spec: TaskSpec
    status: TaskStatus | None = None


def schema() -> JSON:
    """Return the JSON schema of a task."""
    return Task.model_json_schema(by_alias=True)


def shown(unix: float) -> str:
    """Write a Unix time."""
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unix(text: str) -> float:
    """Read a time; 0 for none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
