"""The sentence about a namespace that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.answers.spelling import near

CHOOSE: Final = "check the name, or choose another with --namespace"


def no_namespace(name: str, known: Iterable[str] = ()) -> str:
    """Return that there is no such namespace, and which of those that are ``known`` may be meant."""
    meant = f" (did you mean {like}?)" if (like := near(name, known)) else ""
    return printable(f"namespace {name} does not exist{meant}: {CHOOSE}")
