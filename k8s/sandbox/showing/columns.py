"""The columns of each kind in ``kubectl get``: after ``printers/internalversion`` of Kubernetes 1.36."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from backoff_ctrl.k8s.sandbox.kinds.printer_columns import value_at

from .ages import age_now
from .cells import (
    NONE,
    UNSET,
    access_modes,
    at,
    balancers,
    claim_status,
    class_name,
    cluster_ip,
    each,
    endpoints,
    event_object,
    event_source,
    external,
    first_seen,
    gates,
    hosts,
    job_completions,
    job_duration,
    job_status,
    labels,
    last_seen,
    node_address,
    node_roles,
    node_status,
    of,
    of_node,
    once_bound,
    part,
    pod_ip,
    ports,
    quota_side,
    selector,
    since,
    size,
    subjects,
    suspended,
)
from .pod_columns import pod_cells

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON


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
