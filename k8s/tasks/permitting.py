"""The rights that a user needs so that a task is made, ended or run again for them: the same over HTTP and with
``kubectl``.

The manager's account may create more than they may. So a task needs the right to create its object in its namespace:
with that, Kubernetes lets people mount any Secret and use any service account of that namespace, and a task asks for
no other right there. A task without an object needs a right for each of those instead (``rights`` of its plugin).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from backoff_ctrl.k8s.kube.cluster.rights import Right
from backoff_ctrl.k8s.tasks.plugins.registry import Entry

from .model import MUTABLE, NOTED_WITH
from .reading import first_difference

AHEAD: Final = Right("update", "resourcequotas")
"""The right that a priority above 0 needs: those who may change the quota decide who goes first under it."""


class ChangedError(ValueError):
    """A spec was changed that is to stay as it is; the message names the first field that differs."""


def to_create(entry: Entry, spec: Mapping[str, Any]) -> tuple[Right, ...]:
    """Return the rights that creating a task needs."""
    ahead = (AHEAD,) if spec.get("priority", 0) > 0 else ()
    return (*entry.rights("create", spec), *ahead)


def to_change(entry: Entry, spec: Mapping[str, Any], changed: frozenset[str]) -> tuple[Right, ...]:
    """Return the rights that a change of these ``MUTABLE`` fields needs; ``spec`` is the new one.

    Each of them ends what there is: an attempt, a wait for the signal, an outcome. Who runs a task again has its next
    object created, too.
    """
    ends = entry.rights("delete", spec) if changed else ()
    return (*ends, *(to_create(entry, spec) if "again" in changed else ()))


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> frozenset[str]:
    """Return which ``MUTABLE`` fields differ between two versions of a spec. Raises ``ChangedError`` for any other.

    All fields count, also those of parts that no schema describes.
    """
    if fingerprint(old) != fingerprint(new):
        found = first_difference(_fixed(old), _fixed(new), "spec")
        path = "spec" if found is None else found[0]
        raise ChangedError(
            f"{path} can't be changed: delete the task, or give the new one another name; only "
            f"{', '.join(sorted(MUTABLE - {*NOTED_WITH.values()}))} may change"
        )
    return frozenset(name for name in MUTABLE if _canonical(old.get(name)) != _canonical(new.get(name)))


def fingerprint(spec: Mapping[str, Any]) -> str:
    """Return a hash of what must not change in a spec: equal for the same JSON, in any order of its fields."""
    return hashlib.sha256(_canonical(_fixed(spec)).encode()).hexdigest()


def _fixed(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in MUTABLE}


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
