"""Objects that tests of admission are about."""

from __future__ import annotations

from typing import Any

from backoff_ctrl.k8s.workloads.admitting.kinds import KINDS, AdmissibleKind


def named(kind: str) -> AdmissibleKind:
    return next(each for each in KINDS if each.kind == kind)


def merged(body: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return what a JSON merge patch makes of an object."""
    made = dict(body)
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name) or {}, value) if isinstance(value, dict) else value
    return made
