"""``-n`` and ``-A`` as with kubectl, in every command that takes them; a misspelt namespace does not look empty."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from backoff_ctrl.api.commands.namespaces import context_namespace
from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox, running_sandbox
from backoff_ctrl.k8s.tasks.reading import read_task, wish_of
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from tests.asking.test_names_of_options import COMMANDS
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.scripted_server import Seen, scripted_server
from tests.status.asking import Crowd
from tests.tasks.tasks_written import manifest, wish

Output = pytest.CaptureFixture[str]
Ask = Callable[..., tuple[set[str], str, str]]


LOOK = {
    "waiting", "ceilings", "top", "holders", "doctor", "jobs list", "jobs release", "task list", "act cancel",
    "act prioritize",
}  # fmt: skip
"""Commands about namespaces: the context's, another one, or all."""
ONE = {f"task {each}" for each in ("run", "show", "logs", "abort", "signal", "delete")} | {
    "explain", "inject", "operator", "serve", "uninstall",
}  # fmt: skip
"""Commands about one object, or what runs on and whose default is all."""


def test_which_commands_take_them() -> None:
    """A new command with ``-n`` belongs to one of these."""
    taken = {path: {name for each in command.params for name in each.opts} for path, command in COMMANDS.items()}
    assert {path for path, names in taken.items() if {"-n", "--namespace"} & names} == LOOK | ONE
    assert {path for path, names in taken.items() if {"-A", "--all-namespaces"} <= names} == LOOK
    assert all({"-n", "--namespace"} <= taken[path] for path in LOOK)


def in_context(folder: Path, namespace: str | None, patch: pytest.MonkeyPatch, url: str = "http://127.0.0.1:9") -> str:
    """Make the current context one of this namespace, or of none."""
    file = write_kubeconfig(folder / "kubeconfig", url, namespace=namespace or "gone")
    if namespace is None:
        Path(file).write_text(Path(file).read_text("utf-8").replace("namespace: gone", "name: x"), "utf-8")
    patch.setenv("KUBECONFIG", file)
    return file


@pytest.fixture
def two(crowd: Crowd) -> Crowd:
    """A gate where creates wait in ``team`` and in ``dept``."""
    crowd.sandbox.create_namespace("dept")
    crowd.sandbox.create_quota("dept", "q", {"pods": "0"})
    crowd.wait_with("second")
    crowd.wait_with("first", namespace="dept")
    return crowd


