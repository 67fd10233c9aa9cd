"""``backoff-ctrl jobs``: what waits suspended, and the way out, through the API server alone."""

from __future__ import annotations

import asyncio
import getpass
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from backoff_ctrl.api.exits import DONE, FAILED, BadInput
from backoff_ctrl.k8s.answers.printing import printable

from .amounts import aligned, span
from .kinds_option import KINDS, kinds_of
from .options import check_cluster_options, cluster_options

if TYPE_CHECKING:
    from backoff_ctrl.k8s.admitting.jobs import WaitingJob
    from backoff_ctrl.k8s.cluster.finding import ClusterAccess

HEAD: Final = ("namespace", "name", "waited", "place", "waits for")
_NAMESPACES: Final = click.option(
    "-n", "--namespace", "namespaces", multiple=True, metavar="NAME", help="Only there; default: all. May be repeated."
)


@click.group("jobs")
def command() -> None:
    """Show which Jobs (and JobSets, RayJobs, ...) wait suspended for a quota, or let them go.

    Works without the operator: the API server is asked.
    """


@command.command("list")
@_NAMESPACES
@KINDS
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@cluster_options
def listing(
    server: str | None,
    kubeconfig: str | None,
    context: str | None,
    namespaces: tuple[str, ...],
    kinds: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show what waits suspended, the eldest first, and what for.

    Kinds that can't be listed are left out, and named.

    Exit codes: 0 answered, also if nothing waits; 2 wrong usage, or Jobs can't be listed.
    """
    from backoff_ctrl.k8s.admitting.jobs import JobsError, list_jobs  # noqa: PLC0415 - imports aiohttp

    waiting, place = kinds_of(kinds), _place(server, kubeconfig, context)
    try:
        found = asyncio.run(list_jobs(place.configuration, namespaces=namespaces, kinds=waiting))
    except JobsError as error:
        raise BadInput(str(error)) from None
    if as_json:
        left_out = [{"resource": each.resource, "where": each.where, "why": each.why} for each in found.unlisted]
        click.echo(json.dumps({"items": [each.document() for each in found.jobs], "leftOut": left_out}))
        return DONE
    if found.jobs:
        now = datetime.now(UTC)
        rows = [tuple(map(printable, _cells(each, now))) for each in found.jobs]
        click.echo(aligned([HEAD, *rows], [HEAD.index("waited"), HEAD.index("place")]))
    else:
        click.echo("No Job waits.")
    for each in found.unlisted:
        click.echo(f"backoff-ctrl: left out: {printable(str(each))}", err=True)
    return DONE


@command.command("release")
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Let all of them go.")
@_NAMESPACES
@KINDS
@cluster_options
def release(
    server: str | None,
    kubeconfig: str | None,
    context: str | None,
    name: str | None,
    everything: bool,
    namespaces: tuple[str, ...],
    kinds: tuple[str, ...],
) -> int:
    """Let NAME go at once, whether its quota has room or not; NAME may begin with its kind: job/train.

    It is resumed, and keeps the note who did so. Its pods may be refused by the quota.

    Exit codes: 0 let go; 1 some could not be; 2 wrong usage, nothing of that name waits, or the cluster can't be used.
    """
    from backoff_ctrl.k8s.admitting.jobs import JobsError  # noqa: PLC0415 - imports aiohttp
    from backoff_ctrl.k8s.admitting.jobs import release as let_go  # noqa: PLC0415

    if (name is None) is not everything:
        raise BadInput("give either the NAME of what is to be let go, or --all")
    waiting, place = kinds_of(kinds), _place(server, kubeconfig, context)
    try:
        found = asyncio.run(let_go(place.configuration, name or "", by=_who(), namespaces=namespaces, kinds=waiting))
    except JobsError as error:
        raise BadInput(str(error)) from None
    for each in found:
        said = f"could not be let go: {each.error}" if each.error else "is gone." if each.gone else "was let go."
        click.echo(printable(f"{each.label} {said}"), err=bool(each.error))
    if not found:
        click.echo("No Job waits.")
    return FAILED if any(each.error for each in found) else DONE


def _place(server: str | None, kubeconfig: str | None, context: str | None) -> ClusterAccess:
    from backoff_ctrl.k8s.cluster.asking import ReachError, find_api_server  # noqa: PLC0415 - imports the client

    check_cluster_options(server, kubeconfig, context)
    try:
        return find_api_server(server, kubeconfig, context, None)
    except ReachError as error:
        raise BadInput(str(error)) from None


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "backoff-ctrl jobs release"


def _cells(job: WaitingJob, now: datetime) -> tuple[str, ...]:
    said = job.waits_for
    try:
        waited = span((now - datetime.fromisoformat(job.created)).total_seconds())
    except ValueError:
        waited = "-"
    words = [said.get("message", "")]
    if not words[0] and "quota" in said:
        words = [f"{said['quota']} {said.get('resource', '')}: asked {said.get('asked')}, left {said.get('left')}"]
    if "estimate" in said:
        words.append(f"about {span(said['estimate'])}")
    why = ", ".join(filter(None, words)) or said.get("reason", "the operator has not said it yet")
    return job.namespace, f"{job.kind.kind}/{job.name}", waited, str(said.get("place", "-")), why
