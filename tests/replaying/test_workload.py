"""Reading traces, where malformed input is one sentence, and the recipe on which every published figure is based."""

from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path

import pytest

from backoff_ctrl.k8s.lab.replay.workload import (
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
from backoff_ctrl.k8s.lab.sandbox import kubelet


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


HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
GOOD = "openb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0"


def written(folder: Path, *lines: str) -> Path:
    """Write a trace file of these lines."""
    path = folder / "trace.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_row_that_never_ran_is_dropped_and_counted(tmp_path: Path) -> None:
    """An empty ``scheduled_time`` is valid, whatever else the row holds."""
    never = "openb-pod-0061,11908,47104,1,1000,,BE,Pending,10001278,10001403,"
    trace = read_trace(written(tmp_path, HEADER, GOOD, never))
    assert ([row.name for row in trace.rows], trace.dropped) == (["openb-pod-0000"], 1)


def test_rows_are_taken_in_the_order_of_their_creation(tmp_path: Path) -> None:
    """Also from an unsorted file: no pod may arrive before the first."""
    late = "late,1,1,0,0,,LS,Running,500,600,500"
    trace = read_trace(written(tmp_path, HEADER, late, GOOD))
    assert [row.name for row in trace.rows] == ["openb-pod-0000", "late"]


def test_columns_may_have_any_order_and_others_are_ignored(tmp_path: Path) -> None:
    """Columns are found by name."""
    path = written(
        tmp_path,
        "extra,scheduled_time,deletion_time,creation_time,qos,num_gpu,memory_mib,cpu_milli,name",
        "x,2.5,4,2,BE,0,7,9,a",
    )
    [row] = read_trace(path).rows
    assert (row.cpu_milli, row.memory_mib, float(row.scheduled_time)) == (9, 7, 2.5)


@pytest.mark.parametrize(
    ("line", "column", "complaint"),
    [
        pytest.param(GOOD.replace(",12000,", ",abc,"), "cpu_milli", "'abc' is not a whole number", id="letters"),
        pytest.param(GOOD.replace(",12000,", ",-1,"), "cpu_milli", "'-1' is not a whole number", id="negative"),
        pytest.param(GOOD.replace(",12000,", ",1_0,"), "cpu_milli", "'1_0' is not a whole", id="python-number"),
        pytest.param(GOOD.replace(",16384,", ",1.5,"), "memory_mib", "'1.5' is not a whole number", id="fraction"),
        pytest.param(GOOD.replace(",1,1000", ",,1000"), "num_gpu", "'' is not a whole number", id="empty"),
        pytest.param(GOOD.replace(",LS,", ",,"), "qos", "'' is not a class of service", id="no-qos"),
        pytest.param(GOOD.replace(",LS,", ",../x,"), "qos", "is not a class of service", id="qos-no-namespace"),
        pytest.param(GOOD.replace("12537496", "nan"), "deletion_time", "'nan' is not a number of seconds", id="nan"),
        pytest.param(GOOD.replace("12537496", ""), "deletion_time", "'' is not a number of seconds", id="no-end"),
        pytest.param(GOOD.replace("12537496,0", "5,9"), "deletion_time", "5 is before scheduled_time", id="back"),
        pytest.param(GOOD.replace("openb-pod-0000", "A b"), "name", "'A b' is not a pod's name", id="no-name"),
        pytest.param("a,1,2", "num_gpu", "the row has 3 cells, the header has 11", id="short"),
        pytest.param(GOOD + ",more", "scheduled_time", "the row has 12 cells", id="long"),
    ],
)
def test_a_broken_row_is_one_sentence_with_file_line_and_column(
    tmp_path: Path, line: str, column: str, complaint: str
) -> None:
    """The line is that of the malformed row, after a header and a valid one."""
    path = written(tmp_path, HEADER, "fine,1,1,0,0,,LS,Running,0,1,0", line)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}:3: column {column}: ")
    assert complaint in sentence
    assert "\n" not in sentence


def test_for_a_duplicate_name_both_lines_are_given(tmp_path: Path) -> None:
    """Pods are counted by name, so names must be unique."""
    path = written(tmp_path, HEADER, GOOD, GOOD)
    with pytest.raises(TraceError, match=r":3: column name: openb-pod-0000 is also on line 2$"):
        read_trace(path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    """And the line is that of the header."""
    path = written(tmp_path, HEADER.replace(",qos", ",quality"), GOOD)
    with pytest.raises(TraceError, match=r":1: the header has no column qos$"):
        read_trace(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(b"", ":1: the file is empty", id="empty"),
        pytest.param(b"\xff\xfe\x00", "is not UTF-8 text", id="binary"),
        pytest.param(HEADER.encode() + b'\n"open', ": the row is not valid CSV", id="open-quote"),
        pytest.param(HEADER.encode() + b"\na\x00b", ":2: ", id="nul"),
    ],
)
def test_a_file_that_is_not_a_trace_is_one_sentence(tmp_path: Path, content: bytes, complaint: str) -> None:
    """Whatever its bytes."""
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    """And so is a folder."""
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(TraceError, match="cannot be read"):
            read_trace(path)


def test_a_damaged_archive_is_one_sentence(tmp_path: Path) -> None:
    """And so is a file that only has the suffix of one."""
    path = tmp_path / "trace.csv.gz"
    packed = gzip.compress((HEADER + "\n" + GOOD + "\n").encode())
    for damaged in (packed[:-12], packed[:20] + bytes(30) + packed[50:]):
        path.write_bytes(damaged)
        with pytest.raises(TraceError, match="is damaged"):
            read_trace(path)
    path.write_bytes(b"no archive")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(path)


def test_a_file_that_a_spreadsheet_wrote_is_read(tmp_path: Path) -> None:
    """Its byte order mark is not part of the first column's name."""
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "\n" + GOOD + "\n", encoding="utf-8-sig")
    assert len(read_trace(path).rows) == 1
