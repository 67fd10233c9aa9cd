"""What a JobSet makes at its peak: a replicated job that waits for another one to complete does not run beside it.

The pods of a later stage can't be held back once the stage before is over, so room for them is reserved from the start.
Where one stage needs at least as much of everything as each other one, its pods are reserved; else those of all. Jobs
that have ended stay until their JobSet goes, and with their pods the claims of these: all of them are counted. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import mapping, mappings, text
from backoff_ctrl.k8s.kube.charges.parts import Part, parts_of

RESOURCE: Final = "jobsets.jobset.x-k8s.io"
JOB: Final = "Job"
POD: Final = "Pod"
CLAIM: Final = "PersistentVolumeClaim"
STAGES_MAX: Final = 64
"""Stages that are weighed; of a JobSet with more all are taken to run side by side."""


def parts_at_peak(body: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return what a JobSet makes at most at a time. Raises ``FieldError``."""
    jobs = mappings(mapping(body.get("spec")).get("replicatedJobs"))
    stages = [parts_of(_only(body, names), resource=RESOURCE) for names in _stages(jobs)]
    amounts = [_amounts(parts) for parts in stages]
    everything = parts_of(_only(body, frozenset(_name(job) for job in jobs)), resource=RESOURCE)
    for parts, most in zip(stages, amounts, strict=True):
        if all(most.get(name, 0) >= amount for each in amounts for name, amount in each.items()):
            return _with_all_that_stays(parts, everything)
    return everything


def _with_all_that_stays(parts: Sequence[Part], everything: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts of a stage with what stays of all stages, in the order of ``everything``."""
    of_stage = {replace(each, count=None): each for each in parts}
    found = (each if _stays(each) else of_stage.get(replace(each, count=None)) for each in everything)
    return tuple(each for each in found if each is not None)


def _stays(part: Part) -> bool:
    """Return whether it outlives its stage: a Job, or the claim of a pod's volume."""
    return part.kind == JOB or (part.kind == CLAIM and part.made_by == POD)


def _stages(jobs: Sequence[Mapping[str, Any]]) -> list[frozenset[str]]:
    """Return the names of those that may run at a time: of each set of jobs that can have completed, the next."""
    before = _before(jobs)
    completed = {frozenset[str]()}
    for earlier in {*before.values()}:
        completed |= {earlier | each for each in completed}
        if len(completed) > STAGES_MAX:
            return [frozenset(before)]
    found = {frozenset(name for name in before if name not in done and before[name] <= done) for done in completed}
    return sorted(found, key=sorted)


def _before(jobs: Sequence[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Return, by the name of each replicated job, those that complete before it starts: it names earlier ones alone."""
    found: dict[str, frozenset[str]] = {}
    for job in jobs:
        names = frozenset[str]()
        for dependency in mappings(job.get("dependsOn")):
            name = _name(dependency)
            names |= found.get(name, frozenset())
            if dependency.get("status") == "Complete":
                names |= {name}
        found[_name(job)] = names
    return found


def _only(body: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Return a JobSet in which these run, side by side; the others keep their places, with no replicas."""
    spec = mapping(body.get("spec"))
    jobs = [
        {key: value for key, value in job.items() if key != "dependsOn"}
        | ({} if _name(job) in names else {"replicas": 0})
        for job in mappings(spec.get("replicatedJobs"))
    ]
    return {**body, "spec": {**spec, "replicatedJobs": jobs}}


def _name(job: Mapping[str, Any]) -> str:
    return text(job.get("name"))


def _amounts(parts: Sequence[Part]) -> dict[str, int]:
    """Return what a stage is charged, without what stays."""
    found: dict[str, int] = {}
    for part in parts:
        for name, amount in part.demand.amounts.items() if not _stays(part) else ():
            found[name] = found.get(name, 0) + amount * (part.count or 0)
    return found
