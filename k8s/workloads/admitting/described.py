"""Kinds that wait because a description of their operator says how: any custom resource that can be suspended.

The description is that of the generic plugin (``kube/operators/operator_config``): where an object has its state and
what ends it, which field suspends it, and which pods it makes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from backoff_ctrl.k8s.kube.operators.descriptions import DescriptionError, Descriptions
from backoff_ctrl.k8s.kube.operators.operator_config import OPERATORS, OperatorConfig, PodsMade
from backoff_ctrl.k8s.kube.operators.paths import FieldPath, ObjectPath
from backoff_ctrl.k8s.kube.operators.reading import has_ended, parts_made

from .kinds import KINDS, AdmissibleKind


class WaitingKind(OperatorConfig):
    """The description of an operator whose objects wait. It need not serve tasks."""

    task_types: list[str] = Field(default_factory=list)
    suspended: FieldPath
    pods_made: list[PodsMade] = Field(min_length=1)

    @model_validator(mode="after")
    def _counts_pods(self) -> Self:
        if all(each.fields for each in self.pods_made):
            raise ValueError(
                "pods-made: none of them is a pod template, so nobody knows what room it needs: name one without fields"
            )
        return self


WAITING_KINDS: Final = Descriptions(
    WaitingKind,
    "kind",
    "--kinds",
    "id, resource, state, states, suspended and pods-made",
    OPERATORS.page,
    OPERATORS.folder,
)


def described_kinds(files: Iterable[Path]) -> tuple[AdmissibleKind, ...]:
    """Return what can be let in: ``KINDS``, and those that files describe. Raises ``DescriptionError``."""
    found = [*KINDS]
    for config, where in WAITING_KINDS.read_files(files):
        kind = admissible(config)
        known = next((each for each in found if (each.group, each.plural) == (kind.group, kind.plural)), None)
        if known is not None:
            by = "without being described" if known in KINDS else "as an earlier description says"
            raise DescriptionError(f"{where}: resource: {kind.resource} waits {by}: leave it out")
        found.append(kind)
    return tuple(found)


def admissible(config: WaitingKind) -> AdmissibleKind:
    """Return the kind that a description is about."""
    about, managed = config.resource, config.managed_by
    kind = AdmissibleKind(
        about.api_version,
        about.kind,
        about.plural,
        suspend=_names(config.suspended),
        managed_by="" if managed is None else _names(managed.path),
        manager="" if managed is None else managed.controller,
        ended=partial(has_ended, config),
    )
    return replace(kind, makes=partial(parts_made, config, kind.resource))


def _names(path: ObjectPath) -> str:
    """Return the path of a field as names joined by dots."""
    return path.text.removeprefix("$.")
