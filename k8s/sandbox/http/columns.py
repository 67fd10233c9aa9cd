"""The columns of each kind in ``kubectl get``: after ``printers/internalversion`` of Kubernetes 1.36."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from backoff_ctrl.k8s.sandbox.objects.kinds import Kind
from backoff_ctrl.k8s.sandbox.objects.texts import JSON

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


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
    (2 * _YEAR, lambda s: f"{s // _DAY}d"),
    (8 * _YEAR, lambda s: _two(s, _YEAR, "y", _DAY, "d")),
)


def duration(seconds: float) -> str:
    """A duration in seconds as text; a negative one counts as zero, because clocks differ."""
    whole = max(0, int(seconds))
    for bound, tell in _SPANS:
        if whole < bound:
            return tell(whole)
    return f"{whole // _YEAR}y"


def age(since: str | None, now: float) -> str:
    """The time between a timestamp and ``now`` (Unix seconds); ``<unknown>`` without a timestamp."""
    return duration(now - datetime.fromisoformat(since).timestamp()) if since else "<unknown>"


def age_now(since: str | None) -> str:
    """The time since a timestamp."""
    return age(since, time.time())


def between(since: str, until: str) -> str:
    """The time between two timestamps."""
    return duration(datetime.fromisoformat(until).timestamp() - datetime.fromisoformat(since).timestamp())


_STEP = re.compile(r'\.([^.\[\]]+)|\[(\d+)\]|\[\?\(@\.(\w+)\s*==\s*["\']([^"\']*)["\']\)\]')


def value_at(obj: JSON, path: str) -> Any:
    """The value at a JSONPath of names, indexes and equality filters; None where there is none."""
    value: Any = obj
    for name, index, field, wanted in _STEP.findall(path):
        if name:
            value = value.get(name) if isinstance(value, dict) else None
        elif not isinstance(value, list):
            return None
        elif index:
            value = value[int(index)] if int(index) < len(value) else None
        else:
            value = next((each for each in value if isinstance(each, dict) and str(each.get(field)) == wanted), None)
    return value


_ENDED = frozenset({"Succeeded", "Failed"})


class PodCells(NamedTuple):
    """The cells READY, STATUS and RESTARTS."""

    ready: str
    status: str
    restarts: str


@dataclass(slots=True)
class _Restarts:
    """How often containers restarted, and when the latest of the ended ones had finished."""

    count: int = 0
    last: str = ""  # timestamps in one format: the later one is the greater one

    def add(self, container: JSON) -> None:
        """Add the restarts of a container."""
        self.count += int(container.get("restartCount") or 0)
        before = (container.get("lastState") or {}).get("terminated") or {}
        self.last = max(self.last, before.get("finishedAt") or "")

    def cell(self) -> str:
        """The text of the cell, such as ``4 (2m ago)``."""
        return f"{self.count} ({age_now(self.last)} ago)" if self.count and self.last else str(self.count)


def pod_cells(pod: JSON) -> PodCells:
    """Compute the three cells from spec and status."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    phase = str(status.get("phase") or "")
    reason = str(status.get("reason") or phase)
    if (conditions.get("PodScheduled") or {}).get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    first = list(spec.get("initContainers") or ())
    beside = {each.get("name") for each in first if each.get("restartPolicy") == "Always"}
    total = len(spec.get("containers") or ()) + len(beside)
    said, ready, restarts, restarts_beside = _initializing(status, beside, len(first))
    if not said or _holds(conditions, "Initialized"):
        reason, now_ready = _running(status, said or reason, _holds(conditions, "Ready"), restarts_beside)
        ready, restarts = ready + now_ready, restarts_beside
    else:
        reason = said
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif phase not in _ENDED:
            reason = "Terminating"
    return PodCells(f"{ready}/{total}", reason, restarts.cell())


