"""What the training jobs of Kubeflow make: PyTorchJob, TFJob, XGBoostJob, JAXJob, PaddleJob, MPIJob (v1 and v2beta1).

Sources: below ``pkg`` of github.com/kubeflow/training-operator v1.9.3 ``controller.v1/common/{job,service}.go``,
``controller.v1/pytorch/{initcontainer,hpa}.go``, ``controller.v1/mpi/mpijob_controller.go`` and
``apis/kubeflow.org/v1/*_defaults.go``; for v2beta1 ``pkg/controller/mpi_job_controller.go`` of
github.com/kubeflow/mpi-operator v0.6.0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.charges.fields import count_at, flag_at, mapping_at, mappings_at, required_mapping_at, text_at

from .made import Made, Maker, counted, is_managed_elsewhere, pods_from, services

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TRAINING: Final = "kubeflow.org/training-operator"
_MPI: Final = "kubeflow.org/mpi-operator"
_RBAC: Final = "rbac.authorization.k8s.io"

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
    """Return whether the job is suspended; None if another controller manages it, so that it makes nothing here."""
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
