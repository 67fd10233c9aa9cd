"""What Kubernetes' own controllers make: Jobs, Deployments, StatefulSets, pods with volumes of their own, and so on.

Sources, below ``pkg/controller`` of k8s.io/kubernetes v1.36: ``job/job_controller.go`` (``manageJob``),
``cronjob/cronjob_controllerv2.go``, ``deployment/sync.go``, ``replicaset/replica_set.go``,
``statefulset/stateful_set_utils.go``, ``daemon/daemon_controller.go``, ``volume/ephemeral/controller.go``,
``resourceclaim/controller.go``; the defaults in ``pkg/apis/{batch,apps}/v1/defaults.go``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.charges.fields import count_at, flag_at, mapping_at, mappings_at, required_mapping_at, text_at

from .made import Made, Maker, claims_from, counted, is_managed_elsewhere, pods_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

JOB_CONTROLLER: Final = "kubernetes.io/job-controller"


def _job(made: Made) -> Iterator[Made]:
    """Pods that run at once: parallelism, but never more than the completions (indexed or not)."""
    if is_managed_elsewhere(made.spec, made.at, JOB_CONTROLLER):
        return
    parallelism, completions = count_at(made.spec, "parallelism", made.at), count_at(made.spec, "completions", made.at)
    number = 1 if parallelism is None else parallelism
    number = number if completions is None else min(number, completions)
    yield replace(_pods(made, number), suspended=flag_at(made.spec, "suspend", made.at))


def _cron_job(made: Made) -> Iterator[Made]:
    """One run. With ``concurrencyPolicy: Allow`` runs that outlast the schedule overlap; how many is unknown."""
    template = required_mapping_at(made.spec, "jobTemplate", made.at)
    at = f"{made.at}.jobTemplate"
    spec = required_mapping_at(template, "spec", at)
    suspended = flag_at(made.spec, "suspend", made.at)
    yield Made(kind="Job", resource="jobs.batch", spec=spec, at=f"{at}.spec", suspended=suspended)


def _deployment(made: Made) -> Iterator[Made]:
    """One ReplicaSet. An update makes a second one, and up to ``maxSurge`` more pods."""
    yield Made(kind="ReplicaSet", resource="replicasets.apps", spec=made.spec, at=made.at, template=made.template)


def _replicas(made: Made) -> Iterator[Made]:
    """All replicas, by default one."""
    yield _pods(made, _number_of_replicas(made))


def _stateful_set(made: Made) -> Iterator[Made]:
    """All replicas, and for each of them a claim from each template. They outlive the pods unless a policy says so."""
    number = _number_of_replicas(made)
    yield _pods(made, number)
    for index, claim in enumerate(mappings_at(made.spec, "volumeClaimTemplates", made.at)):
        yield claims_from(claim, f"{made.at}.volumeClaimTemplates[{index}]", number)


def _daemon_set(made: Made) -> Iterator[Made]:
    """One pod for each node that fits: only the cluster knows how many."""
    yield _pods(made, None)


def _pod(made: Made) -> Iterator[Made]:
    """A claim for each ephemeral volume, and a ResourceClaim for each template of one that the pod names.

    The devices of such a ResourceClaim are in the template, which is another object: only its count is known.
    """
    for index, volume in enumerate(mappings_at(made.spec, "volumes", made.at)):
        at = f"{made.at}.volumes[{index}]"
        ephemeral = mapping_at(volume, "ephemeral", at)
        if ephemeral.get("volumeClaimTemplate") is not None:
            claim = mapping_at(ephemeral, "volumeClaimTemplate", f"{at}.ephemeral")
            yield claims_from(claim, f"{at}.ephemeral.volumeClaimTemplate")
    for index, claim in enumerate(mappings_at(made.spec, "resourceClaims", made.at)):
        if text_at(claim, "resourceClaimTemplateName", f"{made.at}.resourceClaims[{index}]"):
            yield counted("ResourceClaim", "resourceclaims.resource.k8s.io")


def _pods(made: Made, number: int | None) -> Made:
    return pods_from(made.spec, "template", made.at, number, made.template)


def _number_of_replicas(made: Made) -> int:
    replicas = count_at(made.spec, "replicas", made.at)
    return 1 if replicas is None else replicas


WORKLOADS: Final[Mapping[str, Maker]] = {
    "cronjobs.batch": _cron_job,
    "daemonsets.apps": _daemon_set,
    "deployments.apps": _deployment,
    "jobs.batch": _job,
    "pods": _pod,
    "replicasets.apps": _replicas,
    "replicationcontrollers": _replicas,
    "statefulsets.apps": _stateful_set,
}
"""By the resource of what makes."""
