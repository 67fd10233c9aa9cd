"""``--gate`` is a gate that is asked, ``--apiserver`` the API server, in every command; the old names still work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from backoff_ctrl.api.commands.renamed import Renamed
from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.api.main import cli, run
from tests.status.asking import Crowd

OLD = ("--server", "--upstream")
ROOT = Path(__file__).parents[2]
URL = "http://127.0.0.1:9"
ASK_A_GATE = {"ceilings", "waiting", "top", "explain"} | {
    f"act {each}" for each in ("pause", "resume", "forget", "prioritize", "cancel")
}
TASKS = {f"task {each}" for each in ("run", "list", "show", "logs", "abort", "signal", "delete")}
ASK_THE_CLUSTER = {"holders", "jobs list", "jobs release", "operator", "inject", "serve", "doctor", "uninstall"}
EXPECTED = {
    **{path: {"--server": "--gate"} for path in ASK_A_GATE},
    **{path: {"--server": "--gate", "--upstream": "--apiserver"} for path in TASKS},
    **{path: {"--server": "--apiserver"} for path in ASK_THE_CLUSTER},
    "proxy": {"--upstream": "--apiserver"},
}
"""What the old names mean in each command."""


def every_command(group: click.Group = cli, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands below a group that can be called, by what is typed."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from every_command(found, f"{path}{name} ")
        else:
            yield f"{path}{name}", found


COMMANDS = dict(every_command())
CASES = [(path, old, new) for path, names in sorted(EXPECTED.items()) for old, new in names.items()]


def needed(command: click.Command) -> list[str]:
    """Words for all that a command requires."""
    words = []
    for each in command.params:
        value = "1" if each.type is click.INT else "x"
        if each.required:
            words += [value] if isinstance(each, click.Argument) else [each.opts[0], value]
    return words


def parsed(path: str, *words: str) -> dict[str, object]:
    command = COMMANDS[path]
    with command.make_context(path, [*needed(command), *words]) as context:
        return context.params


def test_which_commands_take_them() -> None:
    """No command shows an old name, and all that took one take its new name."""
    shown = {path: {name for each in command.params for name in each.opts} for path, command in COMMANDS.items()}
    assert not {path: names & set(OLD) for path, names in shown.items() if names & set(OLD)}
    renamed = {path for path, command in COMMANDS.items() if any(isinstance(each, Renamed) for each in command.params)}
    assert renamed == EXPECTED.keys()
    assert {path for path, names in shown.items() if "--kubeconfig" in names} - {"demo", "sandbox"} == {
        path for path, names in shown.items() if "--apiserver" in names
    }


@pytest.mark.parametrize(("path", "old", "new"), CASES, ids=lambda each: each.strip("-"))
def test_an_old_name_means_what_it_meant(path: str, old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = parsed(path, new, URL)
    assert capsys.readouterr() == ("", ""), "no hint for the new name"
    assert expected[new.strip("-")] == URL
    for words in ((old, URL), (f"{old}={URL}",), (old, "http://first", old, URL)):
        assert parsed(path, *words) == expected
        assert capsys.readouterr() == ("", f"backoff-ctrl: {old} is the old name of {new}, and still works\n")
    for words in ((old, URL, new, URL), (new, URL, old, URL)):
        with pytest.raises(BadInput, match=f"{old} is the old name of {new}: give only one of them"):
            parsed(path, *words)


@pytest.mark.parametrize("old", OLD)
def test_no_old_name_where_there_was_none(old: str) -> None:
    """An old name is taken by the commands that had it, no others."""
    for path in COMMANDS.keys() - {path for path, names in EXPECTED.items() if old in names} - {"completion"}:
        with pytest.raises(click.UsageError):
            parsed(path, old, URL)


def test_stdout_is_left_alone(crowd: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["waiting", "--gate", crowd.url, "--json"]) == 0
    new = capsys.readouterr()
    assert run(["waiting", "--server", crowd.url, "--json"]) == 0
    old = capsys.readouterr()
    assert new.err == ""
    assert old.err.count("\n") == 1
    assert old.out[:10] == new.out[:10] == '{\n  "as_of'


def test_a_shell_offers_the_new_names_and_hears_no_hints(capfd: pytest.CaptureFixture[str]) -> None:
    def offered(*words: str) -> set[str]:
        *before, last = words
        found = ShellComplete(cli, {}, "backoff-ctrl", "_X").get_completions(list(before), last)
        return {item.value for item in found}

    for path, names in EXPECTED.items():
        for old, new in names.items():
            assert offered(*path.split(), "--") & {old, new} == {new}, path
            assert offered(*path.split(), old, URL, "--") & {old, new, "--help"} == {"--help"}, path  # it is given
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("path", sorted(EXPECTED))
def test_help_knows_only_the_new_names(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert not [old for old in OLD if re.search(rf"{old}\b(?!-)", re.sub(r"kubectl\s+--server", "", shown))]
    assert all(new in shown for new in EXPECTED[path].values())


PAGES = [
    *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("helm/**/*.*"), *ROOT.glob("dashboards/**/*.*"),
    *ROOT.glob("api/**/*.py"), *ROOT.glob("k8s/**/*.py"), *ROOT.glob("benchmarks/*.py"), *ROOT.glob("tools/**/*.py"),
]  # fmt: skip

KUBE_RBAC_PROXY = "- --upstream=http://127.0.0.1:9095/"


def test_pages_charts_and_code_use_the_new_names() -> None:
    """Beside other programs, which have a ``--server`` or an ``--upstream`` of their own, and the changelog."""
    found = []
    for file in PAGES:
        if file.name == "CHANGELOG.md" or not file.is_file():
            continue
        lines = file.read_text("utf-8").splitlines()
        old = [line for line in lines if re.search(r"--(server|upstream)\b(?!-)", line)]
        known = ("kubectl", "old=", KUBE_RBAC_PROXY)
        found += [f"{file.relative_to(ROOT)}: {line}" for line in old if not any(each in line for each in known)]
    assert not found
