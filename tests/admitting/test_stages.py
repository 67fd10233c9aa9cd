"""What room a JobSet needs whose replicated jobs run one after another."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.workloads.admitting.asking import CLAIM, parts_made, pods_made
from tests.admitting.objects import named

JOB_SET = named("JobSet")
JSON = dict[str, Any]


def job(name: str, pods: int, *after: str, **requests: str) -> JSON:
    """A replicated job; ``after`` names those that it waits for, ``a`` until complete, ``~a`` until ready."""
    container = {"name": "main", "resources": {"requests": requests or {"cpu": "1"}}}
    template = {"spec": {"parallelism": pods, "template": {"spec": {"containers": [container]}}}}
    depends = [
        {"name": each.removeprefix("~"), "status": "Ready" if each.startswith("~") else "Complete"} for each in after
    ]
    return {"name": name, "template": template, **({"dependsOn": depends} if depends else {})}


def reserved(*jobs: JSON) -> dict[str, int]:
    """Return the number of pods that room is reserved for, by the replicated job."""
    made = pods_made(JOB_SET, {"spec": {"suspend": True, "replicatedJobs": [*jobs]}})
    names = {f"spec.replicatedJobs[{number}].template.spec.template": job["name"] for number, job in enumerate(jobs)}
    return {names[part.template]: part.count or 0 for part in made}


@pytest.mark.parametrize(
    ("jobs", "want"),
    [
        pytest.param([job("a", 1), job("b", 2)], {"a": 1, "b": 2}, id="side by side"),
        pytest.param([job("prep", 1), job("train", 4, "prep")], {"train": 4}, id="the later one needs more"),
        pytest.param([job("prep", 4), job("train", 1, "prep")], {"prep": 4}, id="the first one needs more"),
        pytest.param(
            [job("prep", 1), job("train", 4, "prep"), job("monitor", 2, "~train")],
            {"train": 4, "monitor": 2},
            id="with the one that waits for the later one to be ready",
        ),
        pytest.param(
            [job("prep", 1), job("monitor", 2), job("train", 4, "prep")],
            {"monitor": 2, "train": 4},
            id="beside one that waits for nobody",
        ),
        pytest.param([job("a", 1), job("b", 1), job("c", 2, "a"), job("d", 2, "b")], {"c": 2, "d": 2}, id="two chains"),
        pytest.param(
            [job("a", 1), job("b", 2, "a"), job("c", 3, "b"), job("d", 1, "c")], {"c": 3}, id="the middle of a chain"
        ),
        pytest.param(
            [job("prep", 1, cpu="1", memory="9Gi"), job("train", 1, "prep", cpu="4", memory="1Gi")],
            {"prep": 1, "train": 1},
            id="neither needs as much of everything as the other",
        ),
    ],
)
def test_the_room_of_the_largest_stage_is_reserved(jobs: list[JSON], want: dict[str, int]) -> None:
    assert reserved(*jobs) == want


def test_countless_stages_are_taken_to_run_side_by_side() -> None:
    """Seven chains make 128 of them: nobody can make the operator weigh more than it can."""
    jobs = [each for n in range(7) for each in (job(f"a{n}", 1), job(f"b{n}", 1, f"a{n}", cpu=str(n + 1)))]
    assert len(reserved(*jobs)) == 14


def test_a_malformed_one_is_an_error_with_the_path_of_the_field() -> None:
    broken = job("prep", 1)
    del broken["template"]
    with pytest.raises(FieldError, match=r"^spec\.replicatedJobs\[0\]\.template"):
        reserved(broken, job("train", 1, "prep"))


def test_the_claims_of_the_pods_of_all_stages_are_counted() -> None:
    """Pods that have ended stay as long as their Jobs, and keep the claims of their volumes: 2 of 1Gi and 4 of 2Gi."""

    def with_volume(job: JSON, size: str) -> JSON:
        claim = {"resources": {"requests": {"storage": size}}}
        volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
        job["template"]["spec"]["template"]["spec"]["volumes"] = [volume]
        return job

    prep = with_volume(job("prep", 1), "1Gi")
    prep["template"]["spec"]["completions"] = 2
    jobs = [prep, with_volume(job("train", 4, "prep"), "2Gi")]
    made = parts_made(JOB_SET, {"spec": {"suspend": True, "replicatedJobs": jobs}})
    gi = 2**30 * NANO
    sizes = [(part.demand.amounts["requests.storage"] // gi, part.count) for part in made if part.kind == CLAIM]
    assert sizes == [(1, 2), (2, 4)]
    assert [part.count for part in made if part.kind == "Pod"] == [4]


def test_the_jobs_of_all_stages_are_counted() -> None:
    """One that has ended stays until its JobSet goes, beside those of the stage that needs most."""
    jobs = [job("prep", 1), {**job("train", 4, "prep"), "replicas": 2}, job("report", 1, "train")]
    made = parts_made(JOB_SET, {"spec": {"suspend": True, "replicatedJobs": jobs}})
    assert [(part.kind, part.count) for part in made] == [("Service", 1), ("Job", 4), ("Pod", 8)]
