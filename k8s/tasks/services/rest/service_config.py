"""What the rest plugin must know of a service: its requests, where answers have what, and what each state means.

Keys are written with dashes; ``docs/how-to/describe-a-service.md`` explains them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib.resources import files
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from backoff_ctrl.k8s.kube.operators.descriptions import Descriptions
from backoff_ctrl.k8s.kube.operators.meanings import Described, StateMeaning
from backoff_ctrl.k8s.kube.operators.paths import Path, Paths, Text
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.kube.operators.sections import Duration, Section

from .templates import Template, root_of, texts_in

ID_LONGEST: Final = 1_000
"""The most characters of a job's id. A longer text does not count as an id."""
ANSWER_MAX: Final = 4 * 1024 * 1024
"""The most bytes of an answer, unless the description says otherwise."""
CUSTOM: Final = "custom"
SECRETS: Final = "secrets"
ENV: Final = "env"
ID: Final = "id"
URL: Final = "url"
REASON: Final = "reason"
ANSWER: Final = "answer"
OF_TASK: Final = frozenset(
    {
        "name", "namespace", "project", "domain", "type", "attempt", "key", "priority", "labels", "annotations", CUSTOM,
        ENV,
    }
)  # fmt: skip
"""What every template knows: the task. Others know the job's id, secrets, the reason of an abort, an answer."""


def checked_url(text: str) -> str:
    """Return the address of a service, without a slash at its end. Raises ``ValueError`` for another text."""
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port that is no number, half an IPv6 address
        fine = False
        parts = urlsplit("")
    if not fine or parts.username or parts.password or parts.query or parts.fragment or not text.isprintable():
        raise ValueError(
            f"{text[:100]!r} is not the address of a service: write http:// or https://, a host, and a path if need "
            "be; credentials belong into headers"
        )
    return text.rstrip("/")


class Parameter(Section):
    """One field of a task's ``spec.custom``; ``type`` is one of JSON, as JSON Schema calls them."""

    type: Literal["string", "number", "integer", "boolean", "array", "object", "any"] = "any"
    required: bool = False
    about: str = ""


class Answers(Section):
    """Which error answers are meant: those with one of ``statuses``, whose text has ``text`` in it."""

    statuses: list[Annotated[int, Field(ge=400, le=599)]] = Field(min_length=1)
    text: str = ""


class Request(Section):
    """One request. ``path`` is added to the service's address; ``body`` is sent as JSON."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    path: Template
    query: dict[str, Template] = Field(default_factory=dict)
    body: Any = None

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: Text) -> Text:
        if not path.text.startswith("/") or "?" in path.text or "#" in path.text:
            raise ValueError(f"{path.text!r} must begin with a slash, and have no ? and no #: see the key query")
        return path

    def paths(self) -> Iterator[str]:
        for template in (self.path, *self.query.values(), *map(Text, texts_in(self.body))):
            yield from template.paths


class Create(Request):
    """The request that creates a job.

    ``exists``: answers by which the job exists already; ``refused``: those by which the request is wrong, with any
    status. ``shows-state``: a good answer has the job's state.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    exists: Answers = Answers(statuses=[409])
    refused: Answers | None = None
    shows_state: bool = False


