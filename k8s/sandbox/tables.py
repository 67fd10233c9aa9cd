"""Tables, as ``kubectl get`` asks for them: the columns of each kind, and a row for each object."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .encoding import JSON, dump, load
from .kinds import CLAIMS, EVENTS, LIMIT_RANGES, NAMESPACES, PODS, QUOTAS, SERVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .kinds import Kind

    Column = tuple[str, str, Callable[[JSON], Any]]

_TABLE = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def _two(seconds: int, large: int, one: str, small: int, other: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large}{one}{rest}{other}" if rest else f"{seconds // large}{one}"


_SPANS: tuple[tuple[int, Callable[[int], str]], ...] = (
    (2 * _MINUTE, lambda s: f"{s}s"),
    (10 * _MINUTE, lambda s: _two(s, _MINUTE, "m", 1, "s")),
    (3 * _HOUR, lambda s: f"{s // _MINUTE}m"),
    (8 * _HOUR, lambda s: _two(s, _HOUR, "h", _MINUTE, "m")),
    (2 * _DAY, lambda s: f"{s // _HOUR}h"),
    (8 * _DAY, lambda s: _two(s, _DAY, "d", _HOUR, "h")),
)


def age(since: str | None, now: float) -> str:
    """How long ago, as kubectl tells it (``duration.HumanDuration``)."""
    if not since:
        return "<unknown>"
    seconds = max(0, int(now - datetime.fromisoformat(since).timestamp()))
    for bound, told in _SPANS:
        if seconds < bound:
            return told(seconds)
    return f"{seconds // _DAY}d"


def _name(obj: JSON) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: JSON) -> str:
    return age(obj["metadata"].get("creationTimestamp"), time.time())


def _part(obj: JSON, *path: str, default: Any = "") -> Any:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return default if value is None else value


def _pod_ready(pod: JSON) -> str:
    ready = sum(1 for each in _part(pod, "status", "containerStatuses", default=()) if each.get("ready"))
    return f"{ready}/{len(_part(pod, 'spec', 'containers', default=()))}"


def _pod_status(pod: JSON) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    phase = str(_part(pod, "status", "reason") or _part(pod, "status", "phase", default="Unknown"))
    return "Completed" if phase == "Succeeded" else phase


def _pod_restarts(pod: JSON) -> str:
    return str(sum(each.get("restartCount", 0) for each in _part(pod, "status", "containerStatuses", default=())))


def _quota_side(prefix: str) -> Callable[[JSON], str]:
    def told(quota: JSON) -> str:
        hard, used = _part(quota, "status", "hard", default={}), _part(quota, "status", "used", default={})
        names = sorted(name for name in hard if name.startswith("limits.") == (prefix == "limits."))
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return told


def _ports(service: JSON) -> str:
    ports = _part(service, "spec", "ports", default=())
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


def _last_seen(event: JSON) -> str:
    return age(event.get("lastTimestamp") or event["metadata"].get("creationTimestamp"), time.time())


def _event_object(event: JSON) -> str:
    involved = event.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


_NAME: Column = ("Name", "string", _name)
_AGE: Column = ("Age", "string", _age)
_PLAIN: tuple[Column, ...] = (_NAME, ("Created At", "date", lambda o: o["metadata"].get("creationTimestamp")))

_COLUMNS: dict[Kind, tuple[Column, ...]] = {
    NAMESPACES: (_NAME, ("Status", "string", lambda o: _part(o, "status", "phase")), _AGE),
    PODS: (
        _NAME,
        ("Ready", "string", _pod_ready),
        ("Status", "string", _pod_status),
        ("Restarts", "string", _pod_restarts),
        _AGE,
    ),
    QUOTAS: (
        _NAME,
        ("Request", "string", _quota_side("")),
        ("Limit", "string", _quota_side("limits.")),
        _AGE,
    ),
    LIMIT_RANGES: (_NAME, ("Created At", "string", lambda o: o["metadata"].get("creationTimestamp", ""))),
    SERVICES: (
        _NAME,
        ("Type", "string", lambda o: _part(o, "spec", "type")),
        ("Cluster-IP", "string", lambda o: _part(o, "spec", "clusterIP", default="<none>")),
        ("Port(s)", "string", _ports),
        _AGE,
    ),
    CLAIMS: (
        _NAME,
        ("Status", "string", lambda o: _part(o, "status", "phase")),
        ("Capacity", "string", lambda o: _part(o, "status", "capacity", "storage")),
        ("StorageClass", "string", lambda o: _part(o, "spec", "storageClassName")),
        _AGE,
    ),
    EVENTS: (
        ("Last Seen", "string", _last_seen),
        ("Type", "string", lambda o: o.get("type", "")),
        ("Reason", "string", lambda o: o.get("reason", "")),
        ("Object", "string", _event_object),
        ("Message", "string", lambda o: str(o.get("message", "")).strip()),
    ),
}

_BY_PLURAL: dict[str, tuple[Column, ...]] = {
    "configmaps": (_NAME, ("Data", "string", lambda o: str(len(o.get("data") or {}))), _AGE),
    "secrets": (
        _NAME,
        ("Type", "string", lambda o: o.get("type", "")),
        ("Data", "string", lambda o: str(len(o.get("data") or {}))),
        _AGE,
    ),
    "jobs": (
        _NAME,
        ("Completions", "string", lambda o: f"{_part(o, 'status', 'succeeded', default=0)}/"
                                            f"{_part(o, 'spec', 'completions', default=1)}"),
        _AGE,
    ),
    "deployments": (
        _NAME,
        ("Ready", "string", lambda o: f"{_part(o, 'status', 'readyReplicas', default=0)}/"
                                      f"{_part(o, 'spec', 'replicas', default=1)}"),
        _AGE,
    ),
    "serviceaccounts": (_NAME, _AGE),
}  # fmt: skip


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """The columns of a kind; one that is not in the table has a name and a time of creation."""
    return _COLUMNS.get(kind) or _BY_PLURAL.get(kind.plural) or ((_NAME, _AGE) if not kind.strategic else _PLAIN)


def table(kind: Kind, objects: Iterable[JSON], metadata: JSON, include: str = "", *, headed: bool = True) -> JSON:
    """A Table. ``include`` is ``includeObject``: Metadata (also when empty), Object or None."""
    columns = columns_of(kind)
    definitions = [_definition(name, type_) for name, type_, _ in columns]
    rows = [{"cells": [cell(obj) for _, _, cell in columns], "object": _included(obj, include)} for obj in objects]
    return {**_TABLE, "metadata": metadata, "columnDefinitions": definitions if headed else [], "rows": rows}


def table_shape(kind: Kind, include: str) -> Callable[[bytes], bytes]:
    """What a watch sends in place of an object: a Table with one row, headed the first time."""
    headed = True

    def shape(data: bytes) -> bytes:
        nonlocal headed
        obj = load(data)
        if "name" not in obj["metadata"]:  # a bookmark
            return dump(table(kind, (), obj["metadata"], include, headed=False))
        metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        made = dump(table(kind, (obj,), metadata, include, headed=headed))
        headed = False
        return made

    return shape


def _definition(name: str, type_: str) -> JSON:
    format_ = "name" if name == "Name" else ""
    return {"name": name, "type": type_, "format": format_, "description": "", "priority": 0}


def _included(obj: JSON, include: str) -> JSON | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return partial_object(obj)


def partial_object(obj: JSON) -> JSON:
    """The metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
