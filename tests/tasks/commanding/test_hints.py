"""What the commands about tasks tell people to type works as it is printed, and counts right."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from backoff_ctrl.api.commands.tasks.command import abort, run
from backoff_ctrl.api.commands.tasks.hints import again_here, come_back, placed
from backoff_ctrl.k8s.tasks.again import Needing, failed_by_need
from backoff_ctrl.k8s.tasks.documents import TaskItem, item
from backoff_ctrl.k8s.tasks.model import TaskStatus
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.patience import PATIENCE
from tests.serve.serving import serving, until
from tests.tasks.commanding.conftest import Desk, several
from tests.tasks.tasks_written import NAMESPACE, manifest, wish


def context(command: click.Command, *words: str) -> click.Context:
    """Return the context of a command that was typed like this."""
    return command.make_context("run", list(words))


async def items(folder: Path, *phases: str) -> list[TaskItem]:
    """Return unfinished tasks in these phases."""
    async with SqliteStore(folder / "t.db") as store:
        made = await store.create([wish(f"t{number}") for number in range(len(phases))])
        return [
            item(replace(task, status=TaskStatus(phase=phase))) for (task, _), phase in zip(made, phases, strict=True)
        ]


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        (["Running"], "1 task is unfinished: 1 runs on in the cluster."),
        (["WaitingForResources"], "1 task is unfinished: 1 waits until you continue."),
        (
            ["Running", "Queued", "NotReady"],
            "3 tasks are unfinished: 2 run on in the cluster, 1 waits until you continue.",
        ),
        (["NotReady", "Paused"], "2 tasks are unfinished: 2 wait until you continue."),
        (["Success", "Running"], "2 tasks are unfinished: 2 run on in the cluster."),  # its object is not released yet
    ],
)
async def test_the_sentence_counts_what_runs_and_what_waits(tmp_path: Path, phases: list[str], said: str) -> None:
    """One of a kind is one; what has no object does not run in the cluster."""
    with context(run):
        assert come_back(await items(tmp_path, *phases), by_others=False, namespaces=False) == [
            f"{said} Continue with: backoff-ctrl task run"
        ]


async def test_others_carry_on_without_this_command(tmp_path: Path) -> None:
    """A manager, a server or the operator: the tasks only have to be watched."""
    with context(run):
        (said,) = come_back(await items(tmp_path, "Running"), by_others=True, namespaces=False)
    assert said == "1 task continues without this command. Watch with: backoff-ctrl task run"


async def test_of_the_cluster_each_namespace_has_its_command(tmp_path: Path) -> None:
    """A run follows those of one namespace there."""
    one, two = await items(tmp_path, "Running", "Running")
    with context(run, "-f", "-", "--store", "cluster", "--context", "my prod"):
        first, second = come_back([one, replace(two, namespace="b")], by_others=True, namespaces=True)
    command = "backoff-ctrl task run -n {} --store cluster --context 'my prod'"
    assert (first.partition(": ")[2], second.partition(": ")[2]) == (command.format("b"), command.format(NAMESPACE))


def test_the_options_are_those_that_were_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With whole paths, quoted; but not which tasks, and of settings those of the platform."""
    monkeypatch.chdir(tmp_path)
    words = ["-f", "a.yaml", "--store", "my tasks.db", "--config", "set.yaml", "--set", "plugins.k8s.default-cpus=2",
             "--policy", "base=2", "--policy", "cap=9", "--abort-on-exit", "--json", "-n", "x",
             "--kubeconfig", "~/k 8s", "--context", "it's"]  # fmt: skip
    with context(run, *words):
        (line,) = come_back([], by_others=False, namespaces=False, settings=["plugins.k8s.default-cpus=2"])
        again = again_here(["plugins.k8s.default-cpus=2"])
    typed = shlex.split(line.partition(" with: ")[2])
    assert again == [word for word in typed[3:] if word not in ("--abort-on-exit", "--json")]
    assert run.make_context("run", typed[3:]).params == run.make_context(
        "run",
        ["--store", f"{tmp_path}/my tasks.db", "--config", f"{tmp_path}/set.yaml", "--set", "plugins.k8s.default-cpus=2",
         "--policy", "base=2", "--policy", "cap=9", "--abort-on-exit", "--json",
         "--kubeconfig", str(Path("~/k 8s").expanduser()), "--context", "it's"],
    ).params  # fmt: skip


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ("there is no task a/b: backoff-ctrl task list shows", "backoff-ctrl task list --store '/x y.db' shows"),
        ("(backoff-ctrl task delete b -n a)", "(backoff-ctrl task delete b -n a --store '/x y.db')"),
        ("delete some (backoff-ctrl task delete NAME -n a)", "delete NAME -n a --store '/x y.db')"),
    ],
)
def test_a_store_s_own_hints_lead_to_it(said: str, typed: str) -> None:
    """It does not know how it was found."""
    with context(abort, "b", "--store", "/x y.db", "--wait", "5"):
        assert typed in placed(said)


def test_who_failed_by_a_need_runs_again_after_it() -> None:
    """In the order of their needs; who would fail again by another need is left out, and so is who failed by itself."""
    failed, broken, done = ("PermanentFailure", "X"), ("PermanentFailure", "DependencyFailed"), ("Success", None)
    ended = {
        "last": Needing(*broken, {"second": "Success", "train": "Success"}),
        "second": Needing(*broken, {"first": "Success"}),
        "first": Needing(*broken, {"train": "Success", "fine": "Success"}),
        "torn": Needing(*broken, {"train": "Success", "other": "Success"}),
        "below": Needing(*broken, {"torn": "Success"}),
        "cleanup": Needing(*done, {"train": "Failure"}),
        "own": Needing(*failed, {"train": "Any"}),
        "train": Needing(*failed, {}),
        "other": Needing(*failed, {}),
        "fine": Needing(*done, {}),
    }
    assert failed_by_need("train", ended) == ["first", "second", "last"]
    assert failed_by_need("other", ended) == []
    assert failed_by_need("fine", ended) == []