class Cancel(Request):
    """The request that ends a job. ``done``: statuses that say that it has ended, beside 404 and 410."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    done: list[Annotated[int, Field(ge=400, le=599)]] = Field(default_factory=list)


class Find(Request):
    """The request that looks a job up. ``items``: where its answer has a list of jobs; else it is the job."""

    items: Path | None = None


class LogLink(Section):
    """Where people find a log of the job."""

    name: str = Field(min_length=1)
    url: Template


class Rate(Section):
    """A rate of requests."""

    qps: float = Field(ge=1, le=100_000)
    burst: int = Field(ge=5, le=10_000)


class Limits(Section):
    """How much the service is asked to do, by default: the settings ``plugins.ID`` go over it.

    ``pools`` has the jobs that may exist at a time, ``project`` and ``namespace`` how many of them one may have.
    """

    pools: dict[str, Annotated[int, Field(ge=0, le=1_000_000)]] = Field(default_factory=dict)
    project: int | None = Field(default=None, ge=0)
    namespace: int | None = Field(default=None, ge=0)
    reads: Rate = Rate(qps=30, burst=300)
    writes: Rate = Rate(qps=20, burst=200)


def _lost() -> StateMeaning:
    return StateMeaning(
        phase=Phase.RETRYABLE_FAILURE,
        kind=ErrorKind.SYSTEM,
        code="JobLost",
        reason="the service does not know the job any longer",
    )


class JobId(Section):
    """The id of a job: ``given`` by us in the request that creates it, or at a ``path`` of the answer.

    With both, an answer that has another id there is about another job.
    """

    given: Template | None = None
    path: Paths = ()

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.given is None and not self.path:
            raise ValueError("name path, where the answer has the id, or given, if the request says which id it gets")
        return self


class ServiceConfig(Described):
    """Everything that the rest plugin knows of a service."""

    url: Annotated[str, AfterValidator(checked_url)] | None = None
    task_url: Path | None = None
    headers: dict[str, Template] = Field(default_factory=dict)
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    job_id: JobId
    ours: dict[Path, Template] = Field(default_factory=dict)
    create: Create
    get: Request
    find: Find | None = None
    cancel: Cancel | None = None
    state: Path
    gone: StateMeaning = Field(default_factory=_lost)
    error: Paths = ()
    outputs: dict[str, Path] = Field(default_factory=dict)
    logs: list[LogLink] = Field(default_factory=list)
    pool: Template = Text("default")
    limits: Limits = Limits()
    idempotent: bool = False
    appears_within: Annotated[Duration, Field(le=timedelta(seconds=30))] = timedelta(seconds=5)
    timeout: Annotated[Duration, Field(gt=timedelta(0), le=timedelta(hours=1))] = timedelta(seconds=30)
    answer_max: int = Field(default=ANSWER_MAX, ge=1024, le=64 * 1024 * 1024)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.gone.phase.is_terminal:
            raise ValueError("gone: a job that its service does not know has ended: choose Success or a failure")
        if self.find is not None and self.find.items is not None and not self.ours and self.job_id.given is None:
            raise ValueError("find.items: no key tells the task's job from the others: add ours")
        for where, paths, known in self._paths():
            for path in paths:
                self._check(where, path, known)
        return self

    @property
    def looks_up(self) -> bool:
        """Whether a job can be found by its task: it can be looked up, or its id is known beforehand."""
        return self.find is not None or self.job_id.given is not None

    @property
    def secrets(self) -> frozenset[str]:
        """The names of the secrets that headers are made of."""
        roots = (root_of(path) for each in self.headers.values() for path in each.paths)
        return frozenset(name for root, name in roots if root == SECRETS)

    def reads(self, root: str) -> bool:
        """Whether a request has this part of a task."""
        return any(root_of(path)[0] == root for _, paths, _ in self._paths() for path in paths)

    def _paths(self) -> Iterator[tuple[str, list[str], frozenset[str]]]:
        """Yield the paths of each template, and the first steps that they may have there."""
        given, known = self.job_id.given, OF_TASK | {ID}
        early = OF_TASK if given is None else known
        if given is not None:
            yield "job-id.given", given.paths, OF_TASK
        if self.task_url is not None:
            yield "task-url", [self.task_url.text], OF_TASK
        for name, header in self.headers.items():
            yield f"headers.{name}", header.paths, OF_TASK | {SECRETS}
        for path, ours in self.ours.items():
            yield f"ours.{path}", ours.paths, known
        yield "create", list(self.create.paths()), early
        yield "get", list(self.get.paths()), known
        if self.find is not None:
            yield "find", list(self.find.paths()), early
        if self.cancel is not None:
            yield "cancel", list(self.cancel.paths()), known | {REASON}
        for index, link in enumerate(self.logs):
            yield f"logs.{index}", link.url.paths, known | {URL, ANSWER}
        yield "pool", self.pool.paths, OF_TASK

    def _check(self, where: str, path: str, known: frozenset[str]) -> None:
        try:
            root, name = root_of(path)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if root not in known:
            raise ValueError(f"{where}: {path} is not known there: choose from {', '.join(sorted(known))}")
        if root == CUSTOM and name not in self.parameters:
            raise ValueError(f"{where}: {path} is no parameter: describe {name or 'its field'} under parameters")


SERVICES: Final = Descriptions(
    ServiceConfig,
    "service",
    "plugins.rest",
    "id, task-types, create, get, state and states",
    "docs/how-to/describe-a-service.md",
    files(__package__) / "services",
)
"""The services that ship: Ray's job server; and how a description of one is read."""
