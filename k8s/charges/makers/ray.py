"""What a RayCluster and a RayJob make.

Sources, below ``controllers/ray`` of github.com/ray-project/kuberay/ray-operator v1.4.2: ``raycluster_controller.go``
(``reconcilePods`` and the functions that run before it), ``rayjob_controller.go``, ``common/{pod,service,job}.go`` and
``utils/util.go`` (``GetWorkerGroupDesiredReplicas``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.charges.fields import (
    count_at,
    flag_at,
    mapping_at,
    mappings_at,
    number_at,
    required_mapping_at,
    text_at,
)

from .made import Made, Maker, counted, is_managed_elsewhere, pods_from, services

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OPERATOR: Final = "ray.io/kuberay-operator"
_RBAC: Final = "rbac.authorization.k8s.io"
_UNLIMITED: Final = 2**31 - 1  # the default of maxReplicas
_HEAD_PORTS: Final = frozenset({"client", "gcs-server", "dashboard", "metrics", "serve"})

_AUTOSCALER: Final = {"cpu": "500m", "memory": "512Mi"}
_WAIT_FOR_HEAD: Final = {"name": "wait-gcs-ready", "resources": {"limits": {"cpu": "200m", "memory": "256Mi"}}}
_SUBMITTER: Final = {
    "containers": [
        {
            "name": "ray-job-submitter",
            "resources": {
                "requests": {"cpu": "500m", "memory": "200Mi"},
                "limits": {"cpu": "1", "memory": "1Gi"},
            },
        }
    ]
}
"""Containers and a pod as the operator writes them itself."""


def _ray_job(made: Made) -> Iterator[Made]:
    """A RayCluster, unless it uses an existing one, and the Job that submits the entry point, unless by HTTP."""
    if is_managed_elsewhere(made.spec, made.at, _OPERATOR):
        return
    suspended = flag_at(made.spec, "suspend", made.at)
    if not mapping_at(made.spec, "clusterSelector", made.at):
        cluster = required_mapping_at(made.spec, "rayClusterSpec", made.at)
        at = f"{made.at}.rayClusterSpec"
        yield Made(
            kind="RayCluster",
            resource="rayclusters.ray.io",
            spec=cluster,
            at=at,
            metadata=made.metadata,  # the operator copies labels and annotations
            suspended=suspended,
        )
    if text_at(made.spec, "submissionMode", made.at) in {"", "K8sJobMode"}:
        yield _submitter(made, suspended=suspended)


def _submitter(made: Made, *, suspended: bool) -> Made:
    """The Job that runs ``ray job submit``, from the user's pod template or the operator's."""
    job = counted("Job", "jobs.batch", suspended=suspended)
    if made.spec.get("submitterPodTemplate") is None:
        return replace(job, spec={"template": {"spec": _SUBMITTER}})
    template = mapping_at(made.spec, "submitterPodTemplate", made.at)
    at = f"{made.at}.submitterPodTemplate"
    return replace(job, spec={"template": template}, at=at, template=at)


def _ray_cluster(made: Made) -> Iterator[Made]:
    """The head, the workers of all groups, and the head's Services and permissions.

    With an autoscaler, worker groups start with their replicas and grow to ``maxReplicas`` as tasks come.
    """
    if is_managed_elsewhere(made.spec, made.at, _OPERATOR):
        return
    suspended = flag_at(made.spec, "suspend", made.at)
    group, at = required_mapping_at(made.spec, "headGroupSpec", made.at), f"{made.at}.headGroupSpec"
    head = pods_from(group, "template", at)
    scales = flag_at(made.spec, "enableInTreeAutoscaling", made.at)
    yield replace(_with_autoscaler(made, head) if scales else head, suspended=suspended)
    several_hosts = False
    for index, workers in enumerate(mappings_at(made.spec, "workerGroupSpecs", made.at)):
        place = f"{made.at}.workerGroupSpecs[{index}]"
        several_hosts = several_hosts or number_at(workers, "numOfHosts", place, 1) > 1
        pods = _workers(workers, place)
        yield replace(pods, suspended=suspended or pods.suspended)
    yield _head_service(group, at, head)
    annotations = mapping_at(made.metadata, "annotations", "metadata")
    yield services(number=several_hosts + (annotations.get("ray.io/enable-serve-service") == "true"))
    if flag_at(group, "enableIngress", at):
        yield counted("Ingress", "ingresses.networking.k8s.io")
    if scales:
        yield from _permissions(head)


def _workers(group: Mapping[str, Any], at: str) -> Made:
    """The pods of one worker group; each waits for the head in an init container."""
    pods = pods_from(group, "template", at)
    least, most = count_at(group, "minReplicas", at), count_at(group, "maxReplicas", at)
    replicas = min(max(count_at(group, "replicas", at) or 0, least or 0), _UNLIMITED if most is None else most)
    return replace(
        pods,
        spec={**pods.spec, "initContainers": [*mappings_at(pods.spec, "initContainers", pods.at), _WAIT_FOR_HEAD]},
        number=replicas * number_at(group, "numOfHosts", at, 1),
        suspended=flag_at(group, "suspend", at),
    )


def _with_autoscaler(made: Made, head: Made) -> Made:
    """Return the head with the autoscaler's container."""
    at = f"{made.at}.autoscalerOptions"
    options = mapping_at(made.spec, "autoscalerOptions", made.at)
    resources = (
        mapping_at(options, "resources", at) if options.get("resources") is not None else {"limits": _AUTOSCALER}
    )
    container = {"name": "autoscaler", "resources": resources}
    containers = [*mappings_at(head.spec, "containers", head.at), container]
    return replace(head, spec={**head.spec, "containers": containers})


def _head_service(group: Mapping[str, Any], at: str, head: Made) -> Made:
    """The Service of the head: of the user's type, with the user's ports and those of the head's container."""
    given = mapping_at(group, "headService", at)
    spec = mapping_at(given, "spec", f"{at}.headService")
    kind = text_at(spec, "type", f"{at}.headService.spec") or text_at(group, "serviceType", at)
    own = len(_head_ports(head) | {"metrics"})
    return services(kind or "ClusterIP", own + len(mappings_at(spec, "ports", f"{at}.headService.spec")))


def _head_ports(head: Made) -> frozenset[str]:
    """The names of the ports of the head's first container, or else the default ports."""
    containers = mappings_at(head.spec, "containers", head.at)
    at = f"{head.at}.containers[0]"
    ports = mappings_at(containers[0], "ports", at) if containers else []
    names = [text_at(port, "name", f"{at}.ports[{index}]") for index, port in enumerate(ports)]
    return frozenset(name or f"port {index}" for index, name in enumerate(names)) or _HEAD_PORTS


def _permissions(head: Made) -> Iterator[Made]:
    """What lets the autoscaler change the cluster."""
    if not text_at(head.spec, "serviceAccountName", head.at):
        yield counted("ServiceAccount", "serviceaccounts")
    yield counted("Role", f"roles.{_RBAC}")
    yield counted("RoleBinding", f"rolebindings.{_RBAC}")


RAY: Final[Mapping[str, Maker]] = {"rayclusters.ray.io": _ray_cluster, "rayjobs.ray.io": _ray_job}
