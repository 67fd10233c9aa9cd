"""The columns of each kind in ``kubectl get``: after ``printers/internalversion`` of Kubernetes 1.36.

Only the kinds that people look at here have columns of their own; all others show name and creation time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from backoff_ctrl.k8s.lab.sandbox.objects.kinds import Kind
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON

_NONE = "<none>"
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


class Column(NamedTuple):
    """One column: its header, its cell and its type; a wide one shows only with ``-o wide``."""

    name: str
    cell: Callable[[JSON], Any]
    type: str = "string"
    wide: bool = False


def duration(seconds: float) -> str:
    """A duration in seconds as kubectl prints it (``HumanDuration``); a negative one is 0, because clocks differ."""

    def two(large: int, one: str, small: int, other: str) -> str:
        rest = whole % large // small
        return f"{whole // large}{one}{rest}{other}" if rest else f"{whole // large}{one}"

    whole = max(0, int(seconds))
    spans = (
        (2 * _MINUTE, f"{whole}s"),
        (10 * _MINUTE, two(_MINUTE, "m", 1, "s")),
        (3 * _HOUR, f"{whole // _MINUTE}m"),
        (8 * _HOUR, two(_HOUR, "h", _MINUTE, "m")),
        (2 * _DAY, f"{whole // _HOUR}h"),
        (8 * _DAY, two(_DAY, "d", _HOUR, "h")),
        (2 * _YEAR, f"{whole // _DAY}d"),
        (8 * _YEAR, two(_YEAR, "y", _DAY, "d")),
    )
    return next((text for bound, text in spans if whole < bound), f"{whole // _YEAR}y")


def _age(since: str | None) -> str:
    return duration(time.time() - datetime.fromisoformat(since).timestamp()) if since else "<unknown>"


def _part(obj: JSON, *path: str, default: Any = "") -> Any:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return default if value is None else value


def _at(*path: str, default: Any = "") -> Callable[[JSON], Any]:
    """A cell that shows one field."""
    return lambda obj: _part(obj, *path, default=default)


def _held(obj: JSON) -> set[str]:
    return {each.get("type", "") for each in _part(obj, "status", "conditions", default=()) if each["status"] == "True"}


def _ready(pod: JSON) -> str:
    first = _part(pod, "spec", "initContainers", default=())
    beside = sum(each.get("restartPolicy") == "Always" for each in first)
    total = len(_part(pod, "spec", "containers", default=())) + beside
    return f"{sum(_is_ready(each) for each in _container_statuses(pod))}/{total}"


def _is_ready(container: JSON) -> bool:
    return bool(container.get("ready")) and "running" in (container.get("state") or {})


def _container_statuses(pod: JSON) -> list[JSON]:
    """The statuses of init containers and containers, in the order in which they start."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _status(pod: JSON) -> str:
    """The phase, or what is more telling: why a container waits or has ended, or that the pod is being deleted."""
    status = pod.get("status") or {}
    phase = str(status.get("phase") or "")
    if pod["metadata"].get("deletionTimestamp") and phase not in {"Succeeded", "Failed"}:
        return "Terminating"
    if any(each.get("reason") == "SchedulingGated" for each in status.get("conditions") or ()):
        return "SchedulingGated"
    starting = _initializing(status.get("initContainerStatuses") or (), len(pod["spec"].get("initContainers") or ()))
    if starting:
        return starting
    text, runs, failure = str(status.get("reason") or phase), False, ""
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, ended = (state.get("waiting") or {}).get("reason"), state.get("terminated")
        if waiting:
            text = waiting
        elif ended is not None:
            text = _end(ended)
            failure = text if ended.get("exitCode") else failure
        runs = runs or _is_ready(container)
    if text != "Completed" or not (runs or failure):
        return text
    return "Running" if runs and "Ready" in _held(pod) else failure or "NotReady"


