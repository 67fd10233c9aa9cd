"""What the operators of Ray, Kubeflow and Dask make.

Sources of Ray, below ``controllers/ray`` of github.com/ray-project/kuberay/ray-operator v1.4.2:
``raycluster_controller.go`` (``reconcilePods`` and the functions that run before it), ``rayjob_controller.go``,
``common/{pod,service,job}.go`` and ``utils/util.go`` (``GetWorkerGroupDesiredReplicas``).

Sources of the training jobs (PyTorchJob, TFJob, XGBoostJob, JAXJob, PaddleJob, MPIJob v1 and v2beta1): below ``pkg`` of
github.com/kubeflow/training-operator v1.9.3 ``controller.v1/common/{job,service}.go``,
``controller.v1/pytorch/{initcontainer,hpa}.go``, ``controller.v1/mpi/mpijob_controller.go`` and
``apis/kubeflow.org/v1/*_defaults.go``; for v2beta1 ``pkg/controller/mpi_job_controller.go`` of
github.com/kubeflow/mpi-operator v0.6.0.

Source of Dask: ``dask_kubernetes/operator/controller/controller.py`` of github.com/dask/dask-kubernetes, since the
scheduler and each worker are Deployments (2023.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import (
    count_at,
    flag_at,
    mapping_at,
    mappings_at,
    number_at,
    required_mapping_at,
    text_at,
)

from .workloads import Made, Maker, counted, is_managed_elsewhere, pods_from, services

_OPERATOR: Final = "ray.io/kuberay-operator"
_RBAC: Final = "rbac.authorization.k8s.io"
SERVE_SERVICE: Final = "ray.io/enable-serve-service"
"""The annotation of a RayCluster that gets a Service for Ray Serve."""
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
    yield services(number=several_hosts + (annotations.get(SERVE_SERVICE) == "true"))
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


_TRAINING: Final = "kubeflow.org/training-operator"
_MPI: Final = "kubeflow.org/mpi-operator"

_WAIT_FOR_MASTER: Final = {
    "name": "init-pytorch",
    "resources": {"limits": {"cpu": "100m", "memory": "20Mi"}, "requests": {"cpu": "50m", "memory": "10Mi"}},
}
_DELIVER_KUBECTL: Final = {
    "name": "kubectl-delivery",
    "resources": {"limits": {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}},
}
"""Init containers as the operator adds them by default; both can be configured in the operator."""


def _replicas(specs: str) -> Maker:
    """Return the maker of jobs whose field ``specs`` maps types (Master, Worker, ..) to pods: each has a Service."""

    def make(made: Made) -> Iterator[Made]:
        suspended = _is_suspended(made, _TRAINING)
        if suspended is None:
            return
        for pods in _pods_by_type(made, specs, default=1).values():
            yield replace(pods, suspended=suspended)
            yield replace(services(), number=pods.number, suspended=suspended)

    return make


def _pytorch_job(made: Made) -> Iterator[Made]:
    """An elastic job starts with the workers it names; an autoscaler, made where it has metrics, changes that."""
    suspended = _is_suspended(made, _TRAINING)
    if suspended is None:
        return
    types = _pods_by_type(made, "pytorchReplicaSpecs", default=1)
    for name, pods in types.items():
        awaits = name.lower() == "worker" and any(each.lower() == "master" for each in types)
        yield replace(_with_init_container(pods, _WAIT_FOR_MASTER) if awaits else pods, suspended=suspended)
        yield replace(services(), number=pods.number, suspended=suspended)
    if mapping_at(made.spec, "elasticPolicy", made.at).get("metrics") is not None:
        yield counted("HorizontalPodAutoscaler", "horizontalpodautoscalers.autoscaling", suspended=suspended)


def _mpi_job(made: Made) -> Iterator[Made]:
    """Version v1 is the training operator's, v2beta1 that of the MPI operator."""
    yield from (_mpi_job_v2(made) if made.version == "v2beta1" else _mpi_job_v1(made))


def _mpi_job_v1(made: Made) -> Iterator[Made]:
    """A launcher that gets kubectl by an init container, its permissions and host file, and workers; no Services."""
    suspended = _is_suspended(made, _TRAINING)
    if suspended is None:
        return
    for name, pods in _pods_by_type(made, "mpiReplicaSpecs", default=0).items():
        if name.lower() == "launcher":
            if not text_at(pods.spec, "serviceAccountName", pods.at):
                yield counted("ServiceAccount", "serviceaccounts", suspended=suspended)
            yield replace(_with_init_container(pods, _DELIVER_KUBECTL), number=1, suspended=suspended)
        else:
            yield replace(pods, suspended=suspended)
    yield counted("ConfigMap", "configmaps", suspended=suspended)
    yield counted("Role", f"roles.{_RBAC}", suspended=suspended)
    yield counted("RoleBinding", f"rolebindings.{_RBAC}", suspended=suspended)


