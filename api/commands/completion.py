"""``backoff-ctrl completion``: the script that makes a shell complete our commands and options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import get_completion_class

if TYPE_CHECKING:
    from collections.abc import Sequence

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_BACKOFF_CTRL_COMPLETE"
"""The environment variable by which the script asks the program for completions, as click defines it."""
_NO_FILES: Final = ":4"
"""Makes kubectl complete no file names: ShellCompDirectiveNoFileComp of cobra."""
_FILES: Final = ":0"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of a shell. Load it when your shell starts:

    \b
    bash: echo 'source <(backoff-ctrl completion bash)' >> ~/.bashrc
    zsh:  echo 'source <(backoff-ctrl completion zsh)' >> ~/.zshrc    (after compinit)
    fish: backoff-ctrl completion fish > ~/.config/fish/completions/backoff-ctrl.fish

    "kubectl backoff" is completed by kubectl's own completion, without this.
    """
    from backoff_ctrl.api.main import PROGRAM, cli  # noqa: PLC0415 - it imports this module

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, PROGRAM, VARIABLE)
    click.echo(script.source_template % script.source_vars())  # not source(): it runs bash to get its version


def for_kubectl(words: Sequence[str]) -> str:
    """Return the completions of ``kubectl backoff WORDS``, the last word unfinished, as kubectl reads them."""
    from click.shell_completion import ShellComplete  # noqa: PLC0415

    from backoff_ctrl.api.main import KUBECTL, cli  # noqa: PLC0415

    *before, unfinished = words or [""]
    found = ShellComplete(cli, {}, KUBECTL, VARIABLE).get_completions(list(before), unfinished)
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in found if item.type == "plain"]
    files = any(item.type != "plain" for item in found)
    return "\n".join([*lines, _FILES if files else _NO_FILES]) + "\n"