def _initializing(statuses: Iterable[JSON], total: int) -> str:
    """The state of the first unfinished init container; empty when all are done. A started sidecar counts as done."""
    for index, container in enumerate(statuses):
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if (ended is not None and not ended.get("exitCode")) or (container.get("started") and "running" in state):
            continue
        if ended is not None:
            return f"Init:{_end(ended)}"
        return f"Init:{waiting}" if waiting not in {None, "PodInitializing"} else f"Init:{index}/{total}"
    return ""


def _end(state: JSON) -> str:
    if state.get("reason"):
        return str(state["reason"])
    return f"Signal:{state['signal']}" if state.get("signal") else f"ExitCode:{state.get('exitCode', 0)}"


def _restarts(pod: JSON) -> str:
    """How often containers restarted, and how long ago the latest of the ended ones had finished."""
    containers = _container_statuses(pod)
    count = sum(int(each.get("restartCount") or 0) for each in containers)
    last = max((_part(each, "lastState", "terminated", "finishedAt") for each in containers), default="")
    return f"{count} ({_age(last)} ago)" if count and last else str(count)


def _gates(pod: JSON) -> str:
    gates = [each.get("conditionType") for each in _part(pod, "spec", "readinessGates", default=())]
    return f"{sum(gate in _held(pod) for gate in gates)}/{len(gates)}" if gates else _NONE


def _job_status(job: JSON) -> str:
    held = _held(job)
    if "Complete" not in held and "Failed" not in held and job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    known = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((state for state in known if state in held), "Running")


def _job_completions(job: JSON) -> str:
    succeeded, wanted = _part(job, "status", "succeeded", default=0), _part(job, "spec", "completions", default=None)
    parallel = _part(job, "spec", "parallelism", default=0)
    return f"{succeeded}/{wanted or 1}{f' of {parallel}' if wanted is None and parallel > 1 else ''}"


