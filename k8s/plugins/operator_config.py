"""What the generic plugin must know of an operator: where its objects have their state, and what each state means.

Keys are written with dashes; ``docs/how-to/describe-an-operator.md`` explains them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib.resources import files
from pathlib import Path as FilePath
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationError, model_validator

from backoff_ctrl.k8s.charges.manifests import ManifestError, load_manifests, read_source

from .config import Duration, Section
from .paths import NamePattern, ObjectPath, Path, Paths
from .phases import ErrorKind, Phase
from .protocol import NAME_LEAST, NAME_MAX

PHASES: Final = {
    phase.title: phase
    for phase in (
        Phase.QUEUED,
        Phase.INITIALIZING,
        Phase.RUNNING,
        Phase.SUCCESS,
        Phase.RETRYABLE_FAILURE,
        Phase.PERMANENT_FAILURE,
    )
}
"""The phases that an object can be in by its own state."""


class OperatorConfigError(ValueError):
    """A config can't be used; the message names the key and the valid values."""


def _phase(value: object) -> Phase:
    if isinstance(value, Phase):
        return value
    if value not in PHASES:
        raise ValueError(f"{value!r} is not a phase of an object: choose {', '.join(PHASES)}")
    return PHASES[str(value)]


def _text(value: object) -> object:
    """Read ``true`` and ``1`` as words: YAML reads them as other types."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _text_keys(value: object) -> object:
    return (
        {_text("" if key is None else key): rule for key, rule in value.items()} if isinstance(value, dict) else value
    )


def _name_pattern(value: object) -> NamePattern:
    if isinstance(value, NamePattern):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("must be the name of a pod, such as {$.metadata.name}-driver")
    return NamePattern(value)


def _word_or_path(value: object) -> object:
    word = _text(value)
    if not isinstance(word, str | ObjectPath):
        raise ValueError("must be a word, or the JSONPath of one, such as $.status.reason")  # noqa: TRY004
    return ObjectPath(word) if isinstance(word, str) and word.startswith("$") else word


PhaseName = Annotated[Phase, BeforeValidator(_phase)]
Word = Annotated[str, BeforeValidator(_text)]
WordOrPath = Annotated[ObjectPath | str, BeforeValidator(_word_or_path)]
"""A word, or the path of one in the object: then it begins with ``$``."""
PodName = Annotated[NamePattern, BeforeValidator(_name_pattern), PlainSerializer(str)]
"""The name of a pod, with paths in braces: ``{$.metadata.name}-driver``."""


class Meaning(Section):
    """What a state means. A field that a case leaves out is that of its state.

    ``reason`` is for people; the object's own message is added. ``kind``, ``code`` and ``cleanup`` are for failures.
    """

    phase: PhaseName | None = None
    reason: str = ""
    kind: ErrorKind | None = None
    code: WordOrPath | None = None
    cleanup: bool | None = None


class Case(Meaning):
    """Another meaning of a state where ``path`` holds one of ``values``."""

    path: Path
    values: list[Word] = Field(min_length=1)


class StateMeaning(Meaning):
    """What a state means, and its exceptions: the first matching case."""

    phase: PhaseName
    cases: list[Case] = Field(default_factory=list)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.phase.is_failure and not self.cases:
            given = [key for key in ("kind", "code", "cleanup") if getattr(self, key) is not None]
            if given:
                raise ValueError(f"{given[0]} is only for failures, and {self.phase.title} is not one: leave it out")
        return self


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


class OperatorConfig(Section):
    """Everything that the generic plugin knows of an operator."""

    id: str = Field(min_length=1)
    task_types: list[str] = Field(min_length=1)
    resource: Resource
    state: State
    states: Annotated[dict[str, StateMeaning], BeforeValidator(_text_keys)] = Field(min_length=1)
    other: StateMeaning = Field(default_factory=lambda: StateMeaning(phase=Phase.RUNNING))
    message: Paths = ()
    code: WordOrPath | None = None
    completion_time: Paths = ()
    suspended: Path | None = None
    started: Started | None = None
    pods: Pods | None = None
    pods_made: list[PodsMade] = Field(default_factory=list)
    show: dict[str, Path] = Field(default_factory=dict)
    name_max_length: int = Field(default=NAME_MAX, ge=NAME_LEAST, le=253)
    owned: bool = True

    @model_validator(mode="after")
    def _complete(self) -> Self:
        phases = {each.phase for each in self.states.values()}
        if Phase.SUCCESS not in phases:
            raise ValueError("states: none of them means Success: a task of this kind would never end")
        if self.other.phase.is_terminal:
            raise ValueError(
                "other: an undescribed state may be new in the operator, so it can't end a task; "
                "choose Queued, Initializing or Running"
            )
        return self


def read_config(document: Any, where: str) -> OperatorConfig:
    """Check a config that was read from YAML. ``where`` names it in errors. Raises ``OperatorConfigError``."""
    if not isinstance(document, dict):
        raise OperatorConfigError(f"{where}: must be an object with keys such as id, task-types, resource and states")
    try:
        return OperatorConfig.model_validate(document)
    except ValidationError as error:
        raise OperatorConfigError(in_words(error, where)) from None


def in_words(error: ValidationError, where: str) -> str:
    """Return the first error as a sentence with its key, and the number of further ones."""
    first, more = error.errors()[0], error.error_count() - 1
    key = ".".join(map(str, first["loc"]))
    rest = f" (and {more} more)" if more else ""
    return f"{where}: {f'{key}: ' if key else ''}{_sentence(first['type'], first['msg'])}{rest}"


def _sentence(kind: str, message: str) -> str:
    if kind == "missing":
        return "this key is missing, and needed"
    if kind == "extra_forbidden":
        return "unknown key: docs/how-to/describe-an-operator.md lists the valid ones"
    return message.removeprefix("Value error, ")


def shipped_configs() -> Iterator[OperatorConfig]:
    """Return the operators that ship: Spark, Ray, Dask, and Kubeflow's PyTorch, TensorFlow and MPI jobs."""
    for file in sorted((files(__package__) / "operators").iterdir(), key=lambda each: each.name):
        if file.name.endswith(".yaml"):
            yield _read_document(file.read_bytes(), file.name)


