"""The patches by which an object is let in, released, and marked with what it waits for: JSON merge patches. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.gate.expected_pods import with_label

from .kinds import (
    ADMITTED,
    PARALLELISM,
    RELEASED_BY,
    WAITS_FOR,
    AdmissibleKind,
    Subject,
    field_at,
    patch_at,
)

_LIST: Final = re.compile(r"\[\d+\]")


def resumed(
    subject: Subject,
    body: Mapping[str, Any],
    *,
    now: datetime,
    granted: Mapping[str, Any],
    label: str = "",
    templates: Iterable[str] = (),
    parallelism: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Return the patch that lets an object in, if it is still as it was seen; ``body``: all of it, or what is kept.

    ``granted`` is what was reserved for it, for people. ``label`` is that of its gang, and goes into these templates.
    ``parallelism``: what it begins with, and what it asked for.
    """
    kind = subject.kind
    patch = merged(patch_at(kind.suspend, False), admission(subject, now=now, granted={**granted, "gang": label}))
    if label:
        patch = merged(patch, labelled(body, templates, label))
    if parallelism is not None:
        patch = merged(patch, grown(kind, *parallelism))
    return patch


def noted(subject: Subject, *, now: datetime, granted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that notes on an object that it was let in, in any state."""
    annotations = admission(subject, now=now, granted=granted)["metadata"]["annotations"]
    return {"metadata": {"annotations": annotations}}


def admission(subject: Subject, *, now: datetime, granted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that notes on an object that it was let in, if it is still as it was seen."""
    noted_of = {"at": f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", "uid": subject.uid}
    said = {**noted_of, **{key: each for key, each in granted.items() if each}}
    annotations: dict[str, Any] = {ADMITTED: json.dumps(said)}
    if WAITS_FOR in subject.annotations:
        annotations[WAITS_FOR] = None
    return {"metadata": {"resourceVersion": subject.version, "annotations": annotations}}


def grown(kind: AdmissibleKind, parallelism: int, asked: int) -> dict[str, Any]:
    """Return the patch that gives a Job so many pods at a time, of those that it asked for."""
    remembered = str(asked) if asked > parallelism else None
    return {**patch_at(kind.parallelism, parallelism), "metadata": {"annotations": {PARALLELISM: remembered}}}


def released(subject: Subject, by: str, now: datetime, *, as_seen: bool = True) -> dict[str, Any]:
    """Return the patch by which a user lets an object in without reserved room.

    ``as_seen``: only if it has not changed since; else after any change, as long as it is the same object.
    """
    patch = merged(patch_at(subject.kind.suspend, False), admission(subject, now=now, granted={"by": by}))
    if not as_seen:
        del patch["metadata"]["resourceVersion"]
        patch["metadata"]["uid"] = subject.uid
    return merged(patch, {"metadata": {"annotations": {RELEASED_BY: by}}})


def waiting(said: str) -> dict[str, Any]:
    """Return the patch that says on an object what it waits for."""
    return {"metadata": {"annotations": {WAITS_FOR: said}}}


def replaces_list(templates: Iterable[str]) -> bool:
    """Return whether ``labelled`` replaces a list, so that it needs the whole object: see ``shape``."""
    return any(_LIST.search(template) for template in templates)


def labelled(body: Mapping[str, Any], templates: Iterable[str], label: str) -> dict[str, Any]:
    """Return the patch that labels pod templates. A list is replaced as a whole: a merge patch knows no other way."""
    patch: dict[str, Any] = {}
    for template in sorted(templates):
        found = _LIST.search(template)
        if found is None:
            change = patch_at(f"{template}.metadata.labels", {GANG_LABEL: label})
        else:
            field = template[: found.start()]
            body = with_label(dict(body), template.split("."), label)
            change = patch_at(field, field_at(body, field))
        patch = merged(patch, change)
    return patch


def merged(patch: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return one patch that does what both do."""
    made = dict(patch)
    for name, value in other.items():
        known = made.get(name)
        both = isinstance(value, Mapping) and isinstance(known, Mapping)
        made[name] = merged(known, value) if both else value  # type: ignore[arg-type]
    return made
