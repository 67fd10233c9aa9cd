"""The references and bounds, on workloads small enough to work out by hand."""

from __future__ import annotations

import pytest

from backoff_ctrl.k8s.lab.replay.reference import (
    Measured,
    area_bound,
    arrival_bound,
    bounds_of,
    measure,
    percentile,
    reference,
)
from backoff_ctrl.k8s.lab.replay.workload import Pod, Workload


def workload(quota: int, *pods: tuple[float, float, int]) -> Workload:
    """Pods of (arrival, run time, CPUs) in one namespace."""
    made = [Pod(f"p{i}", "ls", at, ran, {"limits.cpu": cpus}) for i, (at, ran, cpus) in enumerate(pods)]
    return Workload(tuple(made), {"ls": {"limits.cpu": quota}})


def keeping(work: Workload) -> Measured:
    """Measure the reference that keeps room for overtaken pods."""
    return measure(work, reference(work, keep=True))


def first_fit(work: Workload) -> Measured:
    """Measure the reference that keeps none."""
    return measure(work, reference(work, keep=False))


def test_with_room_for_all_pods_none_waits() -> None:
    """With either reference."""
    calm = workload(10, (0, 5, 4), (1, 5, 4), (2, 30, 2))
    assert first_fit(calm) == keeping(calm) == Measured(32.0, 0.0, 0.0)


def test_a_pod_that_ends_makes_room_for_one_that_arrives_at_the_same_instant() -> None:
    """Ends come before arrivals."""
    assert first_fit(workload(1, (0, 5, 1), (5, 5, 1))) == Measured(10.0, 0.0, 0.0)


def test_with_first_fit_a_smaller_pod_overtakes() -> None:
    """The second waits for the first to end, the third overtakes it: the waits are 0, 9 and 0 s."""
    passing = workload(4, (0, 10, 3), (1, 10, 4), (2, 3, 1))
    assert first_fit(passing) == Measured(20.0, 0.0, 9.0)


def test_first_fit_starves_a_large_pod_and_keeping_does_not() -> None:
    """In a steady stream of small pods each ends when another one arrives, so the large one never fits."""
    stream = [(float(at), 10.0, 1) for at in range(0, 1000, 5)]  # two run at any time
    crowded = workload(2, *stream, (7.0, 10.0, 2))
    crowded = Workload(tuple(sorted(crowded.pods, key=lambda pod: pod.arrival)), crowded.quotas)
    large = next(pod for pod in crowded.pods if pod.demand["limits.cpu"] == 2)
    waits = {"first_fit": first_fit(crowded).makespan_s, "keeping": keeping(crowded).makespan_s}
    assert waits["first_fit"] >= 1000 + large.run_time
    assert waits["keeping"] < waits["first_fit"] + 25
    assert reference(crowded, keep=True)[large.name] < 7 + 32 * 5 + 30
    assert reference(crowded, keep=False)[large.name] > 990


def test_keeping_pauses_when_the_kept_room_does_not_grow() -> None:
    """A pod runs very long and the large one doesn't fit beside it; the small ones are admitted again after a while."""
    stream = [(10.0 + at, 5.0, 1) for at in range(0, 600, 4)]
    stuck = workload(4, (0.0, 5000.0, 2), (1.0, 10.0, 3), *stream)
    small = [reference(stuck, keep=True)[pod.name] - pod.arrival for pod in stuck.pods[2:]]
    assert max(small) < 200
    assert keeping(stuck).makespan_s == pytest.approx(5010.0)


def test_the_bounds_take_the_smaller_of_each_measure() -> None:
    """Measure by measure, not run by run."""
    passing = workload(4, (0, 10, 3), (1, 10, 4), (2, 3, 1))
    one, other, bounds = keeping(passing), first_fit(passing), bounds_of(passing)
    assert bounds.makespan_s == min(one.makespan_s, other.makespan_s)
    assert (bounds.wait_p50_s, bounds.wait_p95_s) == (
        min(one.wait_p50_s, other.wait_p50_s),
        min(one.wait_p95_s, other.wait_p95_s),
    )


def test_no_reference_beats_the_bounds() -> None:
    """Area: 3 x 10 + 4 x 10 + 1 x 3 CPU seconds over 4 CPUs; arrival: the latest arrival + run time."""
    passing = workload(4, (0, 10, 3), (1, 10, 4), (2, 3, 1))
    assert area_bound(passing) == pytest.approx(73 / 4)
    assert arrival_bound(passing) == 11.0
    assert bounds_of(passing).makespan_s >= max(area_bound(passing), arrival_bound(passing))


def test_percentiles_are_by_nearest_rank() -> None:
    """Of 20 values the 95th percentile is the 19th."""
    values = [float(i) for i in range(1, 21)]
    assert (percentile(values, 50), percentile(values, 95), percentile([], 95)) == (10.0, 19.0, 0.0)


def test_a_pod_that_was_never_admitted_is_not_measured() -> None:
    """``clients.counted`` counts it as lost."""
    two = workload(4, (0, 10, 1), (5, 10, 1))
    assert measure(two, {"p0": 2.0}) == Measured(12.0, 2.0, 2.0)
