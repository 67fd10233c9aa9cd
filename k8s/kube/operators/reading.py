"""What an object says by the description of its kind: its state, whether it has ended, which pods it makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backoff_ctrl.k8s.kube.answers.fields import FieldError, mapping
from backoff_ctrl.k8s.kube.answers.statuses import Condition, conditions_of
from backoff_ctrl.k8s.kube.charges.footprint import charge
from backoff_ctrl.k8s.kube.charges.parts import Part, makes_others, parts_of

from .meanings import Case, StateMeaning
from .operator_config import OperatorConfig, PodsMade
from .paths import ObjectPath, joined, word_of


@dataclass(frozen=True, slots=True)
class ReportedState:
    """The state in an object: a word, the operator's own message, and its time, if known."""

    state: str
    words: str = ""
    code: str = ""
    since: datetime | None = None
    message: str = ""
    """The message of the condition that holds."""


def said_by(word: ObjectPath | str | None, resource: Mapping[str, Any]) -> str:
    """Return a word of the config, or the object's value where the config names a path."""
    return word_of(word.first(resource)) if isinstance(word, ObjectPath) else word or ""


def case_of(meaning: StateMeaning, resource: Mapping[str, Any]) -> Case | None:
    """Return the first case of a meaning that fits an object."""
    return next((each for each in meaning.cases if _fits(each, resource)), None)


def _fits(case: Case, resource: Mapping[str, Any]) -> bool:
    found = case.path.all(resource) or [""]
    return any(word_of(value) in case.values for value in found)


def told_by(config: OperatorConfig, resource: Mapping[str, Any]) -> ReportedState:
    """Read an object's state. One without a state is in the state ``""``."""
    words = config.words(resource)
    if config.state.path is not None:
        return ReportedState(word_of(config.state.path.first(resource)), words)
    assert config.state.conditions is not None
    listed = config.state.conditions.first(resource)
    found = _current(conditions_of({"conditions": listed}), config)
    if found is None:
        return ReportedState("", words)
    said = ": ".join(filter(None, (found.reason, found.message)))
    return ReportedState(found.type, words or said, found.reason, found.since, found.message)


def last_ended(config: OperatorConfig, resource: Mapping[str, Any]) -> datetime | None:
    """Return when one of its conditions last ceased to be True, as a suspension does; None: unknown."""
    if config.state.conditions is None:
        return None
    conditions = conditions_of({"conditions": config.state.conditions.first(resource)})
    return max((each.since for each in conditions if each.since and each.status == "False"), default=None)


def _current(conditions: list[Condition], config: OperatorConfig) -> Condition | None:
    """Return the condition that holds: one that ends the object, else the latest; of equally late ones the last.

    Times have whole seconds, and operators add new conditions at the end of the list. With ``latest``, a described
    state after the end replaces it; an undescribed one, which a newer operator may add, does not.
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


def parts_made(config: OperatorConfig, resource_name: str, manifest: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return what a manifest makes: by the maker of its kind, else by the config. Raises ``FieldError``.

    An object of another controller makes no pods that are known here.
    """
    if makes_others(resource_name):
        return parts_of(manifest, resource=resource_name)
    managed = config.managed_by
    if managed is not None and word_of(managed.path.first(manifest)) not in {"", managed.controller}:
        return ()
    suspended = config.suspended is not None and config.suspended.first(manifest) is True
    described = [each for each in config.pods_made if not each.fields]
    return tuple(part for made in described for part in _parts(config, made, manifest, suspended=suspended))


def has_ended(config: OperatorConfig, resource: Mapping[str, Any]) -> bool:
    """Return whether its state says that it is over."""
    meaning = config.states.get(told_by(config, resource).state, config.other)
    case = case_of(meaning, resource)
    phase = meaning.phase if case is None or case.phase is None else case.phase
    return phase.is_terminal


def templates_of(made: PodsMade, manifest: Mapping[str, Any]) -> Iterator[tuple[Any, str, Mapping[str, Any]]]:
    """Return each pod template that an entry of the config names, with its path and its section."""
    for section, place in made.section.places(manifest):
        if isinstance(section, dict):
            for template, below in made.template.places(section):
                yield template, joined(place, below), section


def _parts(config: OperatorConfig, made: PodsMade, manifest: Mapping[str, Any], *, suspended: bool) -> Iterator[Part]:
    for template, place, section in templates_of(made, manifest):
        spec = mapping(template).get("spec")
        if not isinstance(spec, dict):
            raise FieldError(f"{place}.spec: required field is missing")
        count = _count(made, section, place)
        if count:
            demand = charge({"kind": "Pod", "spec": spec}, "pods", f"{place}.spec")
            yield Part(demand, count, "Pod", config.resource.kind, place, suspended)


def _count(made: PodsMade, section: Mapping[str, Any], place: str) -> int:
    found = None if made.replicas is None else made.replicas.first(section)
    if found is None:
        return made.default_replicas
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise FieldError(f"{place}: its number of replicas, {found!r}, is not a whole number of 0 or more")
    return found