def read_file(path: FilePath) -> OperatorConfig:
    """Read the config of one operator. Raises ``OperatorConfigError``, which names the file and the key."""
    try:
        return _read_document(read_source(str(path)), str(path))
    except ManifestError as error:
        raise OperatorConfigError(str(error)) from None


def configured(section: Any, folder: FilePath, where: str = "plugins.generic") -> list[OperatorConfig]:
    """Return the operators of the section ``plugins.generic``: a list of configs, and of files with one config each.

    Files are found from ``folder``, that of the configuration. Raises ``OperatorConfigError``.
    """
    if section is None:
        return []
    if not isinstance(section, list):
        raise OperatorConfigError(f"{where}: must be a list of operators: configs, or the names of files with one")
    found: list[OperatorConfig] = []
    for index, each in enumerate(section):
        place = f"{where}[{index}]"
        config = read_file(folder / each) if isinstance(each, str) else read_config(each, place)
        if config.id in {known.id for known in found}:
            raise OperatorConfigError(f"{place}: there are two operators with the id {config.id}: choose another")
        found.append(config)
    return found


def files_of(section: Any, folder: FilePath) -> list[FilePath]:
    return [folder / each for each in section if isinstance(each, str)] if isinstance(section, list) else []


def _read_document(content: bytes, name: str) -> OperatorConfig:
    documents = load_manifests(content, name)
    if len(documents) > 1:
        raise OperatorConfigError(f"{name}: holds {len(documents)} documents: write one operator to a file")
    return read_config(documents[0], name)
