"""What a JobSet makes.

Sources, below ``pkg`` of sigs.k8s.io/jobset v0.12.0: ``controllers/jobset_controller.go`` (``reconcile``,
``constructJob``), ``controllers/depends_on.go``, ``controllers/volume_claim_policy.go``,
``webhooks/jobset_webhook.go``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.charges.fields import count_at, flag_at, mapping_at, mappings_at, required_mapping_at, text_at

from .made import Made, Maker, claims_from, is_managed_elsewhere, services

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
