"""``backoff-ctrl waiting``: who waits at a running gate, for what, and how much longer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from backoff_ctrl.api.exits import DONE, BadInput
from backoff_ctrl.k8s.gate.creates.wait import reason_words
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.status.amounts import rounded, span
from backoff_ctrl.k8s.status.client import Instance, Listed, find_instance, read_time
from backoff_ctrl.k8s.status.shapes import Waiting

from .instance_options import cluster_instead, document, instance_options, table
from .namespaces import at_a_gate, hint_elsewhere, namespace_options
from .output import DOCUMENT, LIST, names, output_options, written
from .watching import WATCH, Row, Watched
from .watching import watch as follow

HEAD: Final = ("namespace", "name", "waited", "place", "reason", "estimate", "blocked by")
WIDE: Final = (*HEAD[:-1], "priority", "owner", "gang", "gate", "id", HEAD[-1])
NUMBERS: Final = ("waited", "place", "priority")
AGES: Final = ("waited", "estimate")
BLOCKERS: Final = 3
"""Blockers shown of one create; ``-o wide`` and ``-o json`` have all."""
EVERY: Final = 2.0
"""Seconds between two looks of ``--watch``."""


@click.command("waiting")
@namespace_options(at_a_gate=True)
@WATCH
@instance_options
@output_options(*LIST)
@cluster_instead
def command(  # noqa: PLR0913, PLR0917 - each is an option
    namespace: str | None,
    everywhere: bool,
    watch: bool,
    gate: str | None,
    timeout: float,
    limit: int | None,
    output: str | None,
    apiserver: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Show the creates that wait at a running gate, in the order of each namespace's line.

    The program that contains the gate serves them if BACKOFF_CTRL_STATUS=127.0.0.1:9095 is set. The estimate says when
    a create is likely to be admitted; for the first few in line, the time within which it is (95 %); "-": not known.

    Exit codes: 0 answered, also with an empty line; 2 wrong usage, or no instance answers.
    """
    if any(each is not None for each in (apiserver, kubeconfig, context)):
        raise BadInput(
            "only a gate knows who waits, since the cluster has not seen those creates yet: ask the gate with "
            "--gate URL (kubectl port-forward reaches one in a pod), without --apiserver, --kubeconfig and --context"
        )
    namespace = at_a_gate(namespace, everywhere=everywhere)
    instance = Instance(find_instance(gate), timeout)
    columns = WIDE if output == "wide" else HEAD
    if watch:
        if limit is not None:
            raise BadInput("--limit is for a list: --watch shows all that comes, changes or goes")
        if namespace and not _listed(instance, namespace).items:
            hint_elsewhere(instance, namespace)
        shown = Watched(columns, NUMBERS, AGES, output)
        return follow(shown, lambda: _rows(_listed(instance, namespace), instance, columns), EVERY, "waits no more")
    found = _listed(instance, namespace)
    if output in DOCUMENT:
        click.echo(written(document(found.as_of, found.documents, limit, found.note), output))
        return DONE
    rows = _rows(found, instance, columns)
    if output == "name":
        names(row.name for row in rows[:limit])
    elif rows:
        click.echo(table(columns, [row.cells for row in rows], limit, right=NUMBERS, whole=output == "wide"))
    elif found.note:
        click.echo(printable(f"Who waits is not known: {found.note}."))
    else:
        click.echo(printable(f"Nothing waits in namespace {namespace}." if namespace else "Nothing waits."))
        if namespace:
            hint_elsewhere(instance, namespace)
    return DONE


def _listed(instance: Instance, namespace: str | None) -> Listed[Waiting]:
    return instance.everything("/v1/waiting", {"namespace": namespace}, Waiting)


def _rows(found: Listed[Waiting], instance: Instance, columns: Sequence[str]) -> list[Row]:
    """Return the rows of the table. Raises ``BadInput``."""
    several = len({each.gate for each in found.items}) > 1
    try:
        return [
            Row(each.id, name_of(each), cells(each, found.at, columns, several_gates=several), document)
            for each, document in zip(found.items, found.documents, strict=True)
        ]
    except ValueError as error:  # an invalid time
        raise instance.not_ours(str(error)) from None


def name_of(waiting: Waiting) -> str:
    """Return how a create is called in lists, and in the arguments of other commands: ``pods/train``."""
    return f"{waiting.kind}/{waiting.name}"


def cells(waiting: Waiting, at: datetime, columns: Sequence[str], *, several_gates: bool) -> tuple[str, ...]:
    """Return these columns of ``WIDE`` of one waiting create, safe to print. Raises ``ValueError``."""
    place = "-" if waiting.place is None else str(waiting.place)  # None: it is not in line
    found = {
        "namespace": waiting.namespace,
        "name": name_of(waiting),
        "waited": span((at - read_time(waiting.since)).total_seconds()),
        "place": f"{place} at {waiting.gate}" if several_gates and "gate" not in columns else place,
        "reason": reason_words(waiting.reason),
        "estimate": _estimate(waiting, at),
        "priority": str(waiting.priority),
        "owner": "" if waiting.owner is None else f"{waiting.owner.kind}/{waiting.owner.name}",
        "gang": waiting.gang or "",
        "gate": waiting.gate,
        "id": waiting.id,
        "blocked by": _blocked_by(waiting, len(waiting.blockers) if "id" in columns else BLOCKERS),
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


def _blocked_by(waiting: Waiting, most: int) -> str:
    words = [
        f"{b.quota} {b.resource}: asked {rounded(b.asked, b.resource, b.limited)}, "
        f"left {rounded(b.left, b.resource, b.limited)}"
        for b in waiting.blockers[:most]
    ]
    if len(waiting.blockers) > most:
        words.append(f"and {len(waiting.blockers) - most} more")
    return "; ".join(words)
