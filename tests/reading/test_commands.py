"""The commands classify and footprint as people and scripts run them: output, exit codes, errors."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.api.main import COMMANDS, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FULL = (
    'Error creating: pods "p" is forbidden: exceeded quota: team, requested: limits.memory=1500M,requests.cpu=1500m, '
    "used: limits.memory=7Gi,requests.cpu=1, limited: limits.memory=8Gi,requests.cpu=2"
)
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
WRITE_ONE = "write a number such as 2, 500m or 4Gi"
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {generateName: sums-}
spec: {parallelism: 3, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}
"""


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that puts a text on stdin."""

    def put(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return put


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the one JSON document on stdout; stderr must be empty."""
    out, err = capsys.readouterr()
    assert not err
    return json.loads(out)


def test_classify_gives_scripts_every_key(feed: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON document; amounts are quantity strings in the shorter form."""
    feed(FULL)
    assert run(["classify", "--json"]) == 0
    found = document(capsys)
    assert found.pop("message") == FULL
    assert found == {
        "lane": "quota",
        "retryable": True,
        "retry_after_s": None,
        "quota": "team",
        "requested": {"limits.memory": "1500M", "requests.cpu": "1500m"},
        "used": {"limits.memory": "7Gi", "requests.cpu": "1"},
        "limited": {"limits.memory": "8Gi", "requests.cpu": "2"},
        "headroom": {"limits.memory": "1Gi", "requests.cpu": "1"},
        "never_fits": False,
    }


def test_classify_gives_scripts_the_fields_that_a_quota_requires(
    feed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """By resource, each with its containers; other answers lack the key."""
    feed('pods "p" is forbidden: failed quota: team: must specify limits.cpu for: app,proxy; requests.cpu for: app')
    assert run(["classify", "--json"]) == 0
    assert document(capsys)["must_specify"] == {"limits.cpu": ["app", "proxy"], "requests.cpu": ["app"]}


@pytest.mark.parametrize("options", [[], ["--status", "403"]])
def test_classify_unwraps_what_another_program_has_wrapped(
    options: list[str], feed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the status is known or not."""
    told = FULL.removeprefix("Error creating: ")
    feed("\n".join(f"│ {told[at : at + 60]:60} │" for at in range(0, len(told), 60)))
    assert run(["classify", "--json", *options]) == 0
    found = document(capsys)
    assert (found["lane"], found["quota"], found["limited"]["requests.cpu"]) == ("quota", "team", "2")


def test_classify_takes_the_status_where_it_is_known(
    feed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A status changes the meaning of a text; with a status, an empty body is an answer, too."""
    feed("boom")
    assert run(["classify", "--status", "503", "--json"]) == 0
    assert document(capsys)["lane"] == "overload"
    feed("")
    assert run(["classify", "--status", "504", "--json"]) == 0
    assert document(capsys)["lane"] == "unknown-outcome"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            FULL,
            [
                "lane       quota",
                "retryable  yes",
                "quota      team",
                "The quota is full. Wait for room, or free some (backoff-ctrl holders shows who uses it).",
                "",
                "resource       requested  used  limited  left",
                "limits.memory      1500M   7Gi      8Gi   1Gi",
                "requests.cpu       1500m     1        2     1",
            ],
        ),
        (
            "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0",
            [
                "lane       quota",
                "retryable  yes",
                "quota      q",
                "The quota is paused: its limit of pods is 0. Wait until an administrator raises it.",
                "",
                "resource  requested  used  limited  left",
                "pods              1     0        0     0",
            ],
        ),
        (
            "exceeded quota: q, requested: pods=3, used: count/x=0, limited: pods=2",
            [
                "lane       quota",
                "retryable  no",
                "quota      q",
                "It requests more than the whole quota, so it can never fit. Reduce it, or ask for a larger quota.",
                "",
                "resource  requested  used  limited  left",
                "pods              3     ?        2     ?",
            ],
        ),
        (
            '{"kind":"Status","message":"slow down","code":429,"details":{"retryAfterSeconds":3}}',
            [
                "lane       overload",
                "retryable  yes",
                "retry in   3 s",
                "The server is overloaded. Wait as long as it asks, then send fewer requests at once.",
            ],
        ),
        (
            'pods "p" is forbidden: failed quota: team: must specify limits.cpu for: app,proxy; requests.cpu for: app',
            [
                "lane       must-specify",
                "retryable  no",
                "quota      team",
                "The quota requires every container to set these requests or limits. Add them.",
                "",
                "resource      containers",
                "limits.cpu    app, proxy",
                "requests.cpu  app",
            ],
        ),
        (
            'pods "p" is forbidden: failed quota: team: must specify limits.cpu,limits.memory',
            [
                "lane       must-specify",
                "retryable  no",
                "quota      team",
                "The quota requires every container to set these requests or limits. Add them.",
                "",
                "resource       containers",
                "limits.cpu     ?",
                "limits.memory  ?",
            ],
        ),
        (
            "pods is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000",
            [
                "lane       policy",
                "retryable  no",
                "The pod would request more than its node can give. Request less, or create it anew on a larger node.",
            ],
        ),
        (
            "Unauthorized",
            ["lane       credentials", "retryable  no", "The credentials are missing or expired. Renew them."],
        ),
    ],
)
def test_classify_tells_people_what_to_do(
    text: str, lines: list[str], feed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Short lines, advice, and a table for a quota."""
    feed(text)
    assert run(["classify"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":200}'),
        ([], '{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"a":"pods already exists"}}}'),
        (["--status", "201"], ""),
    ],
    ids=["status", "object", "code"],
)
def test_classify_recognizes_a_success(
    arguments: list[str], text: str, feed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so instead of calling the answer unknown; the lane is still one of the documented ones."""
    feed(text)
    assert run(["classify", *arguments]) == 0
    assert "This is a success, not a refusal" in capsys.readouterr().out
    feed(text)
    assert run(["classify", *arguments, "--json"]) == 0
    found = document(capsys)
    assert (found["lane"], found["retryable"]) == ("other", False)


def test_classify_reads_each_refusal_of_a_log(feed: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    """Still one JSON document: the first refusal at the top, the others under ``more``; other lines are skipped."""
    denied = 'Error from server (Forbidden): pods is forbidden: User "a" cannot create resource "pods" in API group ""'
    log = f"10:00 starting\n10:01 {FULL}\n10:02 waiting\n{denied}\n"
    feed(log)
    assert run(["classify", "--json"]) == 0
    found = document(capsys)
    assert (found["lane"], found["quota"]) == ("quota", "team")
    assert [each["lane"] for each in found["more"]] == ["rbac"]
    feed(log)
    assert run(["classify"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("lane")] == [
        "lane       quota",
        "lane       rbac",
    ]


def test_footprint_gives_scripts_one_object_for_one_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The object has every name that the server would charge, without zero amounts."""
    (tmp_path / "pod.yaml").write_text(POD)
    assert run(["footprint", "-f", str(tmp_path / "pod.yaml"), "--json"]) == 0
    assert document(capsys) == {
        "kind": "Pod",
        "estimated": False,
        "amounts": {
            "count/pods": "1",
            "cpu": "1500m",
            "limits.memory": "1536Mi",
            "memory": "1536Mi",
            "pods": "1",
            "requests.cpu": "1500m",
            "requests.memory": "1536Mi",
        },
        "scopes": ["PriorityClass", "PriorityClass=high"],
    }


def test_footprint_takes_the_file_with_and_without_f(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both ways print the same; two files at once are wrong usage."""
    file = str(tmp_path / "pod.yaml")
    (tmp_path / "pod.yaml").write_text(POD)
    printed = []
    for arguments in (["-f", file], [file]):
        assert run(["footprint", *arguments]) == 0
        printed.append(capsys.readouterr().out)

    assert printed[0] == printed[1]
    assert run(["footprint", file, "-f", file]) == 2
    assert "Name one file" in capsys.readouterr().err


def test_footprint_gives_a_list_for_several_manifests(
    feed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifests of a stream on stdin, in order; the Job is estimated."""
    feed(f"{POD}---{JOB}")
    assert run(["footprint", "-f", "-", "--json"]) == 0
    found = document(capsys)
    assert [(item["kind"], item["estimated"]) for item in found] == [("Pod", False), ("Job", True)]
    assert found[1]["amounts"]["pods"] == "3"


@pytest.mark.parametrize(
    ("arguments", "text", "sentence"),
    [
        (["classify"], "", "stdin is empty: pipe an answer of the API server or a line of a log into this command"),
        (["classify"], " \n", "stdin is empty: pipe an answer of the API server or a line of a log into this command"),
        (["footprint", "-f", "/does/not/exist"], "", "/does/not/exist: cannot be read: No such file or directory"),
        (
            ["footprint", "-f", "-"],
            "a: [",
            "stdin, line 2, column 1: is not valid YAML: did not find expected node content",
        ),
        (["footprint", "-f", "-"], "kind: Pod", "stdin: apiVersion: required field is missing"),
        (
            ["footprint", "-f", "-"],
            POD.replace("1500m", "abc"),
            'stdin: spec.containers[0].resources.requests.cpu: "abc" is not a quantity: ' + WRITE_ONE,
        ),
        (
            ["footprint", "-f", "-"],
            f"{JOB}---{POD.replace('1500m', 'abc')}",
            'stdin, manifest 2: spec.containers[0].resources.requests.cpu: "abc" is not a quantity: ' + WRITE_ONE,
        ),
    ],
)
def test_bad_input_ends_with_one_sentence_and_code_2(
    arguments: list[str],
    text: str,
    sentence: str,
    feed: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error is on stderr and names the field; stdout is empty, and there is no traceback."""
    feed(text)
    for option in ([], ["--json"]):
        feed(text)
        assert run([*arguments, *option]) == 2
        assert capsys.readouterr() == ("", f"backoff-ctrl: {sentence}\n")


@pytest.mark.parametrize(
    "arguments", [["nope"], ["classify", "--status", "9"], ["classify", "x"], ["footprint"], ["--nope"]]
)
def test_wrong_use_ends_with_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """click prints the error and points to --help."""
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "Error: " in err
    assert "--help" in err


def test_help_names_every_command_and_loads_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Help has a line for each command, and the exit codes."""
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert "2 wrong usage or bad input" in " ".join(out.split())
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("backoff-ctrl")


def test_reading_commands_start_fast_since_they_load_no_client() -> None:
    """classify and footprint import neither the Kubernetes client, aiohttp, asyncio nor rich."""
    script = (
        "import sys; from backoff_ctrl.api.main import run; run(['classify', '--status', '500', '--json']);"
        "run(['footprint', '-f', '-', '--json']);"
        "print(sorted({'kubernetes', 'aiohttp', 'asyncio', 'rich', 'matplotlib', 'tenacity'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], input=POD, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


class Interrupted(io.RawIOBase):
    """A stdin on which the user presses Ctrl-C."""

    buffer = property(lambda self: self)

    def read(self, size: int = -1) -> bytes:
        """Raise ``KeyboardInterrupt``, as Ctrl-C does."""
        raise KeyboardInterrupt


def test_ctrl_c_ends_with_a_sentence_and_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while waiting for input causes no traceback."""
    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert run(["classify"]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.strip() == "backoff-ctrl: stopped"


def test_a_closed_pipe_causes_no_traceback(tmp_path: Path) -> None:
    """If the reader of stdout has closed it, the command ends without output."""
    (tmp_path / "jobs.yaml").write_text("---".join([JOB] * 3000))
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from backoff_ctrl.api.main import main; main()",
                "footprint",
                "-f",
                str(tmp_path / "jobs.yaml"),
            ],
            stdout=write,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.stderr, done.returncode) == (b"", 1)


def test_footprint_refuses_malformed_metadata(feed: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    """Like the server, the command refuses it, even for kinds that are only counted."""
    feed("{apiVersion: v1, kind: ConfigMap, metadata: 3}")
    assert run(["footprint", "-f", "-"]) == 2
    assert capsys.readouterr().err == "backoff-ctrl: stdin: metadata: must be an object, not a number\n"


def test_footprint_prints_no_control_characters_of_a_manifest(
    feed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Control characters in a name are replaced."""
    feed(POD.replace("name: web", 'name: "a\\e[31mb"'))
    assert run(["footprint", "-f", "-"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "Pod a?[31mb"
