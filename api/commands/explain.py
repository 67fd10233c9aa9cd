"""``backoff-ctrl explain``: what would happen to a manifest that is created now, and why."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from backoff_ctrl.api.exits import DONE, BadInput
from backoff_ctrl.k8s.kube.answers.fields import metadata_of
from backoff_ctrl.k8s.kube.answers.paging import is_list
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.charges.manifests import ManifestError, load_manifests, read_source
from backoff_ctrl.k8s.kube.paths import path_to
from backoff_ctrl.k8s.status.amounts import rounded, span
from backoff_ctrl.k8s.status.asked import ProblemError
from backoff_ctrl.k8s.status.bodies import namespace_of
from backoff_ctrl.k8s.status.client import Instance, find_instance, token_in
from backoff_ctrl.k8s.status.shapes import Blocker, Confirmation, Explained, ExplainedPart, LetIn

from .instance_options import GATE, TIMEOUT, asks_cluster, cluster_instead
from .output import DOCUMENT, output_options, written

if TYPE_CHECKING:
    from backoff_ctrl.k8s.kube.charges.admission_rules import Item
    from backoff_ctrl.k8s.kube.cluster.asking import Reach
    from backoff_ctrl.k8s.status.explaining import Ask
    from backoff_ctrl.k8s.workloads.admitting.jobs import WaitingJob

Answer = tuple[str, Explained, dict[str, Any]]
Explain = Callable[[dict[str, Any], str | None], Answer]


@click.command("explain")
@click.option("-f", "--file", "source", metavar="FILE", required=True, help="The manifests; - reads stdin.")
@click.option("-n", "--namespace", help="The namespace; default: the manifest's, then the context's.")
@GATE
@cluster_instead
@TIMEOUT
@click.option("--confirm", is_flag=True, help="Ask the API server as well, by a dry run with your own rights.")
@click.option(
    "--token-file", metavar="FILE", help="Your Kubernetes token, for an instance that is asked with --confirm."
)
@output_options(*DOCUMENT)
def command(  # noqa: PLR0913, PLR0917 - each is an option
    source: str,
    namespace: str | None,
    gate: str | None,
    apiserver: str | None,
    kubeconfig: str | None,
    context: str | None,
    timeout: float,
    confirm: bool,
    token_file: str | None,
    output: str | None,
) -> int:
    """Say whether a manifest would be created now, would wait, never fits, or is refused, and why.

    A running instance knows who is already waiting, and estimates how long it takes; with --apiserver, --kubeconfig or
    --context the answer comes from the quotas and LimitRanges of the cluster. No object is created. For an object that
    makes pods, such as a Job, there is one answer for its create and one for its pods. Of what waits suspended, the
    cluster's quotas also say whether the operator lets it in, and why not. With --confirm the API server itself is
    asked, by a dry run of the create; the output also says what a dry run can't show.

    \b
    backoff-ctrl explain -f job.yaml
    backoff-ctrl explain -f job.yaml --kubeconfig ~/.kube/config -n team

    Exit codes: 0 answered, with any verdict; 2 wrong usage, a bad manifest, or no instance answers.
    """
    try:
        manifests = load_manifests(read_source(source), "stdin" if source == "-" else source)
    except ManifestError as error:
        raise BadInput(str(error)) from None
    explain: Explain
    by_cluster = asks_cluster(gate, apiserver, kubeconfig, context)
    if token_file is not None and (not confirm or by_cluster):
        raise BadInput("--token-file is only for --confirm with an instance: leave it out, or add --confirm")
    if by_cluster:
        made = {str(metadata_of(each).get("name")) for each in manifests if each.get("kind") == "Namespace"}
        explain = _by_cluster(apiserver, kubeconfig, context, made, confirm=confirm)
    else:
        explain = _by_instance(gate, timeout, confirm, token_file)
    answers = []
    for number, manifest in enumerate(manifests, 1):
        try:
            answers.append((manifest, *explain(manifest, namespace)))
        except ProblemError as error:
            where = f", manifest {number}" if len(manifests) > 1 else ""
            raise BadInput(f"{source}{where}: {error}") from None
    if output:
        documents = [document for *_, document in answers]
        click.echo(written(documents[0] if len(documents) == 1 else documents, output))
    else:
        click.echo("\n\n".join(sentences(manifest, place, found) for manifest, place, found, _ in answers))
    return DONE


def _by_instance(gate: str | None, timeout: float, confirm: bool, token_file: str | None) -> Explain:
    token = "" if token_file is None else token_in(token_file, "write one there with kubectl create token ACCOUNT")
    instance = Instance(find_instance(gate), timeout, token)
    more = "&confirm=true" if confirm else ""

    def explain(manifest: dict[str, Any], namespace: str | None) -> Answer:
        place = namespace_of(manifest, namespace or _of_context(manifest))
        body = json.dumps(manifest, default=str).encode()
        found, document = instance.post(f"/v1/explain?namespace={quote(place, safe='')}{more}", body, Explained)
        return place, found, document

    return explain


def _of_context(manifest: Mapping[str, Any]) -> str | None:
    """Return the namespace of the kubeconfig's context, or of this pod, for a manifest without a namespace."""
    from backoff_ctrl.k8s.kube.cluster.finding import ReachError, find_place  # noqa: PLC0415 - the client: 0.25 s

    if metadata_of(manifest).get("namespace"):
        return None
    try:
        return find_place(None, None, None, None).namespace
    except ReachError:
        raise BadInput("name the namespace, in the manifest or with -n: no kubeconfig names one") from None