def of_gate(crowd: Crowd, command: str, capsys: Output, *words: str) -> set[str]:
    """The namespaces that a command shows."""
    assert run([command, "--gate", crowd.url, "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    items = found["ceilings"] + found["waiting"] if command == "top" else found["items"]
    return {each["namespace"] for each in items}


@pytest.mark.parametrize("command", ["waiting", "ceilings", "top"])
def test_a_gate_is_asked_about_the_namespace_that_the_context_names(
    two: Crowd, command: str, capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no context of its own: where none is named, in a sidecar say, it is asked about all."""
    both = {"team", "dept"}
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    assert of_gate(two, command, capsys) == both
    in_context(tmp_path, "team", monkeypatch)
    assert of_gate(two, command, capsys) == {"team"}
    assert of_gate(two, command, capsys, "-n", "") == {"team"}, "as with kubectl, an empty name is none"
    assert of_gate(two, command, capsys, "-n", "dept") == {"dept"}
    assert of_gate(two, command, capsys, "-A") == both
    in_context(tmp_path, None, monkeypatch)
    assert of_gate(two, command, capsys) == both
    (tmp_path / "kubeconfig").write_text("{")
    assert of_gate(two, command, capsys) == both


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("taem", "does not know namespace taem (did you mean team?); 2 creates wait in other namespaces; -A shows"),
        ("xyz", "does not know namespace xyz, but dept, team; 2 creates wait in other namespaces; -A shows"),
        ("idle", "backoff-ctrl: 2 creates wait in other namespaces; -A shows all namespaces"),
    ],
)
def test_an_empty_answer_of_a_gate_tells_of_other_namespaces(two: Crowd, name: str, said: str, capsys: Output) -> None:
    """On stderr: stdout is the answer."""
    two.sandbox.create_namespace("idle")
    two.core.list_namespaced_pod("idle")
    if name == "idle":
        two.sandbox.create_quota("idle", "q", {"pods": "1"})
        two.core.create_namespaced_pod(
            "idle", {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        )
    assert run(["waiting", "--gate", two.url, "-n", name]) == 0
    out, err = capsys.readouterr()
    assert out == f"Nothing waits in namespace {name}.\n"
    assert said in err
    assert err.count("\n") == 1
    assert run(["waiting", "--gate", two.url, "-n", name, "--json"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words",
    [["waiting"], ["ceilings"], ["top", "--json"], ["holders"], ["jobs", "list"], ["jobs", "release", "--all"],
     ["task", "list"], ["task", "list", "--store", "cluster"], ["ceilings", "--apiserver", "http://127.0.0.1:9"]],
    ids=" ".join,
)  # fmt: skip
def test_one_namespace_and_all_are_a_contradiction(words: list[str], capsys: Output) -> None:
    assert run([*words, "-A", "-n", "team"]) == 2
    assert (
        capsys.readouterr().err == "backoff-ctrl: -A means all namespaces, and -n one of them: give only one of them\n"
    )


# -- the cluster ---------


def suspended(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": True, "template": template},
            "metadata": {"name": name, "labels": {"backoff-ctrl.dev/wait": "true"}}}  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[BackgroundSandbox]:
    """A cluster with a quota and a suspended Job in each of two namespaces, and an empty namespace."""
    with running_sandbox() as sandbox:
        sandbox.create_namespace("idle")
        for each in ("team", "dept"):
            sandbox.create_namespace(each)
            sandbox.create_quota(each, "q", {"pods": "1"})
            made = suspended(f"in-{each}")
            sandbox.call(lambda inner: inner.create(inner.kind("jobs", "batch"), each, made))  # noqa: B023 - at once
        yield sandbox


@pytest.fixture
def ask(cluster: BackgroundSandbox, capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Ask with a context of namespace team; return which namespaces the answer has, stdout and stderr."""
    file = in_context(tmp_path, "team", monkeypatch, cluster.url)

    def asked(*words: str, code: int = 0) -> tuple[set[str], str, str]:
        assert run([*words, "--kubeconfig", file]) == code
        out, err = capsys.readouterr()
        return {name for name in ("team", "dept", "idle") if name in out}, out, err

    return asked


@pytest.mark.parametrize("words", [("jobs", "list"), ("holders",), ("ceilings",)], ids=" ".join)
def test_the_cluster_is_asked_about_the_context_s_namespace(ask: Ask, words: tuple[str, ...]) -> None:
    assert ask(*words)[0] == {"team"}
    assert ask(*words, "-n", "")[0] == {"team"}
    assert ask(*words, "-n", "dept")[0] == {"dept"}
    assert ask(*words, "-A")[0] == ask(*words, "-A", "--json")[0] == {"team", "dept"}


def test_several_namespaces_of_jobs(ask: Ask) -> None:
    assert ask("jobs", "list", "-n", "dept", "-n", "team", "-n", "idle")[0] == {"dept", "team"}


def test_releasing_all_is_for_the_namespace(ask: Ask) -> None:
    """Not for the cluster: that takes -A."""
    out, err = ask("jobs", "release", "in-dept", code=2)[1:]
    assert (out, "in namespace team: `backoff-ctrl jobs list -A`" in err) == ("", True)
    assert ask("jobs", "release", "--all")[1] == "Job team/in-team was let go.\n"
    assert ask("jobs", "release", "--all", "-A")[1] == "Job dept/in-dept was let go.\n"
    assert ask("jobs", "release", "--all", "-A")[1] == "No Job waits.\n"


def test_holders_of_all_namespaces(ask: Ask) -> None:
    """A page each; in JSON a list of what one namespace has alone."""
    found = json.loads(ask("holders", "-A", "--json")[1])
    assert [each["namespace"] for each in found["items"]] == ["dept", "team"]
    alone = json.loads(ask("holders", "-n", "dept", "--json")[1])
    assert found["items"][0].keys() == alone.keys()
    assert found["ok"] is True
    assert ask("holders", "-A", "--quota", "absent")[1] == "No namespace has a quota absent.\n"


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (("jobs", "list"), "No Job waits in namespace taem.\n"),
        (("ceilings",), "The cluster has no ceilings of namespace taem.\n"),
    ],
    ids=["jobs list", "ceilings"],
)
def test_a_namespace_that_does_not_exist_is_said(ask: Ask, words: tuple[str, ...], out: str) -> None:
    """It is no empty one: that gets no such sentence."""
    missing = (
        "backoff-ctrl: namespace taem does not exist (did you mean team?): "
        "check the name, or choose another with --namespace\n"
    )
    assert ask(*words, "-n", "taem")[1:] == (out, missing)
    found = ask(*words, "-n", "taem", "--json")
    assert json.loads(found[1])["items"] == []
    assert found[2] == missing
    assert "does not exist" not in ask(*words, "-n", "idle")[2]


def test_holders_of_a_namespace_that_does_not_exist_is_an_error(ask: Ask) -> None:
    """There is no page to print."""
    out, err = ask("holders", "-n", "depp", code=2)[1:]
    assert (out, err.startswith("backoff-ctrl: namespace depp does not exist (did you mean dept?): ")) == ("", True)
    assert "did you mean" not in ask("holders", "-n", "unlike-all", code=2)[2]


@pytest.mark.parametrize("words", [("jobs", "list"), ("holders",), ("ceilings",)], ids=" ".join)
def test_without_the_right_to_list_namespaces_none_is_proposed(words: tuple[str, ...], capsys: Output) -> None:
    """The sentence stays."""
    status = {"kind": "Status", "metadata": {}}
    lists = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}

    def answer(request: Seen) -> tuple[int, Any]:
        path = request.path.partition("?")[0]
        if path == "/version":
            return 200, {"gitVersion": "v1.36.0", "major": "1", "minor": "36"}
        if "/namespaces/taem/" in path:
            return 200, lists
        return (404 if path.endswith("/namespaces/taem") else 403), status

    with scripted_server(answer) as script:
        run([*words, "-n", "taem", "--apiserver", script.url])
    assert "namespace taem does not exist: check the name" in capsys.readouterr().err


