"""The command line: wires the commands, loads each only when it is called, and turns every end into a code."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from backoff_ctrl.engine.errors import BackoffError

from .exits import BAD_INPUT, DONE, FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

# name: where its command lives, and its line in --help (so that help loads none of them)
COMMANDS: Final = {
    "classify": ("backoff_ctrl.api.commands.classify:command", "Say what an answer of the API server means."),
    "footprint": ("backoff_ctrl.api.commands.footprint:command", "Say what a manifest will be charged."),
    "demo": ("backoff_ctrl.api.commands.demo:command", "Compare plain retries with the gate on a real workload."),
    "sandbox": ("backoff_ctrl.api.commands.sandbox:command", "Serve an embedded API server with quota admission."),
    "holders": ("backoff_ctrl.api.commands.holders:command", "Say who holds each quota, and what would free it."),
    "doctor": ("backoff_ctrl.api.commands.doctor:command", "Check what this machine and cluster allow."),
}


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command; None where there is none of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}:{name} is not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without loading them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _show_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    """Print the version that is installed, and end."""
    del param
    if not asked:
        return
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # other commands do without

    try:
        click.echo(f"backoff-ctrl {version('backoff-ctrl')}")
    except PackageNotFoundError:
        click.echo("backoff-ctrl, from a checkout that is not installed")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def cli() -> None:
    """Admission and back-off in front of Kubernetes ResourceQuota: creates wait their turn instead of failing.

    Exit codes: 0 done, 1 the thing asked about failed, 2 wrong use or bad input.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every foreseen end is a sentence, not a traceback."""
    try:
        code = cli.main(args=list(arguments), prog_name="backoff-ctrl", standalone_mode=False)
        if sys.stdout is not None:  # a caller may have closed it
            sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BackoffError as error:
        click.echo(f"backoff-ctrl: {error}", err=True)
        return BAD_INPUT
    except (click.Abort, KeyboardInterrupt):
        click.echo("backoff-ctrl: stopped", err=True)
        return FAILED
    except BrokenPipeError:  # the reader has seen enough; the interpreter must not write at exit either
        _silence_stdout()
        return FAILED
    except OSError as error:  # commands turn what they foresee into a sentence: this is a full disk under stdout
        click.echo(f"backoff-ctrl: the answer can't be written: {error.strerror or error}", err=True)
        _silence_stdout()
        return FAILED
    return code if isinstance(code, int) else DONE


def _silence_stdout() -> None:
    """Let what is still buffered go nowhere, so that the interpreter does not fail at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