def _by_cluster(
    apiserver: str | None, kubeconfig: str | None, context: str | None, made: Container[str], *, confirm: bool
) -> Explain:
    """Return a function that explains a manifest by the quotas and LimitRanges of a cluster, listed once.

    ``made``: namespaces that the manifests create. ``confirm``: also ask the server, as the user of the kubeconfig.
    Raises ``BadInput``, as that function does.
    """
    from backoff_ctrl.k8s.kube.cluster import asking  # noqa: PLC0415 - the client: 0.25 s
    from backoff_ctrl.k8s.status import explaining  # noqa: PLC0415 - loads the engine

    try:
        reach = asking.Reach(asking.find_place(apiserver, kubeconfig, context, None))
        reach.version()  # fails early if the address or the credentials are wrong
    except asking.ReachError as error:
        raise BadInput(str(error)) from error
    known: dict[str, _Listed] = {}

    def explain(manifest: dict[str, Any], namespace: str | None) -> Answer:
        named = metadata_of(manifest).get("namespace")
        place = namespace_of(manifest, namespace or (None if named else reach.place.namespace))
        try:
            if place not in known:
                known[place] = _listed(reach, place)
            listed = known[place]
            devices = explaining.devices_of(place, reach.ask)
            classes = explaining.classes_of(reach.ask)
            found, _ = explaining.explain(manifest, listed.ask, listed.ranges, time.time(), devices, classes)
            found.let_in = _let_in(manifest, place, listed, reach)
            if listed.absent is not None and place not in made:
                explaining.refuse(found, listed.absent)
            if listed.unreadable:
                left_out = f"quotas that can't be read are left out: {', '.join(map(printable, listed.unreadable))}"
                explaining.note_on(found, left_out)
            if confirm:
                found.confirmation = explaining.confirm(manifest, place, found, reach.ask)
        except asking.ReachError as error:
            raise BadInput(str(error)) from error
        return place, found, asdict(found)

    return explain


@dataclass
class _Listed:
    """What was listed of a namespace. ``line``: what waits suspended there; None: not known.

    ``absent``: that the namespace does not exist.
    """

    ask: Ask
    quotas: Sequence[Mapping[str, Any]]
    unreadable: list[str]
    ranges: Sequence[Item] | None
    absent: str | None
    line: Sequence[WaitingJob] | None = None
    line_is_read: bool = False


def _let_in(manifest: Mapping[str, Any], namespace: str, listed: _Listed, reach: Reach) -> LetIn | None:
    """Return whether the operator lets a manifest in that waits suspended. Raises ``ReachError``."""
    from backoff_ctrl.k8s.workloads.admitting.judging import Surroundings, judged, kind_of_manifest  # noqa: PLC0415 - the engine

    if kind_of_manifest(manifest) is None:
        return None
    if not listed.line_is_read:
        from backoff_ctrl.k8s.workloads.admitting.jobs import JobsError, list_jobs  # noqa: PLC0415 - imports aiohttp

        with suppress(JobsError):  # the line stays None, and the answer says that it is not known
            listed.line = asyncio.run(list_jobs(reach.place.configuration, namespaces=(namespace,))).jobs
        listed.line_is_read = True
    around = Surroundings(listed.quotas, listed.ranges or (), listed.line)
    return judged(manifest, namespace, around, listed.ask, reach.ask, datetime.now(UTC))


