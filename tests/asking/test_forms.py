"""``-o json|yaml|name|wide`` and ``--watch`` as with kubectl; what is printed as KIND/NAME is taken as an argument."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from backoff_ctrl.api.commands.instance_options import table
from backoff_ctrl.api.commands.top_look import JobsSeen, look
from backoff_ctrl.api.commands.top_screen import Top
from backoff_ctrl.api.commands.watching import Row, Watched
from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from tests.asking.test_names_of_options import COMMANDS
from tests.asking.test_namespaces import cluster, suspended
from tests.asking.test_top import instance, until
from tests.kit.patience import PATIENCE
from tests.status.asking import Crowd
from tests.tasks.tasks_written import wish

__all__ = ["cluster"]

Output = pytest.CaptureFixture[str]
LISTS = {"waiting", "ceilings", "holders", "jobs list", "task list"}
REFUSAL = 'pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'


def forms_of(command: click.Command) -> tuple[str, ...]:
    found = [each.type for each in command.params if "-o" in each.opts]
    return tuple(found[0].choices) if found and isinstance(found[0], click.Choice) else ()


def test_what_prints_json_prints_yaml_and_lists_print_names() -> None:
    """All that has --json has -o; the demo's table is a report."""
    with_json = {path for path, each in COMMANDS.items() if any("--json" in param.opts for param in each.params)}
    forms = {path: forms_of(COMMANDS[path]) for path in with_json - {"demo"}}
    assert [path for path, found in forms.items() if not {"json", "yaml"} <= {*found}] == []
    assert {path for path, found in forms.items() if "wide" in found} == LISTS
    assert all("name" in forms[path] for path in LISTS)
    assert {path for path, each in COMMANDS.items() if any("--watch" in param.opts for param in each.params)} == {
        "waiting", "jobs list",
    }  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> str:
    file = tmp_path / "tasks.db"

    async def fill() -> None:
        async with SqliteStore(file) as made:
            await made.create([wish("one"), wish("two")])

    asyncio.run(fill())
    return str(file)