def _mpi_job_v2(made: Made) -> Iterator[Made]:
    """A Job for the launcher (suspended while the MPIJob is), workers, a Service, host file and key."""
    suspended = _is_suspended(made, _MPI)
    if suspended is None:
        return
    for name, pods in _pods_by_type(made, "mpiReplicaSpecs", default=0).items():
        if name.lower() == "launcher":
            spec = {"template": {"spec": pods.spec}, "suspend": suspended}
            yield Made(kind="Job", resource="jobs.batch", spec=spec, at=pods.template, template=pods.template)
        else:
            yield replace(pods, suspended=suspended)
    yield services()
    yield counted("ConfigMap", "configmaps")
    yield counted("Secret", "secrets")


def _is_suspended(made: Made, operator: str) -> bool | None:
    """Return whether the job is suspended; None if another controller manages it, so that it makes no pods here."""
    policy, at = mapping_at(made.spec, "runPolicy", made.at), f"{made.at}.runPolicy"
    return None if is_managed_elsewhere(policy, at, operator) else flag_at(policy, "suspend", at)


def _pods_by_type(made: Made, specs: str, default: int) -> dict[str, Made]:
    """Return the pods of each type. ``default`` is the number of replicas of all types but a launcher."""
    types, at = required_mapping_at(made.spec, specs, made.at), f"{made.at}.{specs}"
    found = {}
    for name in types:
        replica, path = required_mapping_at(types, name, at), f"{at}.{name}"
        number = count_at(replica, "replicas", path)
        if number is None:
            number = 1 if str(name).lower() == "launcher" else default
        found[str(name)] = pods_from(replica, "template", path, number)
    return found


def _with_init_container(pods: Made, container: Mapping[str, Any]) -> Made:
    """Return the pods with one more init container, the last."""
    containers = [*mappings_at(pods.spec, "initContainers", pods.at), container]
    return replace(pods, spec={**pods.spec, "initContainers": containers})


TRAINING_JOBS: Final[Mapping[str, Maker]] = {
    "jaxjobs.kubeflow.org": _replicas("jaxReplicaSpecs"),
    "mpijobs.kubeflow.org": _mpi_job,
    "paddlejobs.kubeflow.org": _replicas("paddleReplicaSpecs"),
    "pytorchjobs.kubeflow.org": _pytorch_job,
    "tfjobs.kubeflow.org": _replicas("tfReplicaSpecs"),
    "xgboostjobs.kubeflow.org": _replicas("xgbReplicaSpecs"),
}
"""By the resource of the job."""


def _dask_job(made: Made) -> Iterator[Made]:
    """A DaskCluster, and the pod that runs the user's program against it."""
    cluster = required_mapping_at(made.spec, "cluster", made.at)
    at = f"{made.at}.cluster"
    spec = required_mapping_at(cluster, "spec", at)
    yield Made(kind="DaskCluster", resource="daskclusters.kubernetes.dask.org", spec=spec, at=f"{at}.spec")
    yield pods_from(made.spec, "job", made.at)


def _dask_cluster(made: Made) -> Iterator[Made]:
    """The scheduler, its Service, and one worker group. A DaskAutoscaler, where there is one, changes its replicas."""
    scheduler, at = required_mapping_at(made.spec, "scheduler", made.at), f"{made.at}.scheduler"
    yield _deployments(made.spec, "scheduler", made.at, 1)
    service = mapping_at(scheduler, "service", at)
    yield Made(kind="Service", resource="services", spec=service, at=f"{at}.service")
    worker = required_mapping_at(made.spec, "worker", made.at)
    group = {"worker": worker}
    yield Made(kind="DaskWorkerGroup", resource="daskworkergroups.kubernetes.dask.org", spec=group, at=made.at)


def _dask_worker_group(made: Made) -> Iterator[Made]:
    """One Deployment for each worker."""
    worker = required_mapping_at(made.spec, "worker", made.at)
    replicas = count_at(worker, "replicas", f"{made.at}.worker")
    yield _deployments(made.spec, "worker", made.at, 1 if replicas is None else replicas)


def _deployments(parent: Mapping[str, Any], key: str, at: str, number: int) -> Made:
    """Deployments of one pod each, made from the section ``key``."""
    path = f"{at}.{key}"
    spec = {"template": parent[key]}
    return Made(kind="Deployment", resource="deployments.apps", spec=spec, at=path, number=number, template=path)


DASK: Final[Mapping[str, Maker]] = {
    "daskclusters.kubernetes.dask.org": _dask_cluster,
    "daskjobs.kubernetes.dask.org": _dask_job,
    "daskworkergroups.kubernetes.dask.org": _dask_worker_group,
}
"""By the resource of what makes."""
