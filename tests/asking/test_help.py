"""The help of ``backoff-ctrl``: commands in sections, each on one line of a terminal of 80 columns."""

from __future__ import annotations

import click
import pytest

from backoff_ctrl.api.main import COMMANDS, SECTIONS, cli, run
from tests.asking.test_names_of_options import COMMANDS as EVERY

GROUPS = sorted({path.rpartition(" ")[0] for path in EVERY})


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_each_command_is_in_one_section() -> None:
    """Look, run, check, try."""
    assert [heading.split()[0] for heading in SECTIONS] == ["Look", "Run", "Check", "Try"]
    assert sum(map(len, SECTIONS.values())) == len(COMMANDS)
    assert COMMANDS.keys() == {path.split()[0] for path in EVERY}


@pytest.mark.parametrize("group", GROUPS)
def test_each_command_is_one_line(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*group.split(), "--help"]) == 0
    _, _, shown = capsys.readouterr().out.partition("Commands:\n" if group else f"{next(iter(SECTIONS))}:\n")
    lines = shown.splitlines()
    found = cli if not group else cli.get_command(click.Context(cli), group)
    assert isinstance(found, click.Group)
    for name in found.list_commands(click.Context(found)):
        (line,) = [each for each in lines if each.startswith(f"  {name} ")]
        assert len(line) <= 80
        assert line.endswith(".")
        assert not line.endswith("..."), line
        following = lines[lines.index(line) + 1 :]
        assert not following or not following[0].startswith("    "), line


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_line_of_a_command_is_one_short_sentence(name: str) -> None:
    line = COMMANDS[name][1]
    assert (line[-1], line.count(". "), len(line) <= 64) == (".", 0, True)
