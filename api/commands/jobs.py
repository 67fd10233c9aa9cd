"""``backoff-ctrl jobs``: what waits suspended, and the way out, through the API server alone."""

from __future__ import annotations

import asyncio
import getpass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from backoff_ctrl.api.exits import DONE, FAILED, BadInput
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.status.amounts import rounded, span

from .cluster_options import check_cluster_options, cluster_options
from .instance_options import table
from .kinds_option import KINDS, kinds_of
from .namespaces import SHOW_ALL, check_namespaces, hint, namespace_options
from .output import DOCUMENT, LIST, names, output_options, written
from .watching import WATCH, Row, Watched
from .watching import watch as follow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess
    from backoff_ctrl.k8s.workloads.admitting.jobs import Listing, WaitingJob

HEAD: Final = ("namespace", "name", "waited", "place", "estimate", "waits for")
WIDE: Final = (*HEAD[:-1], "quota", "resource", "asked", "left", "reason", HEAD[-1])
NUMBERS: Final = ("waited", "place", "asked", "left")
AGES: Final = ("waited", "estimate")
EVERY: Final = 5.0
"""Seconds between two looks of ``--watch``, each a list of every kind."""


@click.group("jobs")
def command() -> None:
    """Show which Jobs (and JobSets, RayJobs, ...) wait suspended for a quota, or let them go.

    Works without the operator: the API server is asked.
    """


@command.command("list")
@namespace_options(several=True)
@KINDS
@WATCH
@output_options(*LIST)
@cluster_options
def listing(  # noqa: PLR0913, PLR0917 - each is an option
    apiserver: str | None,
    kubeconfig: str | None,
    context: str | None,
    namespaces: tuple[str, ...],
    everywhere: bool,
    kinds: tuple[str, ...],
    watch: bool,
    output: str | None,
) -> int:
    """Show what waits suspended, the eldest first, and what for.

    Without -n it is for the context's namespace, as with kubectl; -A shows all. Kinds that can't be listed are left
    out, and named.

    Exit codes: 0 answered, also with an empty list; 2 wrong usage, or Jobs can't be listed.
    """
    from backoff_ctrl.k8s.workloads.admitting.jobs import JobsError, list_jobs  # noqa: PLC0415 - imports aiohttp

    named = check_namespaces(*namespaces, everywhere=everywhere)
    waiting, place = kinds_of(kinds), place_of(apiserver, kubeconfig, context)
    where = _where(named, place, everywhere=everywhere)

    told: set[str] = set()

    def look() -> Listing:
        try:
            found = asyncio.run(list_jobs(place.configuration, namespaces=where, kinds=waiting))
        except JobsError as error:
            raise BadInput(str(error)) from None
        for each in found.absent:
            if each not in told:
                hint(each)
        told.update(found.absent)
        return found

    columns = WIDE if output == "wide" else HEAD
    if watch:
        shown = Watched(columns, NUMBERS, AGES, output)
        return follow(shown, lambda: [row_of(each, columns) for each in look().jobs], EVERY, "waits no more")
    found = look()
    rows = [row_of(each, columns) for each in found.jobs]
    if output in DOCUMENT:
        left_out = [{"resource": each.resource, "where": each.where, "why": each.why} for each in found.unlisted]
        click.echo(written({"items": [row.document for row in rows], "leftOut": left_out}, output))
        return DONE
    if output == "name":
        names(row.name for row in rows)
    elif rows:
        click.echo(table(columns, [row.cells for row in rows], len(rows), right=NUMBERS, whole=output == "wide"))
    else:
        click.echo(_none(where))
        if where and not found.absent:
            hint(SHOW_ALL)
    for each in found.unlisted:
        hint(f"left out: {each}")
    return DONE


