"""What a state means, as a description says it: words of an operator or of a service, and their phases.

An operator's custom resource (``operator_config``) and a service's answer (``rest``) are described alike: a state is a
word in JSON, and ``states`` has its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, model_validator

from backoff_ctrl.k8s.kube.answers.fields import moment

from .paths import ObjectPath, Path, Paths, word_of
from .phases import ErrorKind, Phase
from .sections import Section, in_yaml

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


def _phase(value: object) -> Phase:
    if isinstance(value, Phase):
        return value
    if not isinstance(value, str) or value not in PHASES:
        raise ValueError(f"{in_yaml(value)} is not a phase of an object: choose {', '.join(PHASES)}")
    return PHASES[value]


def _text(value: object) -> object:
    """Read ``true`` and ``1`` as words: YAML reads them as other types."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _text_keys(value: object) -> object:
    return (
        {_text("" if key is None else key): rule for key, rule in value.items()} if isinstance(value, dict) else value
    )


def _word_or_path(value: object) -> object:
    word = _text(value)
    if not isinstance(word, str | ObjectPath):
        raise ValueError("must be a word, or the JSONPath of one, such as $.status.reason")  # noqa: TRY004
    return ObjectPath(word) if isinstance(word, str) and word.startswith("$") else word


PhaseName = Annotated[Phase, BeforeValidator(_phase)]


Word = Annotated[str, BeforeValidator(_text)]


WordOrPath = Annotated[ObjectPath | str, BeforeValidator(_word_or_path)]
"""A word, or the path of one in the object: then it begins with ``$``."""


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


class Described(Section):
    """What every description says: which tasks it is for, and what the states mean.

    ``other`` is what a state means that ``states`` lacks. ``message`` is the object's own message, ``code`` that of
    failures whose state has no code.
    """

    id: str = Field(min_length=1)
    task_types: list[str] = Field(min_length=1)
    states: Annotated[dict[str, StateMeaning], BeforeValidator(_text_keys)] = Field(min_length=1)
    other: StateMeaning = Field(default_factory=lambda: StateMeaning(phase=Phase.RUNNING))
    message: Paths = ()
    code: WordOrPath | None = None
    completion_time: Paths = ()
    show: dict[str, Path] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        phases = {each.phase for each in self.states.values()}
        if Phase.SUCCESS not in phases:
            raise ValueError("states: no state means Success: a task of this kind would never end")
        if self.other.phase.is_terminal:
            raise ValueError(
                "other: an undescribed state may be new there, so it can't end a task; "
                "choose Queued, Initializing or Running"
            )
        return self

    def facts(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that the description shows with a phase."""
        return {name: value for name, path in self.show.items() if (value := path.first(document)) is not None}

    def ended_at(self, document: Mapping[str, Any]) -> datetime | None:
        """Return the first completion time that is set."""
        return next(filter(None, (moment(each) for path in self.completion_time for each in path.all(document))), None)

    def words(self, document: Mapping[str, Any]) -> str:
        """Return the object's own message."""
        return ": ".join(filter(None, (word_of(path.first(document)) for path in self.message)))
