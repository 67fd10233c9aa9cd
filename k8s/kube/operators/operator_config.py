"""What the generic plugin must know of an operator: where its objects have their state, and what each state means.

Keys are written with dashes; ``docs/how-to/describe-an-operator.md`` explains them one by one.
"""

from __future__ import annotations

import re
from datetime import timedelta
from importlib.resources import files
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from backoff_ctrl.k8s.kube.cluster.kinds import NAME_LEAST, NAME_MAX

from .descriptions import Descriptions
from .meanings import Described, Word, WordOrPath
from .paths import FieldPath, ObjectPath, Path, Text
from .sections import Duration, Section


def _pod_name(value: object) -> Text:
    if isinstance(value, Text):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("must be the name of a pod, such as {$.metadata.name}-driver")
    for braces in re.findall(r"\{(.*?)\}", value):
        ObjectPath(braces)
    return Text(value)


PodName = Annotated[Text, BeforeValidator(_pod_name), PlainSerializer(str)]
"""The name of a pod, with paths in braces: ``{$.metadata.name}-driver``."""


class State(Section):
    """Where an object has its state: as a word at a path, or as one of its conditions that are True.

    That is a condition that ends the object, else the latest. With ``latest`` an end counts only until the operator
    restarts the object: a later condition that ``states`` describes replaces it.
    """

    path: Path | None = None
    conditions: Path | None = None
    latest: bool = False

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.path is None) == (self.conditions is None):
            raise ValueError("name either path, where the state is a word, or conditions, where it is a list of them")
        if self.latest and self.conditions is None:
            raise ValueError("latest chooses among conditions: it can't be combined with path")
        return self


class Started(Section):
    """How long an operator may take to look at an object; after that it is a failure of the system.

    In the states ``not_in`` it has looked, and holds the object back; for a resumed object the time begins again.
    """

    path: Path
    within: Duration = timedelta(minutes=1)
    not_in: list[Word] = Field(default_factory=list)


class Restarted(Section):
    """An operator that may restart a failed pod has ``within`` to do so, unless ``path`` holds one of ``unless``."""

    path: Path
    unless: list[Word] = Field(min_length=1)
    within: Duration = timedelta(seconds=5)


class MainPod(Section):
    """The essential pods: one that has failed ends the attempt, even if the object reports that it runs.

    They carry ``labels`` beside those of ``pods``, or have one of ``names``, in which ``{$.metadata.name}`` is a path
    in the object. Their failure counts only in ``states``: in others the operator is ending or restarting them.
    """

    labels: dict[str, WordOrPath] = Field(default_factory=dict)
    names: list[PodName] = Field(default_factory=list)
    states: list[Word] = Field(min_length=1)
    code: str = Field(min_length=1)
    restarted: Restarted | None = None


class Pods(Section):
    """The pods whose status shows why an object doesn't start, or has failed: they carry these labels.

    A value that begins with ``$`` is a path in the object.
    """

    labels: dict[str, WordOrPath] = Field(min_length=1)
    main: MainPod | None = None


class PodsMade(Section):
    """Pods that the operator makes. ``template`` and ``replicas`` are paths within each ``section``.

    ``template: $`` says that the section is the template; ``defaults`` says whether the platform's defaults apply to
    it. For a section that is not a template, but has fields of a pod, ``fields`` maps its names to those in a pod's
    spec or container. ``interruptible: false``: without these pods all results would be lost.
    """

    section: Path = Field(default_factory=lambda: ObjectPath("$.spec"))
    template: Path = Field(default_factory=lambda: ObjectPath("$.template"))
    replicas: Path | None = None
    default_replicas: int = Field(default=1, ge=0)
    defaults: bool = True
    fields: dict[str, str] = Field(default_factory=dict)
    interruptible: bool = True


class Resource(Section):
    """The kind of the objects: ``spark.example.com/v1``, ``SparkThing``, ``sparkthings``."""

    api_version: str = Field(min_length=1)
    kind: str = Field(min_length=1)
    plural: str = Field(min_length=1, pattern=r"^[a-z0-9.-]+$")


class ManagedBy(Section):
    """The field that names the controller in charge of an object, and what the operator itself is called there."""

    path: FieldPath
    controller: str = Field(min_length=1)


class OperatorConfig(Described):
    """Everything that the generic plugin knows of an operator."""

    resource: Resource
    state: State
    suspended: Path | None = None
    managed_by: ManagedBy | None = None
    started: Started | None = None
    pods: Pods | None = None
    pods_made: list[PodsMade] = Field(default_factory=list)
    name_max_length: int = Field(default=NAME_MAX, ge=NAME_LEAST, le=253)
    owned: bool = True


OPERATORS: Final = Descriptions(
    OperatorConfig,
    "operator",
    "plugins.generic",
    "id, task-types, resource and states",
    "docs/how-to/describe-an-operator.md",
    files(__package__),
)
"""The operators that ship: Spark, Ray, Dask, and Kubeflow's PyTorch, TensorFlow and MPI jobs; and how one is read."""
