"""``backoff-ctrl phase``: what a plugin makes of an object in a file."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from backoff_ctrl.api.main import run
from tests.tasks.phases.operator_cases import CASES, Case, manifest
from tests.tasks.phases.test_operators import LABELS, pulling, row

NOW = "2026-05-04T12:00:00Z"
KEYS = ["plugin", "phase", "version", "reason", "code", "kind", "cleanup_on_failure"]


@pytest.fixture
def phase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command on documents, and return what it prints as JSON."""

    def ask(*documents: Any, options: tuple[str, ...] = ()) -> dict[str, Any]:
        file = tmp_path / "objects.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        assert run(["phase", "-f", str(file), "--at", NOW, "--json", *options]) == 0, capsys.readouterr().err
        printed: dict[str, Any] = json.loads(capsys.readouterr().out)
        return printed

    return ask


@pytest.mark.parametrize(
    "case", [each for each in CASES if each.kind or each.type == "job"], ids=lambda each: each.name
)
def test_an_object_in_a_file_has_the_phase_of_its_plugin(phase: Any, case: Case) -> None:
    """Its plugin is found by its kind, or by the task type; failures have a code and a kind, and nothing else has."""
    for options in ((), ("--task-type", case.type)):
        told = phase(case.resource, options=options)
        assert list(told)[: len(KEYS)] == KEYS
        assert (told["plugin"], told["phase"], told["version"]) == (case.type, case.phase, 0)
        assert (told["code"], told["kind"]) == (case.code or None, case.kind or None)
        assert told["cleanup_on_failure"] is case.cleanup
        assert case.says in told["reason"]


def test_the_objects_pods_lie_beside_it(phase: Any) -> None:
    """As documents in any order, or in a List; grace periods are measured at the given time, as the settings say."""
    job, pod = row("job", "pods are starting"), pulling(LABELS["job"], 100)
    assert phase(pod, job)["phase"] == "Initializing"
    assert phase({"kind": "List", "apiVersion": "v1", "items": [job, pod]})["phase"] == "Initializing"
    for at in ("2026-05-04T12:01:19.999Z", "2026-05-04T14:01:19+02:00"):
        assert phase(job, pod, options=("--at", at))["phase"] == "Initializing"
    for at in ("2026-05-04t12:01:20z", "2026-05-04T07:01:20.123456789-05:00"):
        assert phase(job, pod, options=("--at", at))["phase"] == "RetryableFailure"
    later = phase(job, pod, options=("--at", "2026-05-04T12:02:00Z"))
    assert (later["phase"], later["kind"], later["cleanup_on_failure"]) == ("RetryableFailure", "USER", True)


def test_what_an_object_has_made_is_not_asked_about(phase: Any) -> None:
    """A JobSet is, and not its Jobs."""
    job = row("job", "complete")
    job["metadata"] |= {"uid": "u-2", "ownerReferences": [{"uid": "u-1", "kind": "JobSet"}]}
    assert phase(job, row("jobset", "ready"))["plugin"] == "jobset"
    assert phase(job, row("jobset", "ready"), options=("--task-type", "job"))["phase"] == "Success"


def test_a_bare_pod_and_a_mpi_job_of_either_version_are_found(phase: Any) -> None:
    """A pod is the plugin ``pod``'s; a kind in a version that nobody knows is read like those that are known."""
    pod = {"apiVersion": "v1", **pulling({}, 500)}
    assert phase(pod)["plugin"] == "pod"
    assert phase(pod, options=("--task-type", "container"))["plugin"] == "container"
    assert phase(row("mpi-v2beta1", "running"), options=("--task-type", "mpi"))["phase"] == "Running"
    newer = {**row("ray", "running"), "apiVersion": "ray.io/v2"}
    assert (phase(newer)["plugin"], phase(newer)["phase"]) == ("ray", "Running")


def test_settings_and_operators_come_from_a_file(phase: Any, tmp_path: Path) -> None:
    """A grace period, an operator that nobody ships, and one that is described otherwise than it ships."""
    operator = {
        "id": "thing",
        "task-types": ["thing"],
        "resource": {"api-version": "example.com/v1", "kind": "Thing", "plural": "things"},
        "state": {"path": "$.status.done"},
        "states": {True: {"phase": "Success"}, "": {"phase": "Queued", "reason": "seen by nobody"}},
    }
    (tmp_path / "thing.yaml").write_text(yaml.safe_dump(operator))
    spark = {
        **operator,
        "id": "spark",
        "task-types": ["spark"],
        "resource": {
            "api-version": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "plural": "sparkapplications",
        },
    }
    settings = {"plugins": {"k8s": {"image-pull-backoff-grace-period": "50s"}, "generic": ["thing.yaml", spark]}}
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump(settings))
    options = ("--config", str(file))
    assert (
        phase(row("job", "pods are starting"), pulling(LABELS["job"], 60), options=options)["phase"]
        == "RetryableFailure"
    )
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "status": {"done": True}}
    assert phase(thing, options=options)["phase"] == "Success"
    assert phase({**thing, "status": {}}, options=options)["reason"] == "seen by nobody"
    assert phase(row("spark", "completed"), options=options)["reason"] == "seen by nobody"


