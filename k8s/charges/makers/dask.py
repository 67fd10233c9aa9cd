"""What a DaskCluster, a DaskJob and a DaskWorkerGroup make.

Source: ``dask_kubernetes/operator/controller/controller.py`` of github.com/dask/dask-kubernetes, since the scheduler
and each worker are Deployments (2023.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.charges.fields import count_at, mapping_at, required_mapping_at

from .made import Made, Maker, pods_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
