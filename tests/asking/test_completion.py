"""Shell completion of ``backoff-ctrl`` and of ``kubectl backoff``: the scripts, and what they ask of the program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from backoff_ctrl.api.main import COMMANDS, SHELLS, VARIABLE, for_kubectl, run

PROGRAMS = Path(sys.executable).parent


def program(name: str, *arguments: str, **variables: str) -> str:
    """Run an installed program; return what it prints."""
    done = subprocess.run(
        [str(PROGRAMS / name), *arguments],
        env={**os.environ, **variables}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script_that_asks_the_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By the variable that the program heeds, in the words of that shell."""
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"{VARIABLE}={shell}_complete" in script
    assert {"bash": "complete -o nosort", "zsh": "#compdef backoff-ctrl", "fish": "complete --no-files"}[
        shell
    ] in script


@pytest.mark.parametrize(
    ("shell", "words", "current", "expected"),
    [
        ("bash", "backoff-ctrl wai", "1", "plain,waiting\n"),
        ("zsh", "backoff-ctrl wai", "1", f"plain\nwaiting\n{COMMANDS['waiting'][1]}\n"),
        ("fish", "backoff-ctrl wai", "wai", f"plain,waiting\t{COMMANDS['waiting'][1]}\n"),
        ("bash", "backoff-ctrl ceilings --quo", "2", "plain,--quota\n"),
        ("bash", "backoff-ctrl completion z", "2", "plain,zsh\n"),
    ],
)
def test_commands_options_and_values_are_completed(shell: str, words: str, current: str, expected: str) -> None:
    """As the scripts ask."""
    variables = {VARIABLE: f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": current}
    assert program("backoff-ctrl", **variables) == expected


def test_a_real_bash_completes_with_the_script() -> None:
    """Sourced as the help says, and asked as bash does at a TAB."""
    session = textwrap.dedent(
        """\
        source <(backoff-ctrl completion bash)
        COMP_WORDS=(backoff-ctrl ce) COMP_CWORD=1
        _backoff_ctrl_completion backoff-ctrl ce backoff-ctrl
        printf '%s\\n' "${COMPREPLY[@]}"
        complete -p backoff-ctrl
        """
    )
    bash = shutil.which("bash")
    assert bash is not None
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "--noprofile", "--norc", "-c", session],
        env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, registered = done.stdout.splitlines()
    assert first == "ceilings"
    assert registered.endswith("-F _backoff_ctrl_completion backoff-ctrl")


def test_completing_a_command_imports_no_command() -> None:
    """A TAB must be quick."""
    script = (
        "import sys; from backoff_ctrl.api.main import for_kubectl; for_kubectl(['']);"
        "print(sorted(name for name in sys.modules if name.startswith('backoff_ctrl.api.commands.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_kubectl_is_told_in_its_own_form() -> None:
    """A line each, what it means behind a tab, and at the end whether files are wanted: cobra's directives."""
    assert for_kubectl(["wai"]) == f"waiting\t{COMMANDS['waiting'][1]}\n:4\n"
    assert for_kubectl(["waiting", "--na"]).startswith("--namespace\t")
    assert for_kubectl(["nonsense", ""]).splitlines()[-1] in (":0", ":4")
    assert len(for_kubectl([]).splitlines()) == len(COMMANDS) + 1
    assert program("kubectl_complete-backoff", "cei") == for_kubectl(["cei"])
