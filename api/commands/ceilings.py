"""``backoff-ctrl ceilings``: the quotas as a running gate or the cluster knows them, the fullest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Final

import click

from backoff_ctrl.api.exits import DONE
from backoff_ctrl.engine.facts.quantities import parse_quantity, taken_share
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.status.amounts import ago, percent, rounded, span
from backoff_ctrl.k8s.status.client import Instance, Listed, find_instance, read_time
from backoff_ctrl.k8s.status.shapes import Ceiling

from .instance_options import asks_cluster, cluster_instead, document, instance_options, table
from .namespaces import at_a_gate, check_namespaces, hint, hint_elsewhere, namespace_options
from .naming import QUOTA, plain
from .output import DOCUMENT, LIST, names, output_options, written

HEAD: Final = (
    "namespace", "quota", "resource", "used", "held", "reserved", "limited", "left", "full", "trend", "source",
    "heard", "waits for",
)  # fmt: skip
GATE: Final = "The gate knows"
CLUSTER: Final = "The cluster has"
NUMBERS: Final = ("used", "held", "reserved", "limited", "left", "full", "trend", "heard")


@click.command("ceilings")
@namespace_options(at_a_gate=True)
@click.option("--quota", metavar="NAME", help="Only the quotas of this name.")
@click.option("--resource", metavar="NAME", help="Only this resource, such as requests.cpu.")
@instance_options
@output_options(*LIST)
@cluster_instead
def command(  # noqa: PLR0913, PLR0917 - each is an option
    gate: str | None,
    timeout: float,
    limit: int | None,
    output: str | None,
    apiserver: str | None,
    kubeconfig: str | None,
    context: str | None,
    everywhere: bool,
    **chosen: str | None,
) -> int:
    """Show the ceilings that a running gate knows, the fullest first.

    The program that contains the gate serves them if BACKOFF_CTRL_STATUS=127.0.0.1:9095 is set. Held is the amount for
    creates in flight, reserved what admitted gangs may still create, left what remains of the limit after all three. A
    ceiling is observed in its ResourceQuota or learned from a refusal; heard says how long ago. Trend is the change of
    used over the last minutes. The last column says what creates wait for if the quota is full.

    With --apiserver, --kubeconfig or --context the cluster's ResourceQuotas are read instead, those of the context's
    namespace by default, and no gate is needed. Only a gate knows held amounts and waiting creates.

    Exit codes: 0 answered; 2 wrong usage, no instance answers, or the cluster can't be used.
    """
    chosen["quota"] = chosen["quota"] and plain(chosen["quota"], QUOTA)
    if asks_cluster(gate, apiserver, kubeconfig, context):
        from .cluster_ceilings import find_cluster, read_ceilings  # noqa: PLC0415 - loads the client: 0.25 s

        check_namespaces(chosen["namespace"], everywhere=everywhere)
        place = find_cluster(apiserver, kubeconfig, context, chosen["namespace"] or None)
        chosen["namespace"] = None if everywhere else place.namespace
        read = read_ceilings(place, chosen["namespace"], hint)
        _show(_of_cluster(*read, chosen), limit, output, chosen, CLUSTER)
        return DONE
    namespace = chosen["namespace"] = at_a_gate(chosen["namespace"], everywhere=everywhere)
    instance = Instance(find_instance(gate), timeout)
    listed: Listed[Ceiling] = instance.everything("/v1/ceilings", chosen, Ceiling)
    try:
        _show(listed, limit, output, chosen, GATE)
    except ValueError as error:  # an invalid amount or time
        raise instance.not_ours(str(error)) from None
    if namespace and not listed.items and output not in (*DOCUMENT, "name"):
        hint_elsewhere(instance, namespace)
    return DONE


def _of_cluster(as_of: str, every: Sequence[Ceiling], chosen: Mapping[str, str | None]) -> Listed[Ceiling]:
    found = [each for each in every if all(chosen[name] in (None, getattr(each, name)) for name in chosen)]
    return Listed(as_of, read_time(as_of), found, [asdict(each) for each in found])


def _show(
    listed: Listed[Ceiling], limit: int | None, output: str | None, chosen: Mapping[str, str | None], who: str
) -> None:
    """Print them; without any, a sentence that begins with ``who``. Raises ``ValueError``."""
    order = fullest_first(listed.items)
    if output in DOCUMENT:
        documents = [listed.documents[number] for number in order]
        click.echo(written(document(listed.as_of, documents, limit, listed.note), output))
    elif output == "name":
        names(f"resourcequota/{listed.items[number].quota}" for number in order[:limit])
    elif order:
        rows = [_row(listed.items[number], listed.at) for number in order]
        click.echo(table(HEAD, rows, limit, right=NUMBERS, whole=output == "wide"))
    else:
        click.echo(_none({name: value for name, value in chosen.items() if value}, who))


def fullness(ceiling: Ceiling) -> float:
    """Return the share that is taken. Raises ``ValueError`` for an invalid amount."""
    asked = ceiling.block is not None or bool(ceiling.waiting)
    return taken_share(_taken(ceiling), parse_quantity(ceiling.limited), asked=asked)


def how_full(ceiling: Ceiling) -> str:
    """Return how full it is. A limit of 0 is ``paused`` where creates ask for it, and forbids else: ``none``."""
    if (limited := parse_quantity(ceiling.limited)) > 0:
        return percent(_taken(ceiling), limited)
    return "paused" if fullness(ceiling) else "none"


def _taken(ceiling: Ceiling) -> int:
    return sum(map(parse_quantity, (ceiling.used, ceiling.held or "0", ceiling.reserved or "0")))


def fullest_first(ceilings: Sequence[Ceiling]) -> list[int]:
    """Return their order; of equally full ones those that block creates come first."""

    def key(number: int) -> tuple[float, bool, str, str, str]:
        each = ceilings[number]
        return -fullness(each), each.block is None, each.namespace, each.quota, each.resource

    return sorted(range(len(ceilings)), key=key)


def _row(ceiling: Ceiling, at: datetime) -> tuple[str, ...]:
    def amount(text: str | None) -> str:
        return "-" if not text else rounded(text, ceiling.resource, ceiling.limited)

    return (
        ceiling.namespace,
        ceiling.quota,
        ceiling.resource,
        amount(ceiling.used),
        amount(ceiling.held),
        amount(ceiling.reserved),
        amount(ceiling.limited),
        amount(ceiling.headroom),
        how_full(ceiling),
        _signed(ceiling.trend and amount(ceiling.trend)),
        ceiling.source,
        ago((at - read_time(ceiling.heard_at)).total_seconds()),
        waits_for(ceiling, at),
    )


def _signed(trend: str | None) -> str:
    """Return a trend with its sign; empty where it is unknown."""
    if trend is None or trend == "0" or trend.startswith("-"):
        return trend or ""
    return f"+{trend}"


def waits_for(ceiling: Ceiling, at: datetime) -> str:
    """Return what creates that do not fit wait for; empty where no create is blocked."""
    block = ceiling.block
    if block is None:
        return "room" if ceiling.waiting else ""
    if block.state == "probing":
        return "a probe's answer"
    if block.next_probe_at is None:
        return "room"
    left = (read_time(block.next_probe_at) - at).total_seconds()
    return "room, or a probe " + (f"in {span(left)}" if left >= 1 else "now")


def _none(chosen: Mapping[str, str], who: str) -> str:
    words = ", ".join(f"{name} {value}" for name, value in chosen.items())
    if words:
        return printable(f"{who} no ceilings of {words}.")
    if who == GATE:
        return f"{who} no ceilings yet: it reads them from ResourceQuotas, or from the first refusal."
    return f"{who} no ResourceQuotas that limit anything."