@command.command("release")
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Let all go that wait in the namespace.")
@namespace_options(several=True)
@KINDS
@cluster_options
def release(  # noqa: PLR0913, PLR0917 - each is an option
    apiserver: str | None,
    kubeconfig: str | None,
    context: str | None,
    name: str | None,
    everything: bool,
    namespaces: tuple[str, ...],
    everywhere: bool,
    kinds: tuple[str, ...],
) -> int:
    """Let NAME go at once, whether its quota has room or not.

    NAME may begin with its kind: Job/train, job.batch/train. It is resumed, and keeps the note who did so. Its pods may
    be refused by the quota. NAME is in the context's namespace, or in that of -n; --all -A lets all go, in all
    namespaces.

    Exit codes: 0 let go; 1 some could not be; 2 wrong usage, no waiting Job of that name, or the cluster can't be used.
    """
    from backoff_ctrl.k8s.workloads.admitting.jobs import JobsError  # noqa: PLC0415 - imports aiohttp
    from backoff_ctrl.k8s.workloads.admitting.jobs import release as let_go  # noqa: PLC0415

    if (name is None) is not everything:
        raise BadInput("give either the NAME of what is to be let go, or --all")
    named = check_namespaces(*namespaces, everywhere=everywhere)
    waiting, place = kinds_of(kinds), place_of(apiserver, kubeconfig, context)
    where = _where(named, place, everywhere=everywhere)
    try:
        found = asyncio.run(let_go(place.configuration, name or "", by=_who(), namespaces=where, kinds=waiting))
    except JobsError as error:
        raise BadInput(str(error)) from None
    for each in found:
        said = f"could not be let go: {each.error}" if each.error else "is gone." if each.gone else "was let go."
        click.echo(printable(f"{each.label} {said}"), err=bool(each.error))
    if not found:
        click.echo(_none(where))
    return FAILED if any(each.error for each in found) else DONE


def place_of(apiserver: str | None, kubeconfig: str | None, context: str | None) -> ClusterAccess:
    """Return the cluster that the options choose. Raises ``BadInput``."""
    from backoff_ctrl.k8s.kube.cluster.asking import ReachError, find_api_server  # noqa: PLC0415 - imports the client

    check_cluster_options(apiserver, kubeconfig, context)
    try:
        return find_api_server(apiserver, kubeconfig, context, None)
    except ReachError as error:
        raise BadInput(str(error)) from None


def _where(named: tuple[str, ...], place: ClusterAccess, *, everywhere: bool) -> tuple[str, ...]:
    """Return the namespaces to ask about; empty: all."""
    return () if everywhere else named or (place.namespace,)


def _none(where: tuple[str, ...]) -> str:
    return printable(f"No Job waits in namespace {', '.join(where)}." if where else "No Job waits.")


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "backoff-ctrl jobs release"


def row_of(job: WaitingJob, columns: Sequence[str]) -> Row:
    """Return these columns of ``WIDE`` of one Job."""
    wait = job.waits_for
    try:
        waited = span((datetime.now(UTC) - datetime.fromisoformat(job.created)).total_seconds())
    except ValueError:
        waited = "-"
    resource = str(wait.get("resource", "-"))
    amounts = {name: rounded(str(wait.get(name, "-")), resource) for name in ("asked", "left")}
    why = wait.get("message") or wait.get("reason", "the operator has given no reason yet")
    if not wait.get("message") and "quota" in wait:
        why = f"{wait['quota']} {wait.get('resource', '')}: asked {amounts['asked']}, left {amounts['left']}"
    found = {
        **{name: str(wait.get(name, "-")) for name in ("place", "quota", "resource", "reason")},
        **amounts,
        "namespace": job.namespace,
        "name": f"{job.kind.kind}/{job.name}",
        "waited": waited,
        "estimate": f"in {span(wait['estimate'])}" if "estimate" in wait else "-",
        "waits for": why,
    }
    kind = f"{job.kind.kind}.{job.kind.group}".rstrip(".").lower()
    key = f"{job.kind.resource} {job.namespace}/{job.name}"
    return Row(key, f"{kind}/{job.name}", tuple(found[name] for name in columns), job.document())
