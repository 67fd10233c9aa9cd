"""``backoff-ctrl holders``: show who holds each quota of a namespace, and what would free it."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from backoff_ctrl.api.exits import DONE, FAILED, BadInput
from backoff_ctrl.k8s.kube.answers.printing import printable

from .cluster_options import check_cluster_options, cluster_options
from .namespaces import check_namespaces, namespace_options
from .naming import QUOTA, plain
from .output import DOCUMENT, LIST, names, output_options, written

if TYPE_CHECKING:
    from backoff_ctrl.k8s.kube.charges.attribution import Report
    from backoff_ctrl.k8s.kube.cluster.asking import Reach
    from backoff_ctrl.k8s.kube.holders import HoldingsReader

SECOND_LOOK: Final = 1.0
"""Seconds before unexplained charge is read again: creates in flight look the same for a moment."""
LARGE: Final = 1000
"""Progress is shown for lists of more objects than this."""


@click.command("holders")
@namespace_options()
@click.option("--quota", metavar="NAME", help="Show only this quota; default: all quotas of the namespace.")
@cluster_options
@output_options(*LIST)
def command(
    namespace: str | None,
    everywhere: bool,
    quota: str | None,
    apiserver: str | None,
    kubeconfig: str | None,
    context: str | None,
    output: str | None,
) -> int:
    """Show who holds each quota of a namespace, by owner and age, and what would free it.

    Shares are percentages of the used amount. Charge that no object explains is listed with the time of its release.
    The last line names the best next step. The command changes nothing in the cluster, and of Secrets it reads only the
    metadata.
    With -A there is such a page for each namespace that has a quota, and in the JSON document a list, "items".

    Exit codes: 0 answered ("ok" in --json says whether all is well), 1 answered in part, because this account may not
    list a kind that a quota charges, 2 wrong usage, or the cluster cannot be used.
    """
    from backoff_ctrl.k8s.kube.cluster.asking import Reach, ReachError, find_place  # noqa: PLC0415
    from backoff_ctrl.k8s.kube.holders import HoldingsReader  # noqa: PLC0415 - imports the client: 0.25 s
    from backoff_ctrl.k8s.status.holders_page import document, owners, page  # noqa: PLC0415

    quota = quota and plain(quota, QUOTA)
    check_namespaces(namespace, everywhere=everywhere)
    check_cluster_options(apiserver, kubeconfig, context)
    reports = []
    try:
        place = find_place(apiserver, kubeconfig, context, namespace or None)
        reach = Reach(place)
        try:
            reach.version()  # fails early if the address or the credentials are wrong
            for name in _with_quotas(reach, quota) if everywhere else [place.namespace]:
                reach.place = replace(place, namespace=name)
                reports.append(_report(HoldingsReader(reach, _Progress()), quota))
        finally:
            reach.close()
    except ReachError as error:
        raise BadInput(str(error)) from error
    if output in DOCUMENT:
        documents = [document(each) for each in reports]
        whole = {"ok": all(each["ok"] for each in documents), "items": documents} if everywhere else documents[0]
        click.echo(written(whole, output))
    elif output == "name":
        names(owner for each in reports for owner in owners(each))
    elif reports:
        click.echo("\n\n".join(page(each, wide=output == "wide") for each in reports))
    else:
        click.echo(printable(f"No namespace has a quota{f' {quota}' if quota else ''}."))
    return FAILED if any(each.unread for each in reports) else DONE


def _with_quotas(reach: Reach, quota: str | None) -> list[str]:
    """Return the namespaces that have a quota, or one of this name. Raises ``ReachError``."""
    from backoff_ctrl.k8s.kube.answers.fields import metadata_of  # noqa: PLC0415

    from .cluster_ceilings import quotas  # noqa: PLC0415 - imports the client

    found = [metadata_of(each) for each in quotas(reach, None)]
    return sorted({str(each.get("namespace", "")) for each in found if quota in {None, each.get("name")}})


def _report(reader: HoldingsReader, quota: str | None) -> Report:
    """Read the holders. If some charge is unexplained, read again and keep only what is confirmed."""
    from backoff_ctrl.k8s.kube.charges.attribution import attribute, confirmed  # noqa: PLC0415

    report = attribute(reader.read(quota), datetime.now(UTC))
    if not report.excess:
        return report
    time.sleep(SECOND_LOOK)
    return confirmed(attribute(reader.read(quota), datetime.now(UTC)), report)


class _Progress:
    """Shows the progress of long lists on stderr: refreshed on a terminal, otherwise one line per kind."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def __call__(self, kind: str, seen: int, whole: int) -> None:
        live = sys.stderr.isatty()
        if whole <= LARGE or (kind in self._shown and not live):
            return
        over = live and seen == whole
        click.echo(
            f"\r\x1b[K{'' if over else f'listing {kind}: {seen} of {whole}'}" if live else f"listing {kind}: {whole}",
            err=True,
            nl=not live,
        )
        self._shown.add(kind)
