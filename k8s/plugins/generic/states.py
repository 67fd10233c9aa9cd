"""What state an object is in, and what its operator's config says of that state. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.plugins.phases import UNKNOWN_CODE, ErrorKind, Phase
from backoff_ctrl.k8s.plugins.pods.reading import conditions_of

from .paths import ObjectPath

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from backoff_ctrl.k8s.plugins.pods.reading import Condition

    from .config import Case, OperatorConfig, StateMeaning

SHOWN: Final = 2_000
"""The most of an operator's own words that a reason repeats."""


@dataclass(frozen=True, slots=True)
class Told:
    """What an object tells of itself: its state as a word, the operator's own words, and since when if it says so."""

    state: str
    words: str = ""
    code: str = ""
    since: datetime | None = None
    message: str = ""
    """The message of the condition that holds."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the config makes of it. ``kind``, ``code`` and ``cleanup`` say something for failures only."""

    phase: Phase
    reason: str
    kind: ErrorKind
    code: str
    cleanup: bool
    since: datetime | None


def told_by(config: OperatorConfig, resource: Mapping[str, Any]) -> Told:
    """Read an object's state. One without a state is in the state ``""``."""
    words = ": ".join(filter(None, (word_of(path.first(resource)) for path in config.message)))
    if config.state.path is not None:
        return Told(word_of(config.state.path.first(resource)), words)
    assert config.state.conditions is not None
    listed = config.state.conditions.first(resource)
    found = _current(conditions_of({"conditions": listed}), config)
    if found is None:
        return Told("", words)
    said = ": ".join(filter(None, (found.reason, found.message)))
    return Told(found.type, words or said, found.reason, found.since, found.message)


def last_ended(config: OperatorConfig, resource: Mapping[str, Any]) -> datetime | None:
    """Return when one of its conditions last ceased to be True, as a suspension does; None: it doesn't tell."""
    if config.state.conditions is None:
        return None
    conditions = conditions_of({"conditions": config.state.conditions.first(resource)})
    return max((each.since for each in conditions if each.since and each.status == "False"), default=None)


def ruling_on(config: OperatorConfig, resource: Mapping[str, Any], told: Told) -> Ruling:
    """Return what the state means, by its first case that fits."""
    meaning = config.states.get(told.state, config.other)
    case = next((each for each in meaning.cases if _fits(each, resource)), None)
    phase = case.phase if case is not None and case.phase is not None else meaning.phase
    said = (case.reason if case is not None else "") or meaning.reason
    if not said and told.state and told.state not in config.states:
        said = f"in state {told.state[:100]}"
    words = told.words if phase.is_failure or config.message or not said else ""
    if "{message}" in said:
        said, words = said.replace("{reason}", told.code).replace("{message}", told.message[:SHOWN]), ""
    return Ruling(
        phase,
        ": ".join(filter(None, (said, words[:SHOWN]))),
        _chosen(case, meaning, "kind") or ErrorKind.USER,
        said_by(_chosen(case, meaning, "code") or config.code, resource) or told.code or UNKNOWN_CODE,
        bool(_chosen(case, meaning, "cleanup")),
        told.since,
    )


def word_of(value: object) -> str:
    """Return a value as a config writes it: ``true``, ``3``; empty for nothing, and for what is no word."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def said_by(word: ObjectPath | str | None, resource: Mapping[str, Any]) -> str:
    """Return a word of the config, or what the object says where the config names a path."""
    return word_of(word.first(resource)) if isinstance(word, ObjectPath) else word or ""


def _current(conditions: list[Condition], config: OperatorConfig) -> Condition | None:
    """Return the condition that holds: one that ends the object, else the latest; of equally late ones the last.

    Times have whole seconds, and operators add what is new at the end of the list. Where ``latest`` is set, a state
    later than the end takes its place, if it is described: what a newer operator notes afterwards restarts nothing.
    """
    true = [(each.since.timestamp() if each.since else 0.0, place, each) for place, each in enumerate(conditions)
            if each.status == "True"]  # fmt: skip
    ends = [each for each in true if each[2].type in config.states and config.states[each[2].type].phase.is_terminal]
    found = max(ends or true, default=None, key=lambda each: each[:2])
    if found is None:
        return None
    if config.state.latest:
        later = [each for each in true if each[2].type in config.states and each[0] > found[0]]
        found = max(later, default=found, key=lambda each: each[:2])
    return found[2]


def _fits(case: Case, resource: Mapping[str, Any]) -> bool:
    found = case.path.all(resource) or [""]
    return any(word_of(value) in case.values for value in found)


def _chosen(case: Case | None, meaning: StateMeaning, key: str) -> Any:
    own = getattr(case, key) if case is not None else None
    return getattr(meaning, key) if own is None else own
