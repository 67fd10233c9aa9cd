"""``backoff-ctrl top``: watch a running gate in the terminal."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

from backoff_ctrl.api.exits import DONE, BadInput

from .instance import Instance, find_place
from .instance_options import instance_options
from .top_look import document, look


@click.command("top")
@click.option("-n", "--namespace", help="Only this namespace; default: all.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.2, max=3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to refresh.",
)
@instance_options
def command(
    namespace: str | None, every: float, gate: str | None, timeout: float, limit: int | None, as_json: bool
) -> int:
    """Watch a running gate: the fullest quotas as bars, who waits and for how long, and each decision as it is made.

    In a bar, full blocks are used, grey blocks are held by creates in flight, dots are free. The list of decisions
    starts with the recent ones that the gate has kept. Keys: tab goes to the next pane, arrows scroll, enter enlarges a
    pane, space freezes, q quits.

    With --json it prints one document instead: ceilings, waiting creates and the last decisions.

    Exit codes: 0 done; 2 wrong usage, or no instance answers.
    """
    instance = Instance(find_place(gate), timeout)
    if as_json:
        click.echo(document(instance, namespace, limit))
        return DONE
    if limit is not None:
        raise BadInput("--limit is for top --json: on the screen, scroll")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput(
            "top draws on a terminal, and there is none here: use --json, or the commands ceilings and waiting"
        )
    if find_spec("textual") is None:
        raise BadInput("top needs the package textual: pip install 'backoff-ctrl[top]'; or use --json")
    first = look(instance, namespace)  # before the screen is taken: an error is a sentence
    from .top_screen import Top  # noqa: PLC0415 - it takes half a second

    Top(instance, namespace, every, first).run()
    return DONE
