"""The columns of each kind as ``kubectl get`` shows them, names and order as a 1.36 server gives them."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from .encoding import JSON
    from .kinds import Kind

_NONE = "<none>"
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


class Column(NamedTuple):
    """One column: how it is called, what it shows; a wide one only with ``-o wide``."""

    name: str
    cell: Callable[[JSON], Any]
    type: str = "string"
    wide: bool = False


def _part(obj: JSON, *path: str, default: Any = "") -> Any:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return default if value is None else value


def _at(*path: str, default: Any = "") -> Callable[[JSON], Any]:
    """A cell that shows one field."""
    return lambda obj: _part(obj, *path, default=default)


def _age(obj: JSON) -> str:
    return age(obj["metadata"].get("creationTimestamp"), time.time())


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
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or _NONE


def _last_seen(event: JSON) -> str:
    return age(event.get("lastTimestamp") or event["metadata"].get("creationTimestamp"), time.time())


def _event_object(event: JSON) -> str:
    involved = event.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _of(ready: tuple[str, ...], wanted: tuple[str, ...], default: int = 1) -> Callable[[JSON], str]:
    """A cell like 1/3."""
    return lambda obj: f"{_part(obj, *ready, default=0)}/{_part(obj, *wanted, default=default)}"


def _size(field: str) -> Callable[[JSON], str]:
    return lambda obj: str(len(obj.get(field) or {}))


def _job_status(job: JSON) -> str:
    for condition in _part(job, "status", "conditions", default=()):
        if condition.get("type") in {"Complete", "Failed", "Suspended"} and condition.get("status") == "True":
            return str(condition["type"])
    return "Suspended" if _part(job, "spec", "suspend") is True else "Running"


def _job_duration(job: JSON) -> str:
    started = _part(job, "status", "startTime")
    return age(started, time.time()) if started else ""


def _each(field: str) -> Callable[[JSON], str]:
    """One field of the containers of a template."""

    def told(obj: JSON) -> str:
        containers = _part(obj, "spec", "template", "spec", "containers", default=())
        return ",".join(str(each.get(field, "")) for each in containers)

    return told


def _selector(obj: JSON) -> str:
    selector = _part(obj, "spec", "selector", default={})
    labels = selector.get("matchLabels", selector)
    return ",".join(f"{name}={labels[name]}" for name in sorted(labels)) or _NONE


_NAME = Column("Name", lambda obj: str(obj["metadata"]["name"]))
_AGE = Column("Age", _age)
_CREATED = Column("Created At", _at("metadata", "creationTimestamp", default=None), "date")
_TEMPLATE = (Column("Containers", _each("name"), wide=True), Column("Images", _each("image"), wide=True))
_SELECTED = (*_TEMPLATE, Column("Selector", _selector, wide=True))
_REPLICAS = (
    _NAME,
    Column("Desired", _at("spec", "replicas", default=0), "integer"),
    Column("Current", _at("status", "replicas", default=0), "integer"),
    Column("Ready", _at("status", "readyReplicas", default=0), "integer"),
    _AGE,
    *_SELECTED,
)
_READY = _of(("status", "readyReplicas"), ("spec", "replicas"))

_COLUMNS: dict[str, tuple[Column, ...]] = {
    "namespaces": (_NAME, Column("Status", _at("status", "phase")), _AGE),
    "pods": (
        _NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        _AGE,
        Column("IP", _at("status", "podIP", default=_NONE), wide=True),
        Column("Node", _at("spec", "nodeName", default=_NONE), wide=True),
        Column("Nominated Node", _at("status", "nominatedNodeName", default=_NONE), wide=True),
        Column("Readiness Gates", lambda _: _NONE, wide=True),
    ),
    "resourcequotas": (_NAME, Column("Request", _quota_side("")), Column("Limit", _quota_side("limits.")), _AGE),
    "services": (
        _NAME,
        Column("Type", _at("spec", "type")),
        Column("Cluster-IP", _at("spec", "clusterIP", default=_NONE)),
        Column("External-IP", lambda _: _NONE),
        Column("Port(s)", _ports),
        _AGE,
        Column("Selector", _selector, wide=True),
    ),
    "persistentvolumeclaims": (
        _NAME,
        Column("Status", _at("status", "phase")),
        Column("Volume", _at("spec", "volumeName")),
        Column("Capacity", _at("status", "capacity", "storage")),
        Column("Access Modes", lambda obj: ",".join(_part(obj, "status", "accessModes", default=()))),
        Column("StorageClass", _at("spec", "storageClassName")),
        Column("VolumeAttributesClass", _at("spec", "volumeAttributesClassName", default="<unset>")),
        _AGE,
        Column("VolumeMode", _at("spec", "volumeMode"), wide=True),
    ),
    "events": (
        Column("Last Seen", _last_seen),
        Column("Type", _at("type")),
        Column("Reason", _at("reason")),
        Column("Object", _event_object),
        Column("Message", lambda obj: str(obj.get("message", "")).strip()),
    ),
    "configmaps": (_NAME, Column("Data", _size("data")), _AGE),
    "secrets": (_NAME, Column("Type", _at("type")), Column("Data", _size("data")), _AGE),
    "serviceaccounts": (_NAME, _AGE),
    "replicationcontrollers": _REPLICAS,
    "replicasets.apps": _REPLICAS,
    "deployments.apps": (
        _NAME,
        Column("Ready", _READY),
        Column("Up-to-date", _at("status", "updatedReplicas", default=0)),
        Column("Available", _at("status", "availableReplicas", default=0)),
        _AGE,
        *_SELECTED,
    ),
    "statefulsets.apps": (_NAME, Column("Ready", _READY), _AGE, *_TEMPLATE),
    "jobs.batch": (
        _NAME,
        Column("Status", _job_status),
        Column("Completions", _of(("status", "succeeded"), ("spec", "completions"))),
        Column("Duration", _job_duration),
        _AGE,
        *_SELECTED,
    ),
    "cronjobs.batch": (
        _NAME,
        Column("Schedule", _at("spec", "schedule")),
        Column("Suspend", _at("spec", "suspend", default=False), "boolean"),
        _AGE,
    ),
    "leases.coordination.k8s.io": (_NAME, Column("Holder", _at("spec", "holderIdentity")), _AGE),
    "priorityclasses.scheduling.k8s.io": (
        _NAME,
        Column("Value", _at("value", default=0), "integer"),
        Column("Global-Default", _at("globalDefault", default=False), "boolean"),
        _AGE,
        Column("PreemptionPolicy", _at("preemptionPolicy", default="PreemptLowerPriority")),
    ),
    "runtimeclasses.node.k8s.io": (_NAME, Column("Handler", _at("handler")), _AGE),
    "storageclasses.storage.k8s.io": (_NAME, Column("Provisioner", _at("provisioner")), _AGE),
}  # fmt: skip


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """The columns of a kind; one that has none of its own shows its name and its time."""
    return _COLUMNS.get(kind.group_resource) or ((_NAME, _CREATED) if kind.strategic else (_NAME, _AGE))
