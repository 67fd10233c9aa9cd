"""``backoff-ctrl waiting``: who waits at a running gate, for what, and for how long yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from backoff_ctrl.api.commands.amounts import span
from backoff_ctrl.api.exits import DONE, BadInput
from backoff_ctrl.k8s.answers.printing import printable
from backoff_ctrl.k8s.status.shapes.documents import Waiting

from .asking import Instance
from .options import cluster_instead, document, instance_options, table
from .place import find_place
from .reading import read_time

if TYPE_CHECKING:
    from datetime import datetime

    from .asking import Listed

HEAD: Final = ("namespace", "name", "waited", "place", "reason", "estimate", "blocked by")
NUMBERS: Final = ("waited", "place")
BLOCKERS: Final = 3
"""Blockers shown of one create; ``--json`` has all."""


@click.command("waiting")
@click.option("-n", "--namespace", help="Only this namespace; default: all.")
@instance_options
@cluster_instead
def command(
    namespace: str | None,
    server: str | None,
    timeout: float,
    limit: int | None,
    as_json: bool,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Show the creates that wait at a running gate, in the order of their namespace's line.

    The program that holds the gate serves them where BACKOFF_CTRL_STATUS=127.0.0.1:9095 is set. The estimate says when
    a create is likely to be admitted; "-" where there is no basis for one.

    Exit codes: 0 answered, also if nothing waits; 2 wrong use, or no instance answers.
    """
    if kubeconfig is not None or context is not None:
        raise BadInput(
            "who waits is known by the gate alone, the cluster has never seen those creates: ask the gate with "
            "--server URL (kubectl port-forward reaches one in a pod), without --kubeconfig and --context"
        )
    instance = Instance(find_place(server), timeout)
    found: Listed[Waiting] = instance.everything("/v1/waiting", {"namespace": namespace}, Waiting)
    try:
        rows = [] if as_json else [_row(each, found.at) for each in found.items]
    except ValueError as error:  # a time that is none
        raise instance.not_ours(str(error)) from None
    if as_json:
        click.echo(document(found.as_of, found.documents, limit, found.note))
    elif rows:
        click.echo(table(HEAD, rows, limit, right=NUMBERS))
    elif found.note:
        click.echo(printable(f"Who waits is not known: {found.note}."))
    else:
        click.echo(printable(f"Nothing waits in namespace {namespace}." if namespace else "Nothing waits."))
    return DONE


def _row(waiting: Waiting, at: datetime) -> tuple[str, ...]:
    return (
        waiting.namespace,
        f"{waiting.kind}/{waiting.name}",
        span((at - read_time(waiting.since)).total_seconds()),
        "-" if waiting.place is None else str(waiting.place),
        waiting.reason,
        estimate(waiting.estimated_at, at),
        blocked_by(waiting),
    )


def estimate(text: str | None, at: datetime) -> str:
    """Say when it is likely to be admitted; "-" without an estimate. Raises ``ValueError``."""
    if text is None:
        return "-"
    left = (read_time(text) - at).total_seconds()
    return f"in {span(left)}" if left >= 1 else "any moment"


def blocked_by(waiting: Waiting) -> str:
    """Return each quota's resource that is in the way, with what is asked of it and what is left."""
    words = [f"{b.quota} {b.resource}: asked {b.asked}, left {b.left}" for b in waiting.blockers[:BLOCKERS]]
    if len(waiting.blockers) > BLOCKERS:
        words.append(f"and {len(waiting.blockers) - BLOCKERS} more")
    return "; ".join(words)
