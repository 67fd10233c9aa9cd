"""The options of the commands that ask an instance, and the form of their tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

import click

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.status.amounts import EMPTY, aligned

from .cluster_options import check_cluster_options
from .renamed import Renamed

F = TypeVar("F", bound=Callable[..., object])
ROWS: Final = 1000
"""Rows of a table, unless ``--limit`` says otherwise."""

TIMEOUT: Final = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for each answer.",
)
GATE: Final = click.option(
    "--gate",
    cls=Renamed,
    old="--server",
    metavar="URL",
    help="The gate, or `serve`, to ask; default: the address in $BACKOFF_CTRL_STATUS, else http://127.0.0.1:9095.",
)
_LIMIT: Final = click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Show at most N; default: {ROWS} in the table, all in other forms.",
)


def instance_options(command: F) -> F:
    """Add ``--gate``, ``--timeout`` and ``--limit``."""
    return GATE(TIMEOUT(_LIMIT(command)))


def cluster_instead(command: F) -> F:
    """Add ``--apiserver``, ``--kubeconfig`` and ``--context``: ask the cluster itself instead of a gate."""
    for option in (
        click.option("--context", help="Ask the cluster itself: this context of the kubeconfig."),
        click.option(
            "--kubeconfig", metavar="FILE", help="Ask the cluster itself, with this kubeconfig, instead of a gate."
        ),
        click.option(
            "--apiserver",
            metavar="URL",
            help="Ask the cluster itself: the URL of an API server that needs no credentials, such as the sandbox.",
        ),
    ):
        command = option(command)
    return command


def asks_cluster(gate: str | None, apiserver: str | None, kubeconfig: str | None, context: str | None) -> bool:
    """Return whether the options choose the cluster itself. Raises ``BadInput`` if they choose two places."""
    check_cluster_options(apiserver, kubeconfig, context)
    cluster = any(each is not None for each in (apiserver, kubeconfig, context))
    if cluster and gate is not None:
        raise BadInput(
            "--gate asks a gate, and --apiserver, --kubeconfig and --context ask the cluster: give only one of them"
        )
    return cluster


def document(as_of: str, documents: Sequence[Any], limit: int | None, note: str | None = None) -> dict[str, Any]:
    """Return the document to print: the instance's items, the number of further ones, and its ``note``, if any."""
    items = documents[:limit]
    return {"as_of": as_of, "items": items, "more": len(documents) - len(items), **({"note": note} if note else {})}


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    limit: int | None,
    *,
    right: Collection[str],
    whole: bool = False,
) -> str:
    """Lay out a table whose columns named in ``right`` are right-aligned. Control characters become ``?``.

    Columns without a word are left out, except from a ``whole`` table. A last line says how many rows the limit leaves
    out.
    """
    limit = limit or ROWS
    shown = [[printable(cell) for cell in row] for row in rows[:limit]]
    kept = [n for n in range(len(head)) if whole or any(row[n] not in EMPTY for row in shown)]
    lines = [[row[n] for n in kept] for row in (head, *shown)]
    text = aligned(lines, [place for place, n in enumerate(kept) if head[n] in right])
    left = len(rows) - limit
    return f"{text}\n{left} more: show them with --limit {len(rows)}, or all with -o json" if left > 0 else text