@pytest.fixture
def asked(
    crowd: Crowd,
    cluster: BackgroundSandbox,
    store: str,
    capsys: Output,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., str]:
    """Ask a command about something that there is; return stdout."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    crowd.wait_with("second")
    file = tmp_path / "pod.json"
    file.write_text(
        json.dumps(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}
        )
    )
    gate, server = ("--gate", crowd.url), ("--apiserver", cluster.url)
    where = {
        "waiting": gate, "ceilings": gate, "top": gate, "act pause": ("other", *gate),
        "jobs list": (*server, "-A"), "holders": (*server, "-n", "team"), "doctor": (*server, "-n", "team"),
        "task list": ("--store", store), "task show": ("one", "--store", store),
        "explain": ("-f", str(file), "-n", "team", *gate), "footprint": (str(file),), "phase": ("-f", str(file)),
        "classify": ("--status", "403"),
    }  # fmt: skip

    def ask(path: str, *words: str, code: int = 0) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(REFUSAL.encode())))
        assert run([*path.split(), *where[path], *words]) in {code, 1 if path == "doctor" else code}
        return capsys.readouterr().out

    return ask


LATER = ("as_of", "at", "heard_at", "waited", "since", "oldest", "decisions", "next_probe_at")
"""Keys whose values go with time."""


def steady(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: steady(value) for key, value in found.items() if key not in LATER}
    return [steady(each) for each in found] if isinstance(found, list) else found


@pytest.mark.long
@pytest.mark.parametrize(
    "path",
    ["waiting", "ceilings", "top", "act pause", "jobs list", "holders", "doctor", "task list", "task show", "explain",
     "footprint", "phase", "classify"],
)  # fmt: skip
def test_json_and_yaml_are_one_document(path: str, asked: Callable[..., str]) -> None:
    found = json.loads(asked(path, "--json"))
    assert steady(json.loads(asked(path, "-o", "json"))) == steady(found)
    assert steady(yaml.safe_load(asked(path, "-o", "yaml"))) == steady(found)
    assert asked(path, "--json", "-o", "json")
    asked(path, "--json", "-o", "yaml", code=2)


@pytest.mark.long
def test_names_are_those_that_commands_take(
    crowd: Crowd, cluster: BackgroundSandbox, store: str, asked: Callable[..., str], capsys: Output
) -> None:
    """As -o name prints them, and as the table does."""
    assert asked("waiting", "-o", "name") == "pods/second\n"
    assert asked("ceilings", "-o", "name") == "resourcequota/q\n"
    assert {*asked("jobs list", "-o", "name").split()} == {"job.batch/in-team", "job.batch/in-dept"}
    assert asked("task list", "-o", "name") == "task.backoff-ctrl.dev/one\ntask.backoff-ctrl.dev/two\n"
    assert asked("task show", "-o", "name") == "task.backoff-ctrl.dev/one\n"
    holders = ["holders", "--apiserver", cluster.url, "-n", "team", "--quota"]
    for quota in ("q", "resourcequota/q", "ResourceQuotas/q"):
        assert "team" in asked("ceilings", "--quota", quota)
        assert run([*holders, quota]) == 0
    for quota in ("quota.v1/q", "pods/q"):
        assert run([*holders, quota]) == 2
        assert run(["act", "forget", "team", quota, "--gate", crowd.url]) == 1
        capsys.readouterr()
        assert "no ceilings of quota" in asked("ceilings", "--quota", quota)
    assert run(["act", "forget", "team", "resourcequota/q", "--gate", crowd.url]) == 0

    for name in ("one", "task/one", "Task/one", "tasks/one", "task.backoff-ctrl.dev/one", "team/one"):
        assert run(["task", "show", name, "--store", store]) == 0
        assert "Task team/one" in capsys.readouterr().out
    assert run(["task", "show", "team/one", "-n", "team", "--store", store]) == 0
    assert run(["task", "show", "team/one", "-n", "dept", "--store", store]) == 2
    assert run(["task", "show", "pod/one", "--store", store]) == 1

    for name in ("Job/in-team", "job/in-team", "job.batch/in-team", "jobs.batch/in-team"):
        cluster.call(lambda inner: inner.get(inner.kind("jobs", "batch"), "team", "in-team"))
        assert run(["jobs", "release", name, "--apiserver", cluster.url, "-n", "dept"]) == 2  # not in that namespace
    for name in ("JobSet/in-team", "job.apps/in-team"):
        assert run(["jobs", "release", name, "--apiserver", cluster.url, "-n", "team"]) == 2
    for name, namespace in (("Job/in-team", "team"), ("job.batch/in-dept", "dept")):
        assert run(["jobs", "release", name, "--apiserver", cluster.url, "-n", namespace]) == 0


@pytest.mark.parametrize(
    "words", [("show",), ("logs",), ("abort",), ("signal",), ("delete",), ("run", "--again")], ids=" ".join
)
def test_all_commands_of_a_task_take_its_kind(words: tuple[str, ...], store: str, capsys: Output) -> None:
    """As `task list -o name` prints it."""
    for name in ("task/absent", "tasks.backoff-ctrl.dev/absent", "absent"):
        assert run(["task", *words, name, "--store", store]) == 1
        assert "there is no task absent" in capsys.readouterr().err


def test_a_namespace_is_taken_as_kubectl_prints_it(crowd: Crowd, capsys: Output) -> None:
    """``kubectl get namespaces -o name``."""
    for verb in ("pause", "resume"):
        assert run(["act", verb, "namespace/team", "--gate", crowd.url]) == 0
        assert "namespace/" not in capsys.readouterr().out


@pytest.mark.long
def test_a_waiting_create_is_named_as_it_is_printed(crowd: Crowd, capsys: Output) -> None:
    """`act` needs no id, but where several have one name."""

    def act(verb: str, name: str, *more: str) -> tuple[int, str]:
        code = run(["act", verb, name, *more, "--gate", crowd.url])
        out, err = capsys.readouterr()
        return code, out + err

    crowd.sandbox.create_namespace("dept")
    crowd.sandbox.create_quota("dept", "q", {"pods": "0"})
    crowd.wait_with("second")
    crowd.wait_with("second", namespace="dept")
    code, said = act("prioritize", "pods/second", "3")
    assert (code, "2 creates pods/second wait: choose one with -n, or by its id: " in said) == (2, True)
    assert act("prioritize", "pod/second", "3", "-n", "team")[0] == 0
    assert [each["priority"] for each in crowd.get("/v1/waiting?namespace=team")["items"]] == [3]
    code, said = act("cancel", "pods/absent", "-n", "team")
    assert (code, "no create pods/absent waits in namespace team" in said) == (1, True)
    assert act("cancel", "services/second", "-n", "team")[0] == 1
    assert act("cancel", "Pod/second", "-n", "dept")[0] == 0
    assert act("cancel", "pods/second")[0] == 0


# -- tables ---------


def test_columns_that_say_nothing_are_left_out_but_from_a_wide_table() -> None:
    rows = [("a", "", "-", "0"), ("b", "", "x", "-"), ("hidden", "y", "", "")]
    assert table(("n", "m", "o", "p"), rows, 2, right=("p",)).splitlines()[:-1] == ["n  o  p", "a  -  0", "b  x  -"]
    assert table(("n", "m", "o", "p"), rows[:2], 2, right=(), whole=True).split("\n")[0] == "n  m  o  p"


@pytest.mark.long
def test_a_wide_table_has_all_columns_and_cuts_nothing(
    crowd: Crowd, asked: Callable[..., str], cluster: BackgroundSandbox, store: str, capsys: Output
) -> None:
    head, line = asked("waiting", "-o", "wide").splitlines()
    columns = "namespace name waited place reason estimate priority owner gang gate id blocked by"
    assert " ".join(head.split()) == columns
    assert crowd.get("/v1/waiting")["items"][0]["id"] in line
    assert "trend" not in asked("ceilings").split("\n")[0]
    assert "trend" in asked("ceilings", "-o", "wide").split("\n")[0]
    assert "quota" not in asked("jobs list").split("\n")[0].split()
    assert "quota" in asked("jobs list", "-o", "wide").split("\n")[0].split()
    assert "place" not in asked("task list").split("\n")[0].split()
    assert "plugin" in asked("task list", "-o", "wide").split("\n")[0].split()
    name = f"Job/{'long-' * 12}name"
    for number in range(14):
        made = config_map(f"{name[4:]}{number}")
        cluster.call(lambda inner: inner.create(inner.kind("configmaps"), "team", made))  # noqa: B023 - at once
    cluster.create_quota("team", "maps", {"count/configmaps": "14"})
    assert run(["holders", "--apiserver", cluster.url, "-n", "team", "-o", "wide"]) == 0
    out = capsys.readouterr().out
    assert out.count(f"{name[4:]}1") == 5  # 1, 10 to 13: none is left out, or cut
    assert "more" not in out


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


# -- watching ---------

HEAD = ("name", "waited", "reason")


def rows(*cells: tuple[str, str, str]) -> list[Row]:
    return [Row(each[0], f"pods/{each[0]}", each, {"name": each[0], "reason": each[2]}) for each in cells]


def test_a_watched_table_goes_on_with_what_comes_changes_and_goes() -> None:
    """Not with what only grows older."""
    table = Watched(HEAD, ("waited",), ("waited",), None)
    first = ("first", "1s", "quota")
    assert table.take(rows(first, ("b", "10s", "kept")), "gone") == [
        "name   waited  reason", "first      1s  quota", "b         10s  kept",
    ]  # fmt: skip
    assert table.take(rows(("first", "3s", "quota"), ("b", "12s", "kept")), "gone") == []
    assert table.take(rows(("first", "5s", "overload")), "gone") == ["first      5s  overload", "b         12s  gone"]
    assert table.take(rows(), "gone") == ["first      5s  gone"]
    assert table.take(rows(first), "gone") == ["first      1s  quota"]


def test_a_watch_begins_with_the_head_though_nothing_waits() -> None:
    table = Watched(HEAD, ("waited",), ("waited",), "wide")
    assert table.take([], "gone") == ["name  waited  reason"]
    assert table.take(rows(("a", "1s", "\x1b[2J")), "gone") == ["a         1s  ?[2J"]


def test_other_forms_are_watched_too() -> None:
    names = Watched(HEAD, (), ("waited",), "name")
    assert names.take(rows(("a", "1s", "x")), "gone") == ["pods/a"]
    assert names.take(rows(("a", "1s", "y"), ("b", "1s", "x")), "gone") == ["pods/a", "pods/b"]
    assert names.take([], "gone") == []
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        table = Watched(HEAD, (), ("waited",), form)
        assert [read(each) for each in table.take(rows(("a", "1s", "x")), "gone")] == [{"name": "a", "reason": "x"}]
        assert table.take(rows(("a", "2s", "x")), "gone") == []


@pytest.mark.long
@pytest.mark.parametrize("watched", ["waiting", "jobs list"])
def test_a_watch_lasts_until_ctrl_c(
    watched: str, crowd: Crowd, cluster: BackgroundSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    where = ["--gate", crowd.url] if watched == "waiting" else ["--apiserver", cluster.url, "-n", "team"]
    crowd.wait_with("second")
    with subprocess.Popen(
        [sys.executable, "-m", "backoff_ctrl", *watched.split(), *where, "-w"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        lines = reading(process)
        try:
            assert next(lines).split()[:2] == ["namespace", "name"]
            assert ("second" if watched == "waiting" else "in-team") in next(lines)
            if watched == "waiting":
                crowd.wait_with("third")
            else:
                cluster.call(lambda inner: inner.create(inner.kind("jobs", "batch"), "team", suspended("third")))
            assert "third" in next(lines)
            if watched == "waiting":
                crowd.make_room("first")
                assert "second" in next(line for line in lines if line.endswith("waits no more\n"))
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""
        finally:
            process.kill()


def reading(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    return iter(process.stdout.readline, "")


# -- Jobs in top ---------


@pytest.mark.long
def test_top_shows_the_jobs_that_wait_in_a_cluster(crowd: Crowd, cluster: BackgroundSandbox, capsys: Output) -> None:
    def found(*words: str) -> dict[str, Any]:
        assert run(["top", "--json", "--gate", crowd.url, *words]) == 0
        whole: dict[str, Any] = json.loads(capsys.readouterr().out)
        return whole

    assert "jobs" not in found()
    everywhere = found("--apiserver", cluster.url, "-A")
    assert {each["name"] for each in everywhere["jobs"]} == {"in-team", "in-dept"}
    assert everywhere.keys() - {"jobs"} == found().keys()
    assert [each["name"] for each in found("--apiserver", cluster.url, "-n", "dept")["jobs"]] == ["in-dept"]
    assert run(["top", "--json", "--gate", crowd.url, "--apiserver", "http://127.0.0.1:9"]) == 2


@pytest.mark.long
async def test_the_screen_shows_jobs_beside_creates(crowd: Crowd, cluster: BackgroundSandbox) -> None:
    await asyncio.to_thread(crowd.wait_with, "second")
    asked, jobs = instance(crowd.url), JobsSeen(find_place(cluster.url, None, None, None), None)
    top = Top(asked, None, 60.0, await asyncio.to_thread(look, asked, None, jobs), jobs)
    async with top.run_test(size=(160, 40)) as pilot:
        table = top.query_one("#waiting")
        await until(lambda: table.row_count == 3, pilot)  # type: ignore[attr-defined]
        shown = [[str(cell) for cell in table.get_row_at(number)] for number in range(3)]  # type: ignore[attr-defined]
        assert {(row[1], row[2]) for row in shown} == {
            ("team", "Job/in-team"),
            ("dept", "Job/in-dept"),
            ("team", "pods/second"),
        }
        assert "2 suspended" in str(top.query_one("#head").content)  # type: ignore[attr-defined]