def _listed(reach: Reach, namespace: str) -> _Listed:
    """List the quotas of a namespace, and what else decides, if this account may: LimitRanges.

    Raises ``BadInput``, ``ReachError``.
    """
    from backoff_ctrl.k8s.kube.charges.admission_rules import items_of  # noqa: PLC0415 - loads the engine
    from backoff_ctrl.k8s.status.explaining import asking_listed  # noqa: PLC0415

    status, quotas = reach.ask("GET", path_to("/api/v1", "resourcequotas", namespace=namespace))
    reach.insist_on_credentials(status, quotas)
    ranges_status, ranges = reach.ask("GET", path_to("/api/v1", "limitranges", namespace=namespace))
    if status != 200 or not is_list(quotas):
        said = printable(str(quotas.get("message") or f"status {status}"))
        raise BadInput(
            f"the quotas of namespace {printable(namespace)} can't be listed ({said}): use an account that may, "
            "such as one with the role view"
        )
    items = [each for each in quotas["items"] or () if isinstance(each, dict)]
    ask, unreadable = asking_listed(namespace, items)
    absent = None if items else reach.absence(namespace)
    may_list = ranges_status == 200 and is_list(ranges)
    return _Listed(ask, items, unreadable, items_of(ranges["items"] or ()) if may_list else None, absent)


_CREATE: Final = {
    "now": "would be created now",
    "wait": "would wait",
    "never": "never fits",
    "refused": "would be refused",
    "unknown": "not known here: too little is known about the quotas",
}
_PODS: Final = {
    "now": "all objects that it makes would fit now",
    "wait": "the objects that it makes would not all fit now",
    "never": "the objects that it makes never fit",
    "refused": "its pods would be refused",
    "unknown": "not known here whether the objects that it makes would fit",
}
_LET_IN: Final = {
    "now": "the operator lets it in now",
    "wait": "it waits in line",
    "never": "the operator never lets it in",
    "left": "the operator leaves it alone",
    "unknown": "the operator may let it in, which is not known here",
}
SHOWN: Final = 5
"""Objects that are named of those that go first."""


def sentences(manifest: Mapping[str, Any], namespace: str, found: Explained) -> str:
    """Return what would happen to a manifest."""
    metadata = metadata_of(manifest)
    name = metadata.get("name") or metadata.get("generateName")
    title = f"{found.footprint.kind or 'object'} {namespace}/{name or '?'}"
    lines, made = [], found.footprint.parts
    suspended = bool(made) and all(each.suspended for each in made)
    for part in found.parts:
        if part.part == "pods" and part.verdict != "refused" and found.let_in is not None:
            continue  # the operator's answer is about the same
        created = f"{title}: {_CREATE.get(part.verdict, part.verdict)}"
        words = created if part.part == "create" else _pods(part, suspended=suspended)
        lines.append(f"{words}{_estimate(part, found.as_of)}")
        lines += [f"  {each}" for each in (*part.why, *map(_blocker, part.blockers))]
    if found.let_in is not None:
        lines += _in_line(found.let_in)
    if found.confirmation is not None:
        lines += _confirmation(found.confirmation)
    if found.note:
        lines.append(f"note: {found.note}")
    return "\n".join(printable(line) for line in lines)


def _confirmation(found: Confirmation) -> list[str]:
    """Return the API server's own answer, and what it can't show."""
    words = _CREATE.get(found.verdict, found.verdict) if found.verdict != "unknown" else "it does not say"
    agrees = {True: "agrees", False: "disagrees", None: "was asked"}[found.agrees]
    lines = [f"the API server {agrees}: {words}"]
    if found.message:
        lines.append(f"  {found.message}")
    return lines + [f"a dry run can't show: {each}" for each in found.untold]


def _in_line(found: LetIn) -> list[str]:
    """Return whether the operator lets it in, and what is in the way."""
    place = f", at place {found.place}" if found.place is not None else ""
    lines = [f"  {_LET_IN.get(found.verdict, found.verdict)}{place}"]
    lines += [f"  {each}" for each in (*found.why, *map(_blocker, found.blockers))]
    if found.behind:
        first, more = found.behind[:SHOWN], len(found.behind) - SHOWN
        lines.append(f"  before it: {', '.join(first)}{f' and {more} more' if more > 0 else ''}")
    return lines


def _pods(part: ExplainedPart, *, suspended: bool) -> str:
    return f"  and {'once it is resumed' if suspended else 'then'} {_PODS.get(part.verdict, part.verdict)}"


def _estimate(part: ExplainedPart, as_of: str) -> str:
    if part.estimated_at is None:
        return ""
    left = (datetime.fromisoformat(part.estimated_at) - datetime.fromisoformat(as_of)).total_seconds()
    return f", for about {span(left)}"


def _blocker(each: Blocker) -> str:
    asked, left, limited = (rounded(n, each.resource, each.limited) for n in (each.asked, each.left, each.limited))
    return f"quota {each.quota}: {each.resource} asks {asked}, left {left} of {limited}"
