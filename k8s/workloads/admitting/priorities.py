"""The priority of an object that waits: by its annotation as far as a quota allows that, else by its PriorityClass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from backoff_ctrl.k8s.gate.creates.creation import PRIORITY_MAX
from backoff_ctrl.k8s.kube.answers.fields import annotations_of, metadata_of, text
from backoff_ctrl.k8s.kube.charges.parts import Part

from .kinds import PRIORITY, whole_number

_NAMED: Final = "PriorityClass="
MAX_PRIORITY: Final = "backoff-ctrl.dev/max-priority"
"""The annotation of a ResourceQuota up to which objects of its namespace may set a priority of their own."""


class Priorities:
    """The PriorityClasses of a cluster."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._default = ""

    def changed(self, body: Mapping[str, Any], *, gone: bool) -> None:
        """Take in a PriorityClass."""
        name, value = text(metadata_of(body).get("name")), body.get("value")
        self._values.pop(name, None)
        if not gone and isinstance(value, int):
            self._values[name] = max(-PRIORITY_MAX, min(value, PRIORITY_MAX))
        if body.get("globalDefault") is True and not gone:
            self._default = name
        elif self._default == name:
            self._default = ""

    def of(self, parts: Sequence[Part]) -> int:
        """Return the highest of the PriorityClasses of an object's pods."""
        found = [self._values.get(_class_of(part) or self._default, 0) for part in parts if part.template]
        return max(found, default=0)


def _class_of(pods: Part) -> str:
    """Return the PriorityClass that pods name, which is a fact of their charge; empty: they name none."""
    for fact in pods.demand.scopes:
        if fact.startswith(_NAMED):
            return fact.removeprefix(_NAMED)
    return ""


def priority_asked(annotations: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the priority that the annotation of an object asks for, or None; and a sentence if it is no number."""
    said = text(annotations.get(PRIORITY))
    if not said:
        return None, ""
    wanted = _number(said)
    wrong = f"{PRIORITY} must be a whole number, not {said!r}: its PriorityClass counts"
    return wanted, wrong if wanted is None else ""


def priority_allowed(wanted: int, quotas: Iterable[Mapping[str, Any]]) -> tuple[int, str]:
    """Return the priority that counts of what is asked for, and why it is less: more needs a quota's annotation."""
    if wanted <= 0:
        return wanted, ""
    numbers = [_number(text(annotations_of(each).get(MAX_PRIORITY))) for each in quotas]
    allowed = max((number for number in numbers if number is not None), default=0)
    if wanted <= allowed:
        return wanted, ""
    return allowed, (
        f"{PRIORITY} is {wanted} but counts as {allowed}: more has to be allowed by the annotation "
        f"{MAX_PRIORITY} of a ResourceQuota of its namespace"
    )


def _number(said: str) -> int | None:
    number = whole_number(said)
    return None if number is None else max(-PRIORITY_MAX, min(number, PRIORITY_MAX))