def _initializing(status: JSON, beside: set[str | None], total: int) -> tuple[str, int, _Restarts, _Restarts]:
    """The status of the first init container that still holds up the pod, the number ready, and the restarts.

    The last value counts only the restarts of sidecars.
    """
    ready, restarts, restarts_beside = 0, _Restarts(), _Restarts()
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        ended, waits = state.get("terminated"), (state.get("waiting") or {}).get("reason") or ""
        restarts.add(container)
        if container.get("name") in beside:
            restarts_beside.add(container)
        if ended is not None and not ended.get("exitCode"):
            continue
        if container.get("name") in beside and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        if ended is not None:
            return f"Init:{_ended(ended)}", ready, restarts, restarts_beside
        said = waits if waits not in {"", "PodInitializing"} else f"{index}/{total}"
        return f"Init:{said}", ready, restarts, restarts_beside
    return "", ready, restarts, restarts_beside


def _running(status: JSON, reason: str, pod_ready: bool, restarts: _Restarts) -> tuple[str, int]:
    """The status that follows from the containers, and how many of them are ready."""
    ready, failed = 0, ""
    for container in reversed(status.get("containerStatuses") or ()):
        restarts.add(container)
        state = container.get("state") or {}
        ended, waits = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if waits:
            reason = waits
        elif ended is not None:
            reason = _ended(ended)
            failed = reason if ended.get("exitCode") else failed
        elif container.get("ready") and state.get("running") is not None:
            ready += 1
    if reason == "Completed":
        if ready and pod_ready:
            return "Running", ready
        if failed or ready:
            return failed or "NotReady", ready
    return reason, ready


def _ended(state: JSON) -> str:
    if state.get("reason"):
        return str(state["reason"])
    return f"Signal:{state['signal']}" if state.get("signal") else f"ExitCode:{state.get('exitCode', 0)}"


def _holds(conditions: dict[str | None, JSON], name: str) -> bool:
    return (conditions.get(name) or {}).get("status") == "True"


NONE = "<none>"
UNSET = "<unset>"
_NAMED = 3  # hosts and endpoints that a cell lists before it counts the rest
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_JOB_STATES = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_ROLE = "node-role.kubernetes.io/"


def part(obj: JSON, *path: str, default: Any = "") -> Any:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return default if value is None else value


def at(*path: str, default: Any = "") -> Callable[[JSON], Any]:
    """A cell that shows one field."""
    return lambda obj: part(obj, *path, default=default)


def since(*path: str) -> Callable[[JSON], str]:
    """A cell that shows how long ago the time in a field was."""
    return lambda obj: age_now(part(obj, *path)) if part(obj, *path) else NONE


def quota_side(limits: bool) -> Callable[[JSON], str]:
    def cell(quota: JSON) -> str:
        hard, used = part(quota, "status", "hard", default={}), part(quota, "status", "used", default={})
        names = sorted(name for name in hard if name.startswith("limits.") == limits)
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


def of(ready: tuple[str, ...], wanted: tuple[str, ...]) -> Callable[[JSON], str]:
    """A cell such as 1/3."""
    return lambda obj: f"{part(obj, *ready, default=0)}/{part(obj, *wanted, default=0)}"


def size(*fields: str) -> Callable[[JSON], int]:
    return lambda obj: sum(len(obj.get(field) or {}) for field in fields)


def labels(*path: str) -> Callable[[JSON], str]:
    """A cell that lists the labels in a field."""

    def cell(obj: JSON) -> str:
        labels = part(obj, *path, default={})
        return ",".join(f"{name}={labels[name]}" for name in sorted(labels)) or NONE

    return cell


def selector(*path: str) -> Callable[[JSON], str]:
    """A cell that shows a label selector, sorted by key."""

    def cell(obj: JSON) -> str:
        selector = part(obj, *path, default={})
        terms = [(name, f"{name}={value}") for name, value in (selector.get("matchLabels") or {}).items()]
        for each in selector.get("matchExpressions") or ():
            name, values = each.get("key", ""), ",".join(sorted(each.get("values") or ()))
            text = {"In": f"{name} in ({values})", "NotIn": f"{name} notin ({values})", "Exists": name}
            terms.append((name, text.get(each.get("operator"), f"!{name}")))
        return ",".join(text for _, text in sorted(terms, key=lambda term: term[0])) or NONE

    return cell