def test_nothing_is_released_in_a_namespace_that_does_not_exist(ask: Ask) -> None:
    """An error, and what other namespaces are named is left alone."""
    for words in (("in-team",), ("--all",), ("--all", "-n", "team")):
        out, err = ask("jobs", "release", *words, "-n", "taem", code=2)[1:]
        assert (out, "namespace taem does not exist" in err) == ("", True)
    assert ask("jobs", "list")[0] == {"team"}


@pytest.mark.parametrize("name", ["a/b", "..", "a%b", "x" * 300, "a\nb"])
@pytest.mark.parametrize(
    "words", [("jobs", "list"), ("jobs", "release", "--all"), ("holders",), ("ceilings",)], ids=" ".join
)
def test_what_no_namespace_is_called_is_one_line(ask: Ask, words: tuple[str, ...], name: str) -> None:
    assert run([*words, "-n", name, "--kubeconfig", "absent"]) == 2
    code = 0 if name == "a\nb" and words in {("jobs", "list"), ("ceilings",)} else 2
    out, err = ask(*words, "-n", name, code=code)[1:]
    assert err.splitlines()[-1].startswith("backoff-ctrl: ")
    assert "Traceback" not in err
    assert len(out.splitlines()) <= 1


# -- tasks ---------


def test_tasks_of_a_store(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file knows no context either; and an empty list tells where there are tasks."""
    file, elsewhere = tmp_path / "tasks.db", manifest("two")
    elsewhere["metadata"]["namespace"] = "dept"

    async def fill() -> None:
        async with SqliteStore(file) as store:
            await store.create([wish("one"), wish_of(read_task(elsewhere))])

    def listed(*words: str) -> tuple[set[str], str]:
        assert run(["task", "list", "--store", str(file), *words]) == 0
        out, err = capsys.readouterr()
        return {name for name in ("one", "two") if f" {name} " in out}, err

    asyncio.run(fill())
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    assert listed() == ({"one", "two"}, "")
    assert listed("-n", "dept") == ({"two"}, "")
    kubeconfig = in_context(tmp_path, "team", monkeypatch)
    assert listed() == ({"one"}, "")
    assert listed("-A") == ({"one", "two"}, "")
    said = "backoff-ctrl: 2 tasks are in other namespaces (did you mean dept?): -A shows all namespaces\n"
    assert listed("-n", "detp") == (set(), said)
    monkeypatch.delenv("KUBECONFIG")
    assert listed("--kubeconfig", kubeconfig) == ({"one"}, "")


# -- the kubeconfig ---------


def config(context: str | None, **contexts: Any) -> str:
    made = [{"name": name, "context": value} for name, value in contexts.items()]
    return yaml.safe_dump({"current-context": context, "contexts": made})


def test_the_context_is_read_as_kubectl_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several files the first that says something counts; what can't be read says nothing."""
    first, second, odd = tmp_path / "a", tmp_path / "b", tmp_path / "odd"
    first.write_text(config(None, one={"namespace": "first"}))
    second.write_text(config("one", one={"namespace": "second"}, two={"namespace": "other"}, three={}))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{first}:{second}")
    assert context_namespace() == "first"
    assert context_namespace(context="two") == "other"
    assert context_namespace(context="three") is None
    assert context_namespace(context="absent") is None
    assert context_namespace(str(second)) == "second"
    for text in (
        "",
        "[]",
        "contexts: 5",
        "current-context: [x]",
        "\x00",
        "a: b: c",
        "current-context: one\ncontexts: [1, {name: one}]",
    ):
        odd.write_text(text)
        assert context_namespace(str(odd)) is None
