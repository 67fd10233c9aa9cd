"""The claims that a Job's pods leave behind: how many it has room for at its start, while it runs, when it grows."""

from __future__ import annotations

from typing import Any, Final

import pytest

from backoff_ctrl.k8s.workloads.admitting.asking import CLAIM, as_elastic, counts_of, for_one_more, parts_made
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB

JSON = dict[str, Any]


def job(status: JSON | None = None, **spec: Any) -> JSON:
    """A Job whose pods have an ephemeral volume and a ResourceClaim each."""
    claim = {"resources": {"requests": {"storage": "1Gi"}}}
    pod = {
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
    }
    return {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}, **spec}, "status": status or {}}


def wanted(body: JSON, succeeded: int = 0, before: int = 0) -> tuple[int, ...]:
    """The pods, claims of volumes and ResourceClaims that room is wanted for."""
    return counts_of(JOB, body, parts_made(JOB, body), succeeded, before)


TEN: Final[JSON] = {"parallelism": 2, "completions": 10}


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(job(**TEN), (2, 10, 2), id="before it begins"),
        pytest.param(job({"succeeded": 4}, **TEN), (2, 10, 2), id="those of pods that have ended stay"),
        pytest.param(job({"succeeded": 9}, **TEN), (1, 10, 1), id="the last pod"),
        pytest.param(job({"succeeded": 10}, **TEN), (0, 0, 0), id="none is to come: what exists is charged"),
        pytest.param(job({"succeeded": 4, "failedIndexes": "1,3-4"}, **TEN), (2, 7, 2), id="indexes that failed"),
        pytest.param(job(parallelism=3, completions=3), (3, 3, 3), id="all at a time"),
        pytest.param(job({"succeeded": 1}, parallelism=3, completions=3), (2, 3, 2), id="all at a time, one has ended"),
        pytest.param(job(parallelism=3), (3, 3, 3), id="without completions"),
        pytest.param(job({"succeeded": 1, "active": 2}, parallelism=3), (2, 3, 2), id="without completions, one ended"),
    ],
)
def test_room_is_wanted_for_the_claims_of_all_completions(body: JSON, want: tuple[int, ...]) -> None:
    assert wanted(body) == want


def test_the_claims_of_pods_that_ended_before_a_job_joined_the_line_are_charged_already() -> None:
    """Suspended again after 4 of 10: room for 6 claims is to come; with each pod that ends then, no less."""
    body = job({"succeeded": 4}, **TEN)
    assert wanted(body, before=4) == (2, 6, 2)
    assert wanted(body, succeeded=7, before=4) == (2, 6, 2)


def test_a_job_that_grows_needs_no_more_claims_than_it_has_completions() -> None:
    """One without completions makes a pod more, and its claims."""
    fixed, free = as_elastic(JOB, job(parallelism=5, completions=10), 2), as_elastic(JOB, job(parallelism=5), 2)
    parts = parts_made(JOB, fixed)
    assert [part.count for part in parts] == [2, 10, 2]
    assert parts[1].kind == CLAIM
    assert for_one_more(fixed, parts) == (1, 0, 1)
    assert for_one_more(free, parts_made(JOB, free)) == (1, 1, 1)