def each(field: str, *path: str) -> Callable[[JSON], str]:
    """A cell that lists one field of each container in a template."""
    return lambda obj: ",".join(str(each.get(field, "")) for each in part(obj, *path, "containers", default=()))


def job_status(job: JSON) -> str:
    held = [each.get("type") for each in part(job, "status", "conditions", default=()) if each.get("status") == "True"]
    for ended in ("Complete", "Failed"):
        if ended in held:
            return ended
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((state for state in _JOB_STATES if state in held), "Running")


def job_duration(job: JSON) -> str:
    started, ended = part(job, "status", "startTime"), part(job, "status", "completionTime")
    if not started:
        return ""
    return between(started, ended) if ended else age_now(started)


def job_completions(job: JSON) -> str:
    succeeded, wanted = part(job, "status", "succeeded", default=0), part(job, "spec", "completions", default=None)
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallel = part(job, "spec", "parallelism", default=0)
    return f"{succeeded}/1 of {parallel}" if parallel > 1 else f"{succeeded}/1"


def suspended(cron_job: JSON) -> str:
    suspend = part(cron_job, "spec", "suspend", default=None)
    return UNSET if suspend is None else str(suspend)


def ports(service: JSON) -> str:
    listed = []
    for port in part(service, "spec", "ports", default=()):
        outside = f":{port['nodePort']}" if port.get("nodePort") else ""
        listed.append(f"{port.get('port')}{outside}/{port.get('protocol', 'TCP')}")
    return ",".join(listed) or NONE


def balancers(obj: JSON) -> str:
    found = {
        each.get("ip") or each.get("hostname") for each in part(obj, "status", "loadBalancer", "ingress", default=())
    }
    return ",".join(sorted(each for each in found if each))


def external(service: JSON) -> str:
    kind, outside = part(service, "spec", "type"), list(part(service, "spec", "externalIPs", default=()))
    if kind == "ExternalName":
        return str(part(service, "spec", "externalName"))
    if kind == "LoadBalancer":
        inside = balancers(service)
        return ",".join([*([inside] if inside else []), *outside]) or "<pending>"
    return ",".join(outside) or NONE


def cluster_ip(service: JSON) -> str:
    addresses = part(service, "spec", "clusterIPs", default=())
    return str(addresses[0]) if addresses else NONE


def hosts(ingress: JSON) -> str:
    rules = part(ingress, "spec", "rules", default=())
    hosts = [each["host"] for each in rules if each.get("host")]
    return _some(hosts, len(rules)) if hosts else "*"


def _some(found: list[str], total: int) -> str:
    """The first entries, and how many more there are."""
    listed = ",".join(found[:_NAMED])
    return f"{listed} + {total - _NAMED} more..." if len(found) > _NAMED else listed


def endpoints(obj: JSON) -> str:
    found = []
    for subset in obj.get("subsets") or ():
        addresses = [each.get("ip", "") for each in subset.get("addresses") or ()]
        for port in subset.get("ports") or (None,):
            found += [address if port is None else f"{address}:{port.get('port')}" for address in addresses]
    return _some(found, len(found)) or NONE


def subjects(kind: str) -> Callable[[JSON], str]:
    def cell(binding: JSON) -> str:
        found = [each for each in binding.get("subjects") or () if each.get("kind") == kind]
        above = [f"{each.get('namespace', '')}/" if kind == "ServiceAccount" else "" for each in found]
        return ", ".join(f"{place}{each.get('name', '')}" for place, each in zip(above, found, strict=True))

    return cell


def claim_status(claim: JSON) -> str:
    return "Terminating" if claim["metadata"].get("deletionTimestamp") else str(part(claim, "status", "phase"))


def once_bound(cell: Callable[[JSON], str]) -> Callable[[JSON], str]:
    """A cell of a claim that stays empty until the claim is bound."""
    return lambda claim: cell(claim) if part(claim, "spec", "volumeName") else ""


def first_seen(event: JSON) -> str:
    return age_now(event.get("firstTimestamp") or event.get("eventTime"))


