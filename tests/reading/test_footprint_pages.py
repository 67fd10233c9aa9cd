"""The command footprint on what makes other objects: its parts, for people and for scripts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.api.main import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  priorityClassName: high
  containers:
  - name: app
    resources: {requests: {cpu: 1500m}, limits: {memory: 1.5Gi}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {generateName: sums-}
spec:
  parallelism: 3
  template: {spec: {priorityClassName: low, containers: [{name: c, resources: {requests: {cpu: 1}}}]}}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {template: {spec: {containers: [{name: c}]}}}
"""
DAEMONS = DEPLOYMENT.replace("Deployment", "DaemonSet")
SUSPENDED = JOB.replace("parallelism: 3", "suspend: true")
CUSTOM = "{apiVersion: example.com/v1, kind: Robot, metadata: {name: r}}"
NAMESPACE = "{apiVersion: v1, kind: Namespace}"


@pytest.fixture
def footprint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs the command on manifests: exit code, stdout, stderr."""

    def command(*manifests: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        (tmp_path / "m.yaml").write_text("\n---\n".join(manifests))
        code = run(["footprint", "-f", str(tmp_path / "m.yaml"), *options])
        return (code, *capsys.readouterr())

    return command


def test_people_see_a_block_for_each_manifest_with_its_parts(footprint: Command) -> None:
    """Names, amounts in a column, scopes, parts; a kind that is not charged says so."""
    code, out, err = footprint(POD, JOB, NAMESPACE)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "Pod web",
        "  count/pods            1",
        "  cpu               1500m",
        "  limits.memory    1536Mi",
        "  memory           1536Mi",
        "  pods                  1",
        "  requests.cpu      1500m",
        "  requests.memory  1536Mi",
        "  scopes: PriorityClass, PriorityClass=high",
        "",
        "Job sums-  (estimated: includes the pods that it will make)",
        "  count/jobs.batch  1",
        "  count/pods        3",
        "  cpu               3",
        "  pods              3",
        "  requests.cpu      3",
        "  scopes: PriorityClass, PriorityClass=low",
        "  part: 3 x Pod made by Job from spec.template, each",
        "    count/pods    1",
        "    cpu           1",
        "    pods          1",
        "    requests.cpu  1",
        "    scopes: PriorityClass, PriorityClass=low",
        "",
        "Namespace",
        "  not charged by any quota",
    ]


@pytest.mark.parametrize(
    ("manifest", "lines"),
    [
        (
            DEPLOYMENT,
            ["  part: 1 x ReplicaSet made by Deployment", "  part: 1 x Pod made by ReplicaSet from spec.template"],
        ),
        (DAEMONS, ["  part: an unknown number of Pod made by DaemonSet from spec.template, each"]),
        (SUSPENDED, ["  part: 1 x Pod made by Job from spec.template, when resumed"]),
        (CUSTOM, []),
    ],
    ids=["deployment", "daemon set", "suspended job", "custom resource"],
)
def test_a_part_says_how_many_by_whom_and_when(footprint: Command, manifest: str, lines: list[str]) -> None:
    """Also where the number is unknown, or zero until the job is resumed."""
    _, out, _ = footprint(manifest)
    assert [line for line in out.splitlines() if line.startswith("  part: ")] == lines


def test_what_an_unknown_kind_makes_is_said_to_be_unknown(footprint: Command) -> None:
    """It is estimated, but includes nothing."""
    assert footprint(CUSTOM)[1] == (
        "Robot r  (estimated: what it will make is unknown)\n  count/robots.example.com  1\n"
    )


def test_scripts_get_the_create_and_the_parts(footprint: Command) -> None:
    """``amounts`` includes the parts, ``create`` is what the create itself is charged, parts are of one object each."""
    _, out, _ = footprint(JOB, options=("--json",))
    scopes = ["PriorityClass", "PriorityClass=low"]
    assert json.loads(out) == {
        "kind": "Job",
        "estimated": True,
        "amounts": {"count/jobs.batch": "1", "count/pods": "3", "cpu": "3", "pods": "3", "requests.cpu": "3"},
        "scopes": scopes,
        "create": {"amounts": {"count/jobs.batch": "1"}, "scopes": []},
        "parts": [
            {
                "kind": "Pod",
                "count": 3,
                "made_by": "Job",
                "template": "spec.template",
                "suspended": False,
                "amounts": {"count/pods": "1", "cpu": "1", "pods": "1", "requests.cpu": "1"},
                "scopes": scopes,
            }
        ],
    }


def test_scripts_get_null_for_what_is_unknown(footprint: Command) -> None:
    """The number of a DaemonSet's pods; the template of what is no pod."""
    found: list[dict[str, Any]] = json.loads(footprint(DAEMONS, DEPLOYMENT, CUSTOM, POD, options=("--json",))[1])
    assert found[0]["parts"][0]["count"] is None
    assert found[0]["amounts"] == {"count/daemonsets.apps": "1"}
    assert [part["template"] for part in found[1]["parts"]] == [None, "spec.template"]
    assert all("parts" not in each and "create" not in each for each in found[2:])
    assert [each["estimated"] for each in found] == [True, True, True, False]


def test_a_malformed_part_ends_with_one_sentence_and_code_2(footprint: Command) -> None:
    """The manifest, the field and what is wrong with it."""
    code, out, err = footprint(POD, JOB.replace("parallelism: 3", "parallelism: many"))
    assert (code, out) == (2, "")
    assert err.rstrip().endswith('manifest 2: spec.parallelism: "many" is not a whole number of 0 or more')
    assert "\n" not in err.rstrip()


def test_no_control_characters_of_a_part_are_printed(footprint: Command) -> None:
    """A replica type of a training job is a text that its author chose."""
    job = '{apiVersion: kubeflow.org/v1, kind: TFJob, spec: {tfReplicaSpecs: {"\\e[31m": {template: {spec: {containers: [{name: c}]}}}}}}'  # noqa: E501
    _, out, _ = footprint(job)
    assert "from spec.tfReplicaSpecs.?[31m.template" in out
    assert "\x1b" not in out
