"""What the states of a kind mean for its pods, in one place: Tasks and who lets Jobs in read the same.

A kind that a description ships for (``*.yaml`` beside this module) has its states, what suspends it and who manages it
there: ``written`` reads these without pydantic, ``has_ended`` asks the whole description. Kinds that have a plugin of
their own, or no state, have their states here.

Sources: ``pkg/apis/batch/types.go`` of Kubernetes v1.36, ``api/jobset/v1alpha2/jobset_types.go`` of JobSet v0.12.0,
``pkg/apis/trainer/v1alpha1/trainjob_types.go`` of Kubeflow's Trainer v2.0.0, ``apis/ray/v1/raycluster_types.go`` of
KubeRay v1.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from backoff_ctrl.k8s.kube.answers.fields import mapping, text

if TYPE_CHECKING:
    from .operator_config import OperatorConfig  # loads pydantic


class Stands(StrEnum):
    """What a state means for the pods of an object."""

    WORKS = "it has pods, or is about to"
    SUSPENDED = "it makes no pods before it is resumed"
    ENDING = "it makes no more, and ends when those that live have"
    ENDED = "it is over"


States: TypeAlias = Mapping[str, Stands]

JOB: Final[States] = {
    "Complete": Stands.ENDED,
    "Failed": Stands.ENDED,
    "SuccessCriteriaMet": Stands.ENDING,  # since Kubernetes 1.31, as the next
    "FailureTarget": Stands.ENDING,
    "Suspended": Stands.SUSPENDED,
}
JOB_SET: Final[States] = {
    "Completed": Stands.ENDED,
    "Failed": Stands.ENDED,
    "Suspended": Stands.SUSPENDED,
    "RestartingJobSet": Stands.WORKS,
    "StartupPolicyInProgress": Stands.WORKS,
    "StartupPolicyCompleted": Stands.WORKS,
}
TRAIN_JOB: Final[States] = {"Complete": Stands.ENDED, "Failed": Stands.ENDED, "Suspended": Stands.SUSPENDED}
RAY_CLUSTER: Final[States] = {
    "": Stands.WORKS,
    "ready": Stands.WORKS,
    "failed": Stands.WORKS,  # no longer written: a cluster lasts until it is deleted
    "suspended": Stands.SUSPENDED,
}


def that_are(states: States, *stands: Stands) -> frozenset[str]:
    """Return the states that mean one of these."""
    return frozenset(name for name, each in states.items() if each in stands)


@cache
def written(name: str) -> Mapping[str, Any]:
    """Return a description that ships as it is written, ``ray``; it is checked by who uses the whole of it."""
    import yaml  # noqa: PLC0415 - 15 ms that many a command does not need

    content = (files(__package__) / f"{name}.yaml").read_bytes()
    return mapping(yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))  # noqa: S506 - both are safe


def field_of(name: str, *keys: str) -> str:
    """Return the path of a field that a description names by ``$.spec.suspend``, as names joined by dots."""
    found: Any = written(name)
    for key in keys:
        found = mapping(found).get(key)
    return text(found).removeprefix("$.")


def has_ended(name: str, body: Mapping[str, Any]) -> bool:
    """Return whether an object is over by the description that ships for its kind."""
    from .reading import has_ended as ended  # noqa: PLC0415 - pydantic, as its config

    return ended(described(name), body)


@cache
def described(name: str) -> OperatorConfig:
    """Return a description that ships, checked."""
    from .operator_config import OPERATORS  # noqa: PLC0415 - pydantic

    return OPERATORS.read(dict(written(name)), f"{name}.yaml")