def last_seen(event: JSON) -> str:
    seen = part(event, "series", "lastObservedTime") or event.get("lastTimestamp")
    return age_now(seen) if seen else first_seen(event)


def event_object(event: JSON) -> str:
    involved = event.get("involvedObject") or {}
    kind = str(involved.get("kind", "")).lower()
    return f"{kind}/{involved['name']}" if involved.get("name") else kind


def event_source(event: JSON) -> str:
    component = part(event, "source", "component") or event.get("reportingComponent") or ""
    instance = part(event, "source", "host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def node_status(node: JSON) -> str:
    ready = [each for each in part(node, "status", "conditions", default=()) if each.get("type") == "Ready"]
    states = [("Ready" if each.get("status") == "True" else "NotReady") for each in ready] or ["Unknown"]
    return ",".join([*states, *(["SchedulingDisabled"] if part(node, "spec", "unschedulable") else [])])


def node_roles(node: JSON) -> str:
    labels = part(node, "metadata", "labels", default={})
    roles = {name.removeprefix(_ROLE) for name in labels if name.startswith(_ROLE)}
    return ",".join(sorted(roles | {labels.get("kubernetes.io/role", "")} - {""})) or NONE


def node_address(kind: str) -> Callable[[JSON], str]:
    def cell(node: JSON) -> str:
        found: Iterable[JSON] = part(node, "status", "addresses", default=())
        return next((str(each.get("address")) for each in found if each.get("type") == kind), NONE)

    return cell


def of_node(field: str) -> Callable[[JSON], str]:
    return lambda node: part(node, "status", "nodeInfo", field) or "<unknown>"


def class_name(storage_class: JSON) -> str:
    default = part(storage_class, "metadata", "annotations", _DEFAULT_CLASS) == "true"
    return f"{storage_class['metadata']['name']}{' (default)' if default else ''}"


def gates(pod: JSON) -> str:
    gates = [each.get("conditionType") for each in part(pod, "spec", "readinessGates", default=())]
    held = {each.get("type") for each in part(pod, "status", "conditions", default=()) if each.get("status") == "True"}
    return f"{sum(gate in held for gate in gates)}/{len(gates)}" if gates else NONE


def pod_ip(pod: JSON) -> str:
    return next((str(each["ip"]) for each in part(pod, "status", "podIPs", default=())), NONE)


def access_modes(claim: JSON) -> str:
    return ",".join(_MODES.get(each, each) for each in part(claim, "status", "accessModes", default=()))


class Column(NamedTuple):
    """One column: its header, its cell and its type; a wide one shows only with ``-o wide``."""

    name: str
    cell: Callable[[JSON], Any]
    type: str = "string"
    wide: bool = False


def _containers(*path: str) -> tuple[Column, Column]:
    names, images = each("name", *path), each("image", *path)
    return Column("Containers", names, wide=True), Column("Images", images, wide=True)


_TEMPLATE = ("spec", "template", "spec")
_CRON_TEMPLATE = ("spec", "jobTemplate", "spec", "template", "spec")
_NAME = Column("Name", lambda obj: str(obj["metadata"]["name"]))
_AGE = Column("Age", lambda obj: age_now(obj["metadata"].get("creationTimestamp")))
_CREATED = Column("Created At", at("metadata", "creationTimestamp", default=None), "date")
_SELECTED = (*_containers(*_TEMPLATE), Column("Selector", selector("spec", "selector"), wide=True))
_REPLICAS = (
    _NAME,
    Column("Desired", at("spec", "replicas", default=0), "integer"),
    Column("Current", at("status", "replicas", default=0), "integer"),
    Column("Ready", at("status", "readyReplicas", default=0), "integer"),
    _AGE,
)
_READY = of(("status", "readyReplicas"), ("spec", "replicas"))
_BINDING = (
    _NAME,
    Column("Role", lambda obj: f"{part(obj, 'roleRef', 'kind')}/{part(obj, 'roleRef', 'name')}"),
    _AGE,
    Column("Users", subjects("User"), wide=True),
    Column("Groups", subjects("Group"), wide=True),
    Column("ServiceAccounts", subjects("ServiceAccount"), wide=True),
)

SCALE = (
    _NAME,
    Column("Desired", at("spec", "replicas", default=0), "integer"),
    Column("Available", at("status", "replicas", default=0), "integer"),
    _AGE,
)

_COLUMNS: dict[str, tuple[Column, ...]] = {
    "namespaces": (_NAME, Column("Status", at("status", "phase")), _AGE),
    "pods": (
        _NAME,
        Column("Ready", lambda pod: pod_cells(pod).ready),
        Column("Status", lambda pod: pod_cells(pod).status),
        Column("Restarts", lambda pod: pod_cells(pod).restarts),
        _AGE,
        Column("IP", pod_ip, wide=True),
        Column("Node", at("spec", "nodeName", default=NONE), wide=True),
        Column("Nominated Node", at("status", "nominatedNodeName", default=NONE), wide=True),
        Column("Readiness Gates", gates, wide=True),
    ),
    "podtemplates": (
        _NAME,
        Column("Containers", each("name", "template", "spec")),
        Column("Images", each("image", "template", "spec")),
        Column("Pod Labels", labels("template", "metadata", "labels")),
    ),
    "nodes": (
        _NAME,
        Column("Status", node_status),
        Column("Roles", node_roles),
        _AGE,
        Column("Version", at("status", "nodeInfo", "kubeletVersion")),
        Column("Internal-IP", node_address("InternalIP"), wide=True),
        Column("External-IP", node_address("ExternalIP"), wide=True),
        Column("OS-Image", of_node("osImage"), wide=True),
        Column("Kernel-Version", of_node("kernelVersion"), wide=True),
        Column("Container-Runtime", of_node("containerRuntimeVersion"), wide=True),
    ),
    "resourcequotas": (_NAME, Column("Request", quota_side(False)), Column("Limit", quota_side(True)), _AGE),
    "services": (
        _NAME,
        Column("Type", at("spec", "type")),
        Column("Cluster-IP", cluster_ip),
        Column("External-IP", external),
        Column("Port(s)", ports),
        _AGE,
        Column("Selector", labels("spec", "selector"), wide=True),
    ),
    "endpoints": (_NAME, Column("Endpoints", endpoints), _AGE),
    "persistentvolumeclaims": (
        _NAME,
        Column("Status", claim_status),
        Column("Volume", at("spec", "volumeName")),
        Column("Capacity", once_bound(at("status", "capacity", "storage", default="0"))),
        Column("Access Modes", once_bound(access_modes)),
        Column("StorageClass", at("spec", "storageClassName")),
        Column("VolumeAttributesClass", at("spec", "volumeAttributesClassName", default=UNSET)),
        _AGE,
        Column("VolumeMode", at("spec", "volumeMode", default=UNSET), wide=True),
    ),
    "events": (
        Column("Last Seen", last_seen),
        Column("Type", at("type")),
        Column("Reason", at("reason")),
        Column("Object", event_object),
        Column("Subobject", at("involvedObject", "fieldPath"), wide=True),
        Column("Source", event_source, wide=True),
        Column("Message", lambda obj: str(obj.get("message", "")).strip()),
        Column("First Seen", first_seen, wide=True),
        Column("Count", lambda obj: part(obj, "series", "count") or obj.get("count") or 1, wide=True),
        Column(*_NAME[:2], wide=True),
    ),
    "configmaps": (_NAME, Column("Data", size("data", "binaryData")), _AGE),
    "secrets": (_NAME, Column("Type", at("type")), Column("Data", size("data")), _AGE),
    "serviceaccounts": (_NAME, _AGE),
    "replicationcontrollers": (
        *_REPLICAS, *_containers(*_TEMPLATE), Column("Selector", labels("spec", "selector"), wide=True)
    ),
    "replicasets.apps": (*_REPLICAS, *_SELECTED),
    "deployments.apps": (
        _NAME,
        Column("Ready", _READY),
        Column("Up-to-date", at("status", "updatedReplicas", default=0)),
        Column("Available", at("status", "availableReplicas", default=0)),
        _AGE,
        *_SELECTED,
    ),
    "statefulsets.apps": (_NAME, Column("Ready", _READY), _AGE, *_containers(*_TEMPLATE)),
    "daemonsets.apps": (
        _NAME,
        Column("Desired", at("status", "desiredNumberScheduled", default=0), "integer"),
        Column("Current", at("status", "currentNumberScheduled", default=0), "integer"),
        Column("Ready", at("status", "numberReady", default=0), "integer"),
        Column("Up-to-date", at("status", "updatedNumberScheduled", default=0), "integer"),
        Column("Available", at("status", "numberAvailable", default=0), "integer"),
        Column("Node Selector", labels(*_TEMPLATE, "nodeSelector")),
        _AGE,
        *_SELECTED,
    ),
    "jobs.batch": (
        _NAME,
        Column("Status", job_status),
        Column("Completions", job_completions),
        Column("Duration", job_duration),
        _AGE,
        *_SELECTED,
    ),
    "cronjobs.batch": (
        _NAME,
        Column("Schedule", at("spec", "schedule")),
        Column("Timezone", at("spec", "timeZone", default=NONE)),
        Column("Suspend", suspended, "boolean"),
        Column("Active", lambda obj: len(part(obj, "status", "active", default=())), "integer"),
        Column("Last Schedule", since("status", "lastScheduleTime")),
        _AGE,
        *_containers(*_CRON_TEMPLATE),
        Column("Selector", selector("spec", "jobTemplate", "spec", "selector"), wide=True),
    ),
    "leases.coordination.k8s.io": (_NAME, Column("Holder", at("spec", "holderIdentity")), _AGE),
    "ingresses.networking.k8s.io": (
        _NAME,
        Column("Class", at("spec", "ingressClassName", default=NONE)),
        Column("Hosts", hosts),
        Column("Address", balancers),
        Column("Ports", lambda obj: "80, 443" if part(obj, "spec", "tls") else "80"),
        _AGE,
    ),
    "poddisruptionbudgets.policy": (
        _NAME,
        Column("Min Available", lambda obj: str(part(obj, "spec", "minAvailable", default="N/A"))),
        Column("Max Unavailable", lambda obj: str(part(obj, "spec", "maxUnavailable", default="N/A"))),
        Column("Allowed Disruptions", at("status", "disruptionsAllowed", default=0), "integer"),
        _AGE,
    ),
    "rolebindings.rbac.authorization.k8s.io": _BINDING,
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDING,
    "priorityclasses.scheduling.k8s.io": (
        _NAME,
        Column("Value", at("value", default=0), "integer"),
        Column("Global-Default", at("globalDefault", default=False), "boolean"),
        _AGE,
        Column("PreemptionPolicy", at("preemptionPolicy", default="PreemptLowerPriority")),
    ),
    "runtimeclasses.node.k8s.io": (_NAME, Column("Handler", at("handler")), _AGE),
    "storageclasses.storage.k8s.io": (
        Column("Name", class_name),
        Column("Provisioner", at("provisioner")),
        Column("ReclaimPolicy", at("reclaimPolicy", default="Delete")),
        Column("VolumeBindingMode", at("volumeBindingMode", default="Immediate")),
        Column("AllowVolumeExpansion", at("allowVolumeExpansion", default=False)),
        _AGE,
    ),
}  # fmt: skip


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """The columns of a kind; without columns of its own it shows its name and its age or creation time."""
    if kind.columns:
        return (_NAME, *map(_defined, kind.columns))
    return _COLUMNS.get(kind.group_resource) or ((_NAME, _CREATED) if kind.strategic else (_NAME, _AGE))


def _defined(column: JSON) -> Column:
    """A column that a CustomResourceDefinition defines."""
    path, type_ = str(column.get("jsonPath", "")), str(column.get("type", "string"))

    def cell(obj: JSON) -> Any:
        value = value_at(obj, path)
        return age_now(value) if type_ == "date" and value else value

    return Column(str(column.get("name", "")), cell, type_)