def _job_duration(job: JSON) -> str:
    started, ended = _part(job, "status", "startTime"), _part(job, "status", "completionTime")
    if not started or not ended:
        return _age(started) if started else ""
    return duration((datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds())


def _quota_side(limits: bool) -> Callable[[JSON], str]:
    def cell(quota: JSON) -> str:
        hard, used = _part(quota, "status", "hard", default={}), _part(quota, "status", "used", default={})
        names = sorted(name for name in hard if name.startswith("limits.") == limits)
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


def _ports(service: JSON) -> str:
    listed = []
    for port in _part(service, "spec", "ports", default=()):
        outside = f":{port['nodePort']}" if port.get("nodePort") else ""
        listed.append(f"{port.get('port')}{outside}/{port.get('protocol', 'TCP')}")
    return ",".join(listed) or _NONE


def _outside(service: JSON) -> str:
    """The external address of a Service: no load balancer ever gets one here."""
    kind = _part(service, "spec", "type")
    if kind == "ExternalName":
        return str(_part(service, "spec", "externalName"))
    outside = ",".join(_part(service, "spec", "externalIPs", default=()))
    return outside or ("<pending>" if kind == "LoadBalancer" else _NONE)


def _claim_status(claim: JSON) -> str:
    return "Terminating" if claim["metadata"].get("deletionTimestamp") else str(_part(claim, "status", "phase"))


def _access_modes(claim: JSON) -> str:
    return ",".join(_MODES.get(each, each) for each in _part(claim, "status", "accessModes", default=()))


def _last_seen(event: JSON) -> str:
    series = _part(event, "series", "lastObservedTime")
    return _age(series or event.get("lastTimestamp") or event.get("firstTimestamp") or event.get("eventTime"))


def _event_object(event: JSON) -> str:
    involved = event.get("involvedObject") or {}
    kind = str(involved.get("kind", "")).lower()
    return f"{kind}/{involved['name']}" if involved.get("name") else kind


def _number(name: str, *path: str) -> Column:
    return Column(name, _at(*path, default=0), "integer")


_NAME = Column("Name", lambda obj: str(obj["metadata"]["name"]))
_AGE = Column("Age", lambda obj: _age(obj["metadata"].get("creationTimestamp")))
_CREATED = Column("Created At", _at("metadata", "creationTimestamp", default=None), "date")
_READY = Column("Ready", lambda obj: f"{_part(obj, 'status', 'readyReplicas', default=0)}/{obj['spec']['replicas']}")

SCALE = (_NAME, _number("Desired", "spec", "replicas"), _number("Available", "status", "replicas"), _AGE)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "namespaces": (_NAME, Column("Status", _at("status", "phase")), _AGE),
    "pods": (
        _NAME,
        Column("Ready", _ready),
        Column("Status", _status),
        Column("Restarts", _restarts),
        _AGE,
        Column("IP", lambda pod: next((each["ip"] for each in _part(pod, "status", "podIPs", default=())), _NONE),
               wide=True),
        Column("Node", _at("spec", "nodeName", default=_NONE), wide=True),
        Column("Nominated Node", _at("status", "nominatedNodeName", default=_NONE), wide=True),
        Column("Readiness Gates", _gates, wide=True),
    ),
    "resourcequotas": (_NAME, Column("Request", _quota_side(False)), Column("Limit", _quota_side(True)), _AGE),
    "services": (
        _NAME,
        Column("Type", _at("spec", "type")),
        Column("Cluster-IP", lambda obj: next(iter(_part(obj, "spec", "clusterIPs", default=())), _NONE)),
        Column("External-IP", _outside),
        Column("Port(s)", _ports),
        _AGE,
    ),
    "persistentvolumeclaims": (
        _NAME,
        Column("Status", _claim_status),
        Column("Volume", _at("spec", "volumeName")),
        Column("Capacity", _at("status", "capacity", "storage")),
        Column("Access Modes", _access_modes),
        Column("StorageClass", _at("spec", "storageClassName")),
        Column("VolumeAttributesClass", _at("spec", "volumeAttributesClassName", default="<unset>")),
        _AGE,
    ),
    "events": (
        Column("Last Seen", _last_seen),
        Column("Type", _at("type")),
        Column("Reason", _at("reason")),
        Column("Object", _event_object),
        Column("Message", lambda obj: str(obj.get("message", "")).strip()),
    ),
    "configmaps": (
        _NAME, Column("Data", lambda obj: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())), _AGE
    ),
    "secrets": (_NAME, Column("Type", _at("type")), Column("Data", lambda obj: len(obj.get("data") or ())), _AGE),
    "serviceaccounts": (_NAME, _AGE),
    "replicasets.apps": (
        _NAME,
        _number("Desired", "spec", "replicas"),
        _number("Current", "status", "replicas"),
        _number("Ready", "status", "readyReplicas"),
        _AGE,
    ),
    "deployments.apps": (
        _NAME,
        _READY,
        Column("Up-to-date", _at("status", "updatedReplicas", default=0)),
        Column("Available", _at("status", "availableReplicas", default=0)),
        _AGE,
    ),
    "jobs.batch": (
        _NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        _AGE,
    ),
}  # fmt: skip


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """The columns of a kind; without columns of its own it shows its name and its age or creation time."""
    if kind.columns:
        return (_NAME, *map(_defined, kind.columns))
    return _COLUMNS.get(kind.group_resource) or ((_NAME, _CREATED) if kind.strategic else (_NAME, _AGE))


def _defined(column: JSON) -> Column:
    """A column of a CustomResourceDefinition: a plain path of fields, a time as the time since then."""
    cell = _at(*str(column["jsonPath"]).lstrip(".").split("."), default=None)
    wide = column.get("priority", 0) > 0
    if column["type"] != "date":
        return Column(column["name"], cell, column["type"], wide)
    return Column(column["name"], lambda obj: _age(cell(obj)), "date", wide)
