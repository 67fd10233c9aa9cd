"""What Kubernetes' own controllers make: Jobs, Deployments, StatefulSets, pods with volumes of their own, JobSets.

``Made`` is what each maker yields, here and in ``operators`` and ``spark``.

Sources, below ``pkg/controller`` of k8s.io/kubernetes v1.36: ``job/job_controller.go`` (``manageJob``),
``cronjob/cronjob_controllerv2.go``, ``deployment/sync.go``, ``replicaset/replica_set.go``,
``statefulset/stateful_set_utils.go``, ``daemon/daemon_controller.go``, ``volume/ephemeral/controller.go``,
``resourceclaim/controller.go``; the defaults in ``pkg/apis/{batch,apps}/v1/defaults.go``. Below ``pkg`` of
sigs.k8s.io/jobset v0.12.0: ``controllers/jobset_controller.go`` (``reconcile``, ``constructJob``),
``controllers/depends_on.go``, ``controllers/volume_claim_policy.go``, ``webhooks/jobset_webhook.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import (
    count_at,
    flag_at,
    mapping_at,
    mappings_at,
    required_mapping_at,
    text_at,
)

JOB_CONTROLLER: Final = "kubernetes.io/job-controller"


def _job(made: Made) -> Iterator[Made]:
    """Pods that run at once: parallelism, but never more than the completions (indexed or not).

    Those that have ended stay until the Job is deleted, as many as it has completions at its end.
    """
    if is_managed_elsewhere(made.spec, made.at, JOB_CONTROLLER):
        return
    parallelism, completions = count_at(made.spec, "parallelism", made.at), count_at(made.spec, "completions", made.at)
    number = 1 if parallelism is None else parallelism
    number = number if completions is None else min(number, completions)
    in_all = completions if number else number
    yield replace(_pods(made, number), in_all=in_all, suspended=flag_at(made.spec, "suspend", made.at))


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

    The claim of a volume goes when its pod is deleted; the ResourceClaim as soon as the pod has ended. The devices of
    the latter are in the template, which is another object (``device_claims``).
    """
    for index, volume in enumerate(mappings_at(made.spec, "volumes", made.at)):
        at = f"{made.at}.volumes[{index}]"
        ephemeral = mapping_at(volume, "ephemeral", at)
        if ephemeral.get("volumeClaimTemplate") is not None:
            claim = mapping_at(ephemeral, "volumeClaimTemplate", f"{at}.ephemeral")
            yield replace(claims_from(claim, f"{at}.ephemeral.volumeClaimTemplate"), outlasts=True)
    for index, claim in enumerate(mappings_at(made.spec, "resourceClaims", made.at)):
        if name := text_at(claim, "resourceClaimTemplateName", f"{made.at}.resourceClaims[{index}]"):
            yield replace(counted("ResourceClaim", "resourceclaims.resource.k8s.io"), claim_template=name)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Objects of one kind with one spec, which a maker keeps alive at the same time."""

    kind: str
    resource: str
    """``RESOURCE[.GROUP]``, by which they are counted and their own maker is found."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""
    """The path of ``spec`` in the user's manifest, for errors; empty where the maker writes it itself."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    """The version in ``apiVersion``; only known of the manifest itself."""
    number: int | None = 1
    """The number that each maker makes; ``None`` where only the cluster knows it."""
    in_all: int | None = None
    """The number at the end of the maker, together with those that have ended by then; ``None``: ``number``."""
    outlasts: bool = False
    """It stays when the object that it is made for has ended."""
    template: str = ""
    """The path of the section that a pod is made from, where its labels can be set."""
    claim_template: str = ""
    """The name of the ResourceClaimTemplate that ResourceClaims are made from."""
    suspended: bool = False
    """Made only when the maker is resumed."""
    makes: tuple[Made, ...] = ()
    """What these objects make, beside what their kind makes anyway."""


Maker = Callable[[Made], Iterable[Made]]
"""Returns what one object of a kind makes. Raises ``FieldError`` for a malformed one."""


def pods_from(parent: Mapping[str, Any], key: str, at: str, number: int | None = 1, template: str = "") -> Made:
    """Return the pods that are made from the pod template in ``parent[key]``; ``at`` is the path of ``parent``.

    ``template`` is the path of the pod template in the user's manifest, where it is not ``at.key``.
    """
    path = template or (f"{at}.{key}" if at else "")  # empty where the maker writes the template itself
    spec = required_mapping_at(required_mapping_at(parent, key, at), "spec", path)
    return Made(kind="Pod", resource="pods", spec=spec, at=f"{path}.spec", number=number, template=path)


def claims_from(claim: Mapping[str, Any], at: str, number: int | None = 1) -> Made:
    """Return the PersistentVolumeClaims that are made from a claim template, which is at this path."""
    return Made(
        kind="PersistentVolumeClaim",
        resource="persistentvolumeclaims",
        spec=required_mapping_at(claim, "spec", at),
        at=f"{at}.spec",
        metadata=mapping_at(claim, "metadata", at),
        number=number,
    )


def services(kind: str = "ClusterIP", ports: int = 0, number: int = 1) -> Made:
    """Return Services of a type (``NodePort``, ..) with so many ports."""
    spec = {"type": kind, "ports": [{"port": port} for port in range(1, ports + 1)]}
    return Made(kind="Service", resource="services", spec=spec, number=number)


def counted(kind: str, resource: str, number: int = 1, *, suspended: bool = False) -> Made:
    """Return objects that are charged their count alone (``ConfigMap``, ``Role``, ..)."""
    return Made(kind=kind, resource=resource, number=number, suspended=suspended)


def is_managed_elsewhere(spec: Mapping[str, Any], at: str, controller: str) -> bool:
    """Return whether ``managedBy`` names another controller: then what it makes, and where, is unknown."""
    return text_at(spec, "managedBy", at) not in {"", controller}


_CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"


def _job_set(made: Made) -> Iterator[Made]:
    """The Jobs of all replicated jobs that run together, shared claims, and a Service for the pods' host names.

    A replicated job that waits for another one to complete runs after it, not beside it, and is left out: what must fit
    together is what starts together. One that waits for another one to be ready joins it.
    """
    if is_managed_elsewhere(made.spec, made.at, _CONTROLLER):
        return
    network = mapping_at(made.spec, "network", made.at)
    if network.get("enableDNSHostnames") is None or flag_at(network, "enableDNSHostnames", f"{made.at}.network"):
        yield services()
    for index, policy in enumerate(mappings_at(made.spec, "volumeClaimPolicies", made.at)):
        at = f"{made.at}.volumeClaimPolicies[{index}]"
        for place, claim in enumerate(mappings_at(policy, "templates", at)):
            yield claims_from(claim, f"{at}.templates[{place}]")
    later: set[str] = set()
    suspended = flag_at(made.spec, "suspend", made.at)
    for index, replicated in enumerate(mappings_at(made.spec, "replicatedJobs", made.at)):
        at = f"{made.at}.replicatedJobs[{index}]"
        jobs = _jobs(replicated, at, suspended=suspended)
        if _runs_later(replicated, at, later):
            later.add(text_at(replicated, "name", at))
        else:
            yield jobs


def _jobs(replicated: Mapping[str, Any], at: str, *, suspended: bool) -> Made:
    """The Jobs of one replicated job: they are made suspended, and without pods, while the JobSet is."""
    template = required_mapping_at(replicated, "template", at)
    spec = required_mapping_at(template, "spec", f"{at}.template")
    replicas = count_at(replicated, "replicas", at)
    return Made(
        kind="Job",
        resource="jobs.batch",
        spec={**spec, "suspend": suspended},
        at=f"{at}.template.spec",
        number=1 if replicas is None else replicas,
    )


def _runs_later(replicated: Mapping[str, Any], at: str, later: set[str]) -> bool:
    """Return whether it waits for a replicated job to complete, itself or through one that does."""
    found = False
    for index, dependency in enumerate(mappings_at(replicated, "dependsOn", at)):
        place = f"{at}.dependsOn[{index}]"
        name, status = text_at(dependency, "name", place), text_at(dependency, "status", place)
        found = found or status == "Complete" or name in later
    return found


JOB_SETS: Final[Mapping[str, Maker]] = {"jobsets.jobset.x-k8s.io": _job_set}