def test_people_read_a_few_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is, the phase, the reason, whose failure it is; control characters of the cluster do nothing."""
    resource = row("ray", "failed by its program")
    resource["status"]["message"] = "boom\n\x1b[31mred"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(resource).encode())))
    assert run(["phase", "-f", "-"]) == 0
    assert capsys.readouterr().out == (
        "RayJob n/train\n"
        "  phase: RetryableFailure  (plugin ray)\n"
        "  reason: the Ray job failed: AppFailed: boom ?[31mred\n"
        "  failure: TaskFailedWithError, caused by the user's code (USER); may be retried\n"
        "  the object still holds resources: it has to be deleted\n"
        '  rayCluster: "train-abcde"\n  rayJob: "train-x"\n  jobStatus: "FAILED"\n'
    )


THING = {"apiVersion": "example.com/v1", "kind": "Thing"}
JOB = manifest("job")
BAD: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "no such kind": (THING, (), "objects.yaml: no plugin runs Thing of example.com/v1: describe its operator"),
    "no kind": ({"a": 1}, (), "no plugin runs an object without a kind of no apiVersion"),
    "another kind": (JOB, ("--task-type", "spark"), "contains no SparkApplication of sparkoperator.k8s.io"),
    "no such task type": (JOB, ("--task-type", "jobst"), "--task-type: no plugin registered 'jobst': choose one of clustered-task, connector, container, dask,"),
    "no such task type of a pod": ({"kind": "Pod", "apiVersion": "v1"}, ("--task-type", "nope"), "--task-type: no plugin registered 'nope'"),
    "a time before all times": (JOB, ("--at", "0001-01-01T00:00:00+05:00"), "is not a time"),
    "a time after all times": (JOB, ("--at", "9999-12-31T23:59:59-05:00"), "is not a time"),
    "an empty list": ({"kind": "List", "apiVersion": "v1", "items": None}, (), "contains no manifest"),
    "a time": (JOB, ("--at", "noon"), "--at: 'noon' is not a time"),
    "no file of settings": (JOB, ("--config", "absent.yaml"), "absent.yaml can't be read"),
    "two objects": ({"kind": "List", "items": [JOB, row("ray", "running")]}, (), "contains 2 objects (Job train, RayJob train)"),
    "no object": ("text", (), "must be an object"),
}  # fmt: skip


@pytest.mark.parametrize(("document", "options", "says"), BAD.values(), ids=BAD)
def test_bad_input_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: Any, options: tuple[str, ...], says: str
) -> None:
    """Exit code 2, one line, nothing on stdout."""
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump(document))
    assert run(["phase", "-f", str(file), "--json", *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("plugins", "says"),
    [
        (3, "plugins: must be an object with keys, not int"),
        ({"generic": ["absent.yaml"]}, "absent.yaml: cannot be read"),
    ],
)
def test_bad_settings_are_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plugins: Any, says: str
) -> None:
    """Exit code 2, whether the settings themselves or an operator they name are wrong."""
    objects, file = tmp_path / "objects.yaml", tmp_path / "settings.yaml"
    objects.write_text(yaml.safe_dump(JOB))
    file.write_text(yaml.safe_dump({"plugins": plugins}))
    assert run(["phase", "-f", str(objects), "--config", str(file)]) == 2
    assert says in capsys.readouterr().err


RAY_ANSWER = {"submission_id": "task-1", "status": "FAILED", "message": "exit code 3", "driver_exit_code": 3}


def test_an_answer_of_a_service_needs_its_task_type(phase: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """It names no kind by which its plugin could be found."""
    told = phase(RAY_ANSWER, options=("--task-type", "ray-job"))
    assert [told[key] for key in KEYS] == [
        "ray-jobs", "RetryableFailure", 0, "the Ray job failed: exit code 3", "TaskFailedWithError", "USER", False,
    ]  # fmt: skip
    assert told["custom"] == {"submissionId": "task-1", "exitCode": 3}


def test_an_answer_is_shown_with_outputs_and_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As far as the answer and the settings have them."""
    service = {
        "id": "jobs", "task-types": ["job-there"], "url": "http://jobs", "job-id": {"path": "$.id"}, "create": {"path": "/"},
        "get": {"path": "/{$.id}"}, "state": "$.state", "states": {"done": {"phase": "Success"}},
        "outputs": {"loss": "$.loss"}, "logs": [{"name": "page", "url": "{$.url}/#/{$.id}"}],
    }  # fmt: skip
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump({"plugins": {"rest": [service]}}))
    (tmp_path / "answer.json").write_text('{"id": "j1", "state": "done", "loss": 0.5}')
    words = [
        "-f",
        str(tmp_path / "answer.json"),
        "--task-type",
        "job-there",
        "--config",
        str(tmp_path / "settings.yaml"),
    ]
    assert run(["phase", *words]) == 0
    assert capsys.readouterr().out == (
        'Answer\n  phase: Success  (plugin jobs)\n  outputs: {"loss": 0.5}\n  page: http://jobs/#/j1\n'
    )