# -- pasted into another terminal ------------------------------------------------------------------------------------


def pasted(line: str, folder: Path, **options: Any) -> subprocess.Popen[str]:
    """Type a printed command in another folder."""
    words = shlex.split(line)
    assert words[0] == "backoff-ctrl"
    command = [sys.executable, "-m", "backoff_ctrl", *words[1:]]
    return subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.long
def test_after_ctrl_c_the_printed_command_goes_on(lasting: Desk, tmp_path: Path) -> None:
    """Paths relative and with spaces, a kubeconfig with a context, settings, several tasks."""
    here, elsewhere = tmp_path / "my work", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    write_kubeconfig(here / "kube config", lasting.sandbox.url)
    (here / "my settings.yaml").write_text("plugins: {k8s: {default-cpus: 2}}\n")
    (here / "tasks.yaml").write_text(Path(lasting.write(*several(3))).read_text())
    typed = ["backoff-ctrl", "task", "run", "-f", "tasks.yaml", "--store", "my tasks.db", "--kubeconfig", "kube config",
             "--context", "here", "--config", "my settings.yaml"]  # fmt: skip
    with pasted(shlex.join(typed), here) as process:
        until(lambda: len(lasting.pods()) == 2)
        until(lambda: "WaitingForResources" in str(process.stdout and process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE)
    assert "3 tasks are unfinished: 2 run on in the cluster, 1 waits until you continue." in told, told
    (command,) = re.findall("Continue with: (.*)", told)
    before = {pod.metadata.uid for pod in lasting.pods()}
    lasting.core.delete_namespaced_resource_quota("q", NAMESPACE)
    with pasted(command, elsewhere) as process:
        until(lambda: len(lasting.pods()) == 3)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE)
        assert f"Continue with: {command}" in told, told
    assert before < {pod.metadata.uid for pod in lasting.pods()}


@pytest.mark.long
def test_after_ctrl_c_the_tasks_of_a_server_are_watched(lasting: Desk, tmp_path: Path) -> None:
    """With the token file, from another folder; the server carries them out meanwhile."""
    (tmp_path / "a b").mkdir()
    with serving("--apiserver", lasting.sandbox.url, "--store", str(tmp_path / "served.db"), quiet=False) as url:
        file = lasting.write(*several(2))
        with pasted(shlex.join(["backoff-ctrl", "task", "run", "-f", file, "--gate", url]), tmp_path) as process:
            until(lambda: len(lasting.pods()) == 2)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=PATIENCE)
        assert "2 tasks continue without this command." in told, told
        (command,) = re.findall("Watch with: (.*)", told)
        with pasted(command, tmp_path / "a b") as process:
            until(lambda: "t1" in str(process.stdout and process.stdout.readline()))
            process.send_signal(signal.SIGINT)
            assert command in process.communicate(timeout=PATIENCE)[1]


@pytest.mark.long
def test_what_never_fitted_runs_again_with_all_that_failed_by_it(desk: Desk) -> None:
    """The quota is raised, one command is typed: what needed it runs too, here and at a server."""
    desk.sandbox.create_quota(NAMESPACE, "cpu", {"requests.cpu": "1"})
    large = {"image": "busybox", "resources": {"requests": {"cpu": "4"}}}
    file = desk.write(manifest("train", container=large), manifest("report", container=large, needs=["train"]),
                      manifest("mail", container=large, needs=["report"]))  # fmt: skip
    desk.task("run", "-f", file, code=1)
    assert [each["code"] for each in desk.listed().values()] == [
        "ResourceRequestsExceedLimits", "DependencyFailed", "DependencyFailed",
    ]  # fmt: skip
    desk.core.patch_namespaced_resource_quota("cpu", NAMESPACE, {"spec": {"hard": {"requests.cpu": "8"}}})
    assert desk.task("run", "--again", "train").endswith("3 tasks: 3 Success\n")
    assert {each["phase"] for each in desk.listed().values()} == {"Success"}


@pytest.mark.long
def test_at_a_server_what_failed_by_its_need_runs_again_too(desk: Desk, tmp_path: Path) -> None:
    """The same command, with the server's address."""
    desk.sandbox.create_quota(NAMESPACE, "cpu", {"requests.cpu": "1"})
    large = {"image": "busybox", "resources": {"requests": {"cpu": "4"}}}
    file = desk.write(manifest("train", container=large), manifest("report", container=large, needs=["train"]))
    with serving("--apiserver", desk.sandbox.url, "--store", str(tmp_path / "served.db"), quiet=False) as url:
        at = ["--gate", url]
        with pasted(shlex.join(["backoff-ctrl", "task", "run", "-f", file, *at]), tmp_path) as process:
            assert process.wait(PATIENCE) == 1
        desk.core.patch_namespaced_resource_quota("cpu", NAMESPACE, {"spec": {"hard": {"requests.cpu": "8"}}})
        with pasted(shlex.join(["backoff-ctrl", "task", "run", "--again", "train", *at]), tmp_path) as process:
            out, err = process.communicate(timeout=PATIENCE)
            assert (process.returncode, out.endswith("2 tasks: 2 Success\n")) == (0, True), out + err
