"""Events of ``events.k8s.io/v1``: the same objects as ``v1`` Events, with other field names.

They are stored as ``v1``. What is written through the group is validated by the rules of that version (Kubernetes'
``pkg/apis/core/validation/events.go``) and renamed; what is read through it is renamed back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from backoff_ctrl.k8s.sandbox.http.bodies import JSON_TYPE, media_type, read_object, read_patch
from backoff_ctrl.k8s.sandbox.objects.answers import invalid
from backoff_ctrl.k8s.sandbox.objects.kinds import EVENTS, GROUP_EVENTS
from backoff_ctrl.k8s.sandbox.objects.texts import JSON, dump, load
from backoff_ctrl.k8s.sandbox.verbs.requests import Target

Problem = tuple[str, str, str]


_STORED: Final = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_SHOWN: Final = {stored: shown for shown, stored in _STORED.items()}
_LONGEST: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_NO_NAME: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_UNSET: Final = ("firstTimestamp", "lastTimestamp", "count", "source")
_QUALIFIED: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def stored_target(target: Target) -> Target:
    """The target with the kind under which the objects are stored."""
    return replace(target, kind=EVENTS)


def stored_body(verb: str, target: Target, data: bytes, header: str | None, *, strict: bool) -> tuple[bytes, str]:
    """The ``v1`` body for a create, replace or patch, and its media type. Raises 400, 415 and 422."""
    if verb == "patch":
        return dump(_renamed_patch(read_patch(data, header))), media_type(header)
    body = _renamed(read_object(GROUP_EVENTS, data, header, strict=strict), _STORED)
    if body.get("apiVersion") == GROUP_EVENTS.api_version:
        body["apiVersion"] = EVENTS.api_version
    if verb == "create":
        _check(body, target.place)
    return dump(body), JSON_TYPE


def shown_body(data: bytes) -> bytes:
    """An event, or a list of events, with the group's field names; anything else unchanged."""
    found = load(data)
    if found.get("apiVersion") != EVENTS.api_version or found.get("kind") not in {EVENTS.kind, EVENTS.list_kind}:
        return data
    if "items" in found:
        found["items"] = [_renamed(item, _SHOWN) for item in found["items"]]
    return dump({**_renamed(found, _SHOWN), "apiVersion": GROUP_EVENTS.api_version})


def _renamed(body: JSON, names: dict[str, str]) -> JSON:
    return {names.get(field, field): value for field, value in body.items()}


def _renamed_patch(patch: Any) -> Any:
    if isinstance(patch, dict):
        return _renamed(patch, _STORED)
    if not isinstance(patch, list):
        return patch
    return [
        {field: _renamed_path(value) if field in {"path", "from"} else value for field, value in each.items()}
        if isinstance(each, dict)
        else each
        for each in patch
    ]


def _renamed_path(path: Any) -> Any:
    if not isinstance(path, str):
        return path
    first, slash, rest = path.removeprefix("/").partition("/")
    return f"/{_STORED.get(first, first)}{slash}{rest}" if path.startswith("/") else path


def _check(event: JSON, namespace: str) -> None:
    """Validate by the rules of ``events.k8s.io/v1``. Raises 422."""
    problems = [*_unplaced(event, namespace), *_of_series(event)] if event.get("eventTime") else [*_of_series(event)]
    if not event.get("eventTime"):
        problems.append(_missing("eventTime"))
    if event.get("type") not in {"Normal", "Warning"}:
        problems.append(_wrong("type", f"has invalid value: {event.get('type') or ''}"))
    problems += [_wrong(field, "needs to be unset") for field in _UNSET if event.get(field)]
    if problems:
        raise invalid(EVENTS, str((event.get("metadata") or {}).get("name") or ""), problems)


def _unplaced(event: JSON, namespace: str) -> Iterator[Problem]:
    """What is wrong with namespace, reporter, action and reason."""
    if not (event.get("involvedObject") or {}).get("namespace") and namespace not in {"default", "kube-system"}:
        yield _wrong("involvedObject.namespace", "does not match event.namespace")
    controller = event.get("reportingComponent")
    if controller and not _QUALIFIED.fullmatch(controller):
        yield _wrong("reportingController", _NO_NAME, controller)
    for field in ("reportingComponent", "reportingInstance", "action", "reason"):
        if not event.get(field):
            yield _missing(_SHOWN.get(field, field))
    for field, most in _LONGEST.items():
        if len(str(event.get(field) or "").encode()) > most:
            yield _wrong(field, f"can have at most {most} characters")


def _of_series(event: JSON) -> Iterator[Problem]:
    series = event.get("series")
    if not isinstance(series, dict):
        return
    if (series.get("count") or 0) < 2:
        yield _wrong("series.count", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield _missing("series.lastObservedTime")


def _wrong(field: str, why: str, value: str = "") -> Problem:
    return "FieldValueInvalid", field, f'Invalid value: "{value}": {why}'


def _missing(field: str) -> Problem:
    return "FieldValueRequired", field, "Required value"
