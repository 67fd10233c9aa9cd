"""The workload recipe: the facts on which every published figure is based."""

from __future__ import annotations

from decimal import Decimal

import pytest

from backoff_ctrl.k8s.replay.workload import (
    POD_LABEL,
    RUN_SECONDS,
    Pod,
    Row,
    Trace,
    TraceError,
    make_workload,
    quotas_for,
    read_trace,
)
from backoff_ctrl.k8s.sandbox import kubelet


@pytest.fixture(scope="module")
def trace() -> Trace:
    """The packaged trace."""
    return read_trace()


def row(
    name: str, created: int, ran: int, *, cpu: int = 1000, memory: int = 512, gpus: int = 0, qos: str = "LS"
) -> Row:
    """A row of a pod that was scheduled as soon as it was created."""
    at = Decimal(created)
    return Row(name, 1000, 512, 0, "LS", at, at + ran, at)


def test_the_packaged_trace_has_the_rows_of_the_whole_file(trace: Trace) -> None:
    """8,152 pods, 897 of which never ran."""
    assert (len(trace.rows), trace.dropped) == (7255, 897)
    assert len(trace.rows) + trace.dropped == 8152


def test_the_first_rows_follow_from_the_seed(trace: Trace) -> None:
    """The first row is random.Random(seed).randrange(rows - 399)."""
    firsts = [make_workload(trace, seed=seed).first_row for seed in range(1, 10)]
    assert firsts == [1100, 463, 1949, 1933, 5102, 6499, 2652, 1857, 3792]


def test_the_same_seed_makes_the_same_workload(trace: Trace) -> None:
    """And another seed makes another one."""
    assert make_workload(trace, seed=4) == make_workload(trace, seed=4)
    assert make_workload(trace, seed=4) != make_workload(trace, seed=5)


def test_arrivals_are_a_hundred_times_denser_and_run_times_capped() -> None:
    """arrival = (creation - first creation) / 100; run time = min(ran, 600 s)."""
    trace = Trace("t", (row("a", 1000, 30), row("b", 1250, 5000)), 0)
    workload = make_workload(trace, pods=2)
    assert [(pod.arrival, pod.run_time) for pod in workload.pods] == [(0.0, 30.0), (2.5, 600.0)]
    uncapped = make_workload(trace, pods=2, run_time_cap=None)
    assert [pod.run_time for pod in uncapped.pods] == [30.0, 5000.0]


def test_a_quota_is_a_third_of_the_peak_but_at_least_the_largest_pod() -> None:
    """Peak unlimited demand / 3, per namespace and resource; at one instant ends come before starts."""
    pods = [Pod(f"p{i}", "ls", 0.0, 10.0, {"limits.cpu": 100}) for i in range(9)]
    pods += [Pod("later", "ls", 10.0, 10.0, {"limits.cpu": 250, "requests.nvidia.com/gpu": 2})]
    assert quotas_for(pods) == {"ls": {"limits.cpu": 300, "requests.nvidia.com/gpu": 2}}


def test_each_class_of_service_is_a_namespace(trace: Trace) -> None:
    """One namespace per qos of the rows taken; every pod fits the quota of its namespace."""
    workload = make_workload(trace, seed=1)
    assert set(workload.quotas) == {"ls", "be", "burstable", "guaranteed"} == {pod.namespace for pod in workload.pods}
    for pod in workload.pods:
        assert all(amount <= workload.quotas[pod.namespace][name] for name, amount in pod.demand.items())


def test_a_pod_is_sent_with_requests_equal_to_limits() -> None:
    """So a quota on limits admits the same pods as one on requests; without demand the amount is 0, not missing."""
    body = Pod("openb-1", "ls", 0.0, 1.5, {"limits.cpu": 1500, "requests.nvidia.com/gpu": 1}).manifest()
    [container] = body["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1500m", "memory": "0Mi", "nvidia.com/gpu": "1"}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert body["metadata"]["labels"][POD_LABEL] == "openb-1"
    assert float(body["metadata"]["annotations"][RUN_SECONDS]) == 1.5


def test_the_fake_kubelet_reads_the_run_time_from_the_same_annotation() -> None:
    """Otherwise every pod of the demo would run for ever."""
    assert RUN_SECONDS == kubelet.RUN_SECONDS


def test_a_faster_workload_divides_every_duration_and_keeps_the_quotas(trace: Trace) -> None:
    """The demo's speed-up changes times only."""
    workload = make_workload(trace, pods=10, seed=2)
    quick = workload.faster(100)
    assert quick.quotas == workload.quotas
    for pod, other in zip(workload.pods, quick.pods, strict=True):
        assert (other.arrival, other.run_time) == (pod.arrival / 100, pod.run_time / 100)


def test_more_pods_than_rows_that_ran_is_one_sentence() -> None:
    """It gives both numbers."""
    trace = Trace("few.csv", (row("a", 0, 1),), 7)
    with pytest.raises(TraceError, match=r"^few\.csv: cannot take 2 pods, only 1 of this trace ran$"):
        make_workload(trace, pods=2)
