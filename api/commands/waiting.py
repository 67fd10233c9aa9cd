"""``backoff-ctrl waiting``: who waits at a running gate, for what, and how much longer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from backoff_ctrl.api.exits import DONE, BadInput
from backoff_ctrl.k8s.answers.printing import printable
from backoff_ctrl.k8s.creates.wait import reason_words
from backoff_ctrl.k8s.status.shapes import Waiting

from .amounts import rounded, span
from .instance import Instance, Listed, find_place, read_time
from .instance_options import cluster_instead, document, instance_options, table

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
    gate: str | None,
    timeout: float,
    limit: int | None,
    as_json: bool,
    apiserver: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Show the creates that wait at a running gate, in the order of each namespace's line.

    The program that contains the gate serves them if BACKOFF_CTRL_STATUS=127.0.0.1:9095 is set. The estimate says when
    a create is likely to be admitted; for the first few in line, the time within which it is (95 %); "-": not known.

    Exit codes: 0 answered, also if nothing waits; 2 wrong usage, or no instance answers.
    """
    if any(each is not None for each in (apiserver, kubeconfig, context)):
        raise BadInput(
            "only a gate knows who waits, since the cluster has not seen those creates yet: ask the gate with "
            "--gate URL (kubectl port-forward reaches one in a pod), without --apiserver, --kubeconfig and --context"
        )
    instance = Instance(find_place(gate), timeout)
    found: Listed[Waiting] = instance.everything("/v1/waiting", {"namespace": namespace}, Waiting)
    try:
        several = len({each.gate for each in found.items}) > 1
        rows = [] if as_json else [cells(each, found.at, HEAD, several_gates=several) for each in found.items]
    except ValueError as error:  # an invalid time
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


def cells(waiting: Waiting, at: datetime, columns: Sequence[str], *, several_gates: bool) -> tuple[str, ...]:
    """Return these columns of ``HEAD`` of one waiting create, safe to print. Raises ``ValueError``."""
    place = "-" if waiting.place is None else str(waiting.place)  # none: it is not in line
    found = {
        "namespace": waiting.namespace,
        "name": f"{waiting.kind}/{waiting.name}",
        "waited": span((at - read_time(waiting.since)).total_seconds()),
        "place": f"{place} at {waiting.gate}" if several_gates else place,
        "reason": reason_words(waiting.reason),
        "estimate": _estimate(waiting, at),
        "blocked by": _blocked_by(waiting),
    }
    return tuple(printable(found[name]) for name in columns)


def _estimate(waiting: Waiting, at: datetime) -> str:
    """Return when it is likely to be admitted, or by when; "-" without an estimate. Raises ``ValueError``."""
    found, word = waiting.estimated_at, "in"
    if found is None:
        found, word = waiting.estimated_by, "within"
    if found is None:
        return "-"
    left = (read_time(found) - at).total_seconds()
    return f"{word} {span(left)}" if left >= 1 else "any moment"


def _blocked_by(waiting: Waiting) -> str:
    words = [
        f"{b.quota} {b.resource}: asked {rounded(b.asked, b.resource, b.limited)}, "
        f"left {rounded(b.left, b.resource, b.limited)}"
        for b in waiting.blockers[:BLOCKERS]
    ]
    if len(waiting.blockers) > BLOCKERS:
        words.append(f"and {len(waiting.blockers) - BLOCKERS} more")
    return "; ".join(words)
