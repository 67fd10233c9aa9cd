"""``backoff-ctrl top``: watch a running gate in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import click

from backoff_ctrl.api.exits import DONE, BadInput
from backoff_ctrl.k8s.status.client import Instance, find_instance

from .instance_options import instance_options
from .namespaces import at_a_gate, namespace_options
from .output import DOCUMENT, output_options, written
from .top_look import JobsSeen, document, look

if TYPE_CHECKING:
    from .top_look import Jobs

F = TypeVar("F", bound=Callable[..., object])


def _in_cluster(command: F) -> F:
    """Add ``--apiserver``, ``--kubeconfig`` and ``--context``: what waits suspended in a cluster is shown, too."""
    for option in (
        click.option("--context", metavar="NAME", help="Show the Jobs that wait in this context's cluster, too."),
        click.option("--kubeconfig", metavar="FILE", help="Show the Jobs that wait in this kubeconfig's cluster, too."),
        click.option("--apiserver", metavar="URL", help="Show the Jobs that wait at this API server, too."),
    ):
        command = option(command)
    return command


@click.command("top")
@namespace_options(at_a_gate=True)
@click.option(
    "--every",
    type=click.FloatRange(min=0.2, max=3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to refresh.",
)
@_in_cluster
@instance_options
@output_options(*DOCUMENT)
def command(  # noqa: PLR0913, PLR0917 - each is an option
    namespace: str | None,
    everywhere: bool,
    every: float,
    gate: str | None,
    timeout: float,
    limit: int | None,
    output: str | None,
    apiserver: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Watch a running gate: the fullest quotas as bars, who waits and for how long, and each decision as it is made.

    In a bar, full blocks are used (green, yellow from 90%, red when full), grey blocks are held by creates in flight or
    reserved for gangs, dots are left. The list of decisions starts with the recent ones that the gate has kept. Keys:
    tab goes to the next pane, arrows scroll, enter enlarges a pane, space freezes, q quits.

    A gate of the operator also shows the Jobs that wait in its line. With --apiserver, --kubeconfig or --context all
    are shown that wait suspended in that cluster, as by `jobs list`, whichever gate is asked.

    With --json it prints one document instead: ceilings, waiting creates, the last decisions, and such Jobs.

    Exit codes: 0 done; 2 wrong usage, or no instance answers.
    """
    namespace = at_a_gate(namespace, everywhere=everywhere, kubeconfig=kubeconfig, context=context)
    jobs = None
    if any(each is not None for each in (apiserver, kubeconfig, context)):
        from .jobs import place_of  # noqa: PLC0415 - an event loop

        jobs = JobsSeen(place_of(apiserver, kubeconfig, context), namespace)
    instance = Instance(find_instance(gate), timeout)
    if output:
        click.echo(written(document(instance, namespace, limit, jobs), output))
        return DONE
    if limit is not None:
        raise BadInput("--limit is for top -o json: on the screen, scroll")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput("top needs a terminal to draw on: use --json, or the commands ceilings and waiting")
    if find_spec("textual") is None:
        raise BadInput("top needs the package textual: pip install 'backoff-ctrl[top]'; or use --json")
    suspended: Jobs = jobs or tuple
    first = look(instance, namespace, suspended)  # before the screen is taken: an error is a sentence
    from .top_screen import Top  # noqa: PLC0415 - it takes half a second

    Top(instance, namespace, every, first, suspended).run()
    return DONE
