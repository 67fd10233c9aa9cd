"""The table of kinds that the sandbox serves. For most namespaced kinds, their row suffices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One resource: where it is served, its names, and how its objects behave.

    Kinds are equal when group and plural are equal: the versions of a resource share their objects.
    """

    group: str
    version: str
    plural: str
    kind: str
    singular: str = ""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    strategic: bool = True  # whether strategic merge patch works: not for custom resources
    returns_deleted: bool = False  # a delete returns the object instead of a Status
    orphans: bool = False  # a delete leaves dependents alone unless it asks otherwise
    schema: dict[str, Any] | None = None  # of a custom resource, from its definition
    columns: tuple[dict[str, Any], ...] = ()  # likewise
    group_resource: str = field(init=False, default="")
    api_version: str = field(init=False, default="")

    def __post_init__(self) -> None:
        resource = f"{self.plural}.{self.group}" if self.group else self.plural
        object.__setattr__(self, "group_resource", resource)
        object.__setattr__(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)
        object.__setattr__(self, "singular", self.singular or self.kind.lower())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and self.group_resource == other.group_resource

    def __hash__(self) -> int:
        """Hash the name: strings cache their hash, so this is cheap."""
        return hash(self.group_resource)

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


_STATUS = ("status",)
_ALL = ("all",)

NAMESPACES = Kind(
    "", "v1", "namespaces", "Namespace", namespaced=False, short_names=("ns",), subresources=("finalize", "status")
)
PODS = Kind(
    "", "v1", "pods", "Pod", short_names=("po",), categories=_ALL, returns_deleted=True,
    subresources=("log", "resize", "status"),
)  # fmt: skip
QUOTAS = Kind(
    "", "v1", "resourcequotas", "ResourceQuota", short_names=("quota",), subresources=_STATUS, returns_deleted=True
)
LIMIT_RANGES = Kind("", "v1", "limitranges", "LimitRange", short_names=("limits",))
EVENTS = Kind("", "v1", "events", "Event", short_names=("ev",))
GROUP_EVENTS = Kind("events.k8s.io", "v1", "events", "Event", short_names=("ev",))  # see http/events
SERVICES = Kind(
    "", "v1", "services", "Service", short_names=("svc",), categories=_ALL, subresources=_STATUS, returns_deleted=True
)
CLAIMS = Kind(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), subresources=_STATUS,
    returns_deleted=True,
)  # fmt: skip
PRIORITY_CLASSES = Kind(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short_names=("pc",)
)
STORAGE_CLASSES = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short_names=("sc",))
RUNTIME_CLASSES = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False,
    short_names=("crd", "crds"), categories=("api-extensions",), subresources=_STATUS, returns_deleted=True,
)  # fmt: skip

DEVICE_CLAIMS = Kind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", subresources=_STATUS)

_SCALABLE = ("scale", "status")


def _custom(group: str, version: str, plural: str, kind: str, short: tuple[str, ...] = ()) -> Kind:
    return Kind(group, version, plural, kind, short_names=short, subresources=_STATUS, strategic=False)


BUILT_IN: tuple[Kind, ...] = (
    NAMESPACES,
    PODS,
    QUOTAS,
    LIMIT_RANGES,
    EVENTS,
    SERVICES,
    CLAIMS,
    Kind("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
    Kind("", "v1", "endpoints", "Endpoints", short_names=("ep",), singular="endpoints"),
    Kind("", "v1", "nodes", "Node", namespaced=False, short_names=("no",), subresources=_STATUS),
    Kind("", "v1", "podtemplates", "PodTemplate", returns_deleted=True),
    Kind("", "v1", "replicationcontrollers", "ReplicationController", short_names=("rc",), categories=_ALL,
         subresources=_SCALABLE),
    Kind("", "v1", "secrets", "Secret"),
    Kind("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",), returns_deleted=True),
    Kind("apps", "v1", "controllerrevisions", "ControllerRevision"),
    Kind("apps", "v1", "daemonsets", "DaemonSet", short_names=("ds",), categories=_ALL, subresources=_STATUS),
    Kind("apps", "v1", "deployments", "Deployment", short_names=("deploy",), categories=_ALL,
         subresources=_SCALABLE),
    Kind("apps", "v1", "replicasets", "ReplicaSet", short_names=("rs",), categories=_ALL,
         subresources=_SCALABLE),
    Kind("apps", "v1", "statefulsets", "StatefulSet", short_names=("sts",), categories=_ALL,
         subresources=_SCALABLE),
    Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", short_names=("hpa",),
         categories=_ALL, subresources=_STATUS),
    Kind("batch", "v1", "cronjobs", "CronJob", short_names=("cj",), categories=_ALL, subresources=_STATUS),
    Kind("batch", "v1", "jobs", "Job", categories=_ALL, subresources=_STATUS, orphans=True),
    Kind("coordination.k8s.io", "v1", "leases", "Lease"),
    Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    GROUP_EVENTS,
    Kind("networking.k8s.io", "v1", "ingresses", "Ingress", short_names=("ing",), subresources=_STATUS),
    Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short_names=("netpol",)),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short_names=("pdb",),
         subresources=_STATUS),
    Kind("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration",
         namespaced=False, categories=("api-extensions",)),
    Kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
    Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    Kind("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False),
    DEVICE_CLAIMS,
    Kind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
    Kind("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", namespaced=False,
         short_names=("vac",)),
    DEFINITIONS,
    _custom("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
    _custom("kubernetes.dask.org", "v1", "daskclusters", "DaskCluster"),
    _custom("kubernetes.dask.org", "v1", "daskjobs", "DaskJob"),
    _custom("ray.io", "v1", "rayclusters", "RayCluster"),
    _custom("ray.io", "v1", "rayjobs", "RayJob"),
    _custom("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "SparkApplication", ("sparkapp",)),
)  # fmt: skip


class Kinds:
    """The kinds served now: the built-in table, and what CustomResourceDefinitions add to it."""

    def __init__(self, kinds: Iterable[Kind] = BUILT_IN) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self.generation = 0  # rises with each change: discovery and OpenAPI cache by it
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def serves(self, group: str, version: str) -> bool:
        return any(kind.group == group and kind.version == version for kind in self._kinds.values())

    def serves_group(self, group: str) -> bool:
        return any(kind.group == group for kind in self._kinds.values())

    def add(self, kind: Kind) -> None:
        """Serve another kind; one that is served already stays as it is."""
        self._kinds.setdefault((kind.group, kind.version, kind.plural), kind)
        self.generation += 1

    def remove(self, kind: Kind) -> None:
        self._kinds.pop((kind.group, kind.version, kind.plural), None)
        self.generation += 1
