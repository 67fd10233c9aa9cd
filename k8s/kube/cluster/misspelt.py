"""The sentence about a namespace that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from backoff_ctrl.k8s.kube.answers.printing import printable

CHOOSE: Final = "check the name, or choose another with --namespace"


def no_namespace(name: str, known: Iterable[str] = ()) -> str:
    """Return that there is no such namespace, and which of those that are ``known`` may be meant."""
    near = get_close_matches(name, list(known), 1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return printable(f"namespace {name} does not exist{meant}: {CHOOSE}")
