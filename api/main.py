"""The command line: registers the commands, imports each only when it is called, and returns its exit code.

``completion``, which asks the commands for their options, is here, too.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from backoff_ctrl.ending import stopped
from backoff_ctrl.engine.errors import BackoffError

from .exits import DONE, FAILED, BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM: Final = "backoff-ctrl"
KUBECTL: Final = "kubectl backoff"
"""The name of the same program as a plugin of kubectl."""
SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_BACKOFF_CTRL_COMPLETE"
"""The environment variable by which the script asks the program for completions, as click defines it."""
_NO_FILES: Final = ":4"
"""Makes kubectl complete no file names: ShellCompDirectiveNoFileComp of cobra."""
_FILES: Final = ":0"
_A: Final = "backoff_ctrl.api."
# heading: name: where the command is, and its line in --help, so that help imports no command
SECTIONS: Final = {
    "Look at quotas and at what waits, and act": {
        "waiting": (f"{_A}commands.waiting:command", "Ask a running gate who waits, and for what."),
        "ceilings": (f"{_A}commands.ceilings:command", "Ask a running gate how full the quotas are."),
        "top": (f"{_A}commands.top:command", "Watch a running gate: quotas, who waits, decisions."),
        "holders": (f"{_A}commands.holders:command", "Show who holds each quota, and what would free it."),
        "jobs": (f"{_A}commands.jobs:command", "Show which Jobs wait suspended, or let them go."),
        "act": (f"{_A}commands.act:command", "Pause a namespace, move or cancel what waits."),
    },
    "Run the gate, the operator and tasks": {
        "proxy": (f"{_A}commands.proxy:command", "Run the sidecar, between creators and the API server."),
        "inject": (f"{_A}commands.inject:command", "Give pods the sidecar: the admission webhook."),
        "operator": (f"{_A}operator.command:command", "Let suspended Jobs in when they fit, and carry out Tasks."),
        "serve": (f"{_A}commands.serve:command", "Serve the cluster's page: status API, live page, metrics."),
        "task": (
            f"{_A}commands.tasks.command:command",
            "Run tasks: each create waits for quota, failures are retried.",
        ),
        "uninstall": (f"{_A}operator.uninstall:command", "Let everything go that waits for the operator."),
    },
    "Check manifests, answers and the installation": {
        "explain": (f"{_A}commands.explain:command", "Say what would happen to a manifest that is created now."),
        "footprint": (f"{_A}commands.footprint:command", "Show what a manifest will be charged."),
        "classify": (f"{_A}commands.classify:command", "Explain an answer of the API server."),
        "phase": (f"{_A}commands.phase:command", "Show an object's phase, as a plugin reads it."),
        "doctor": (f"{_A}commands.doctor:command", "Check the installation, the cluster and your rights."),
    },
    "Try it, without a cluster": {
        "sandbox": (f"{_A}commands.sandbox:command", "Run an embedded API server with quota admission."),
        "demo": (f"{_A}commands.demo.command:command", "Compare plain retries with the gate on a recorded workload."),
        "completion": (f"{_A}main:completion", "Print the completion script of a shell."),
    },
}
COMMANDS: Final = {name: each for section in SECTIONS.values() for name, each in section.items()}


class LazyGroup(click.Group):
    """A command group that imports a command's module only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of ``--help``."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, None for an unknown name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{name} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called. An unknown one is refused with the known one that is meant."""
        from backoff_ctrl.k8s.kube.answers.spelling import near  # noqa: PLC0415 - needed only here

        name = args[0]
        if name in ("help", "version"):
            raise BadInput(f"there is no command {name}: {ctx.command_path} --{name} shows it")
        if name not in COMMANDS and not name.startswith("-") and (meant := near(name, COMMANDS)):
            raise BadInput(f"there is no command {name}: did you mean {ctx.command_path} {meant}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command. An error of the rooms below it ends it as bad input does."""
        try:
            return super().invoke(ctx)
        except BackoffError as error:
            raise BadInput(str(error)) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing any, and the options of the group."""
        names = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        width = max(map(len, COMMANDS))
        for heading, section in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), line) for name, (_, line) in section.items()])


def _show_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    del param
    if not asked:
        return
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # slow to import, needed only here

    try:
        click.echo(f"backoff-ctrl {version('backoff-ctrl')}")
    except PackageNotFoundError:
        click.echo("backoff-ctrl (version unknown: the package is not installed)")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Admission and back-off control for Kubernetes ResourceQuota: creates wait their turn instead of failing.

    Exit codes: 0 done, 1 what was asked for failed, 2 wrong usage or bad input.
    """
    from backoff_ctrl.k8s.gate.settings import unlogged_unknown  # noqa: PLC0415 - likewise
    from backoff_ctrl.k8s.kube.answers.printing import printable  # noqa: PLC0415 - help and completion need neither

    for sentence in unlogged_unknown():
        click.echo(f"backoff-ctrl: {printable(sentence)}", err=True)


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell. Load it when your shell starts:

    \b
    bash: echo 'source <(backoff-ctrl completion bash)' >> ~/.bashrc
    zsh:  echo 'source <(backoff-ctrl completion zsh)' >> ~/.zshrc    (after compinit)
    fish: backoff-ctrl completion fish > ~/.config/fish/completions/backoff-ctrl.fish

    "kubectl backoff" is completed by kubectl's own completion, without this.
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, PROGRAM, VARIABLE)
    click.echo(script.source_template % script.source_vars())  # not source(): it runs bash to get its version


def for_kubectl(words: Sequence[str]) -> str:
    """Return the completions of ``kubectl backoff WORDS``, the last word unfinished, as kubectl reads them."""
    *before, unfinished = words or [""]
    found = ShellComplete(cli, {}, KUBECTL, VARIABLE).get_completions(list(before), unfinished)
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in found if item.type == "plain"]
    files = any(item.type != "plain" for item in found)
    return "\n".join([*lines, _FILES if files else _NO_FILES]) + "\n"


def run(arguments: Sequence[str], program: str = PROGRAM) -> int:
    """Run one command line and return its exit code. Expected errors are printed as one line, not as a traceback.

    ``program`` is its name in help texts.
    """
    try:
        code = cli.main(args=list(arguments), prog_name=program, standalone_mode=False)
        if sys.stdout is not None:  # the caller may have closed it
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return stopped(arguments)
    except BrokenPipeError:  # the reader closed the pipe, so the interpreter must not flush at exit
        _silence_stdout()
        return FAILED
    except OSError as error:  # commands handle their own errors, so this is stdout: a full disk
        click.echo(f"backoff-ctrl: cannot write the output: {error.strerror or error}", err=True)
        _silence_stdout()
        return FAILED
    return code if isinstance(code, int) else DONE


def _silence_stdout() -> None:
    """Redirect stdout to the null device, so that the interpreter's flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(program: str = PROGRAM) -> None:
    """Run this process's command line and exit with its code."""
    sys.exit(run(sys.argv[1:], program))
