"""``backoff-ctrl holders``: show who holds each quota of a namespace, and what would free it."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from backoff_ctrl.api.exits import DONE, FAILED, BadInput

from .options import check_cluster_options, cluster_options

if TYPE_CHECKING:
    from backoff_ctrl.k8s.charges.attribution import Report
    from backoff_ctrl.k8s.holders import HoldingsReader

SECOND_LOOK: Final = 1.0
"""Seconds before unexplained charge is read again: creates in flight look the same for a moment."""
LARGE: Final = 1000
"""Progress is shown for lists of more objects than this."""


@click.command("holders")
@click.option("-n", "--namespace", help="The namespace; default: the context's.")
@click.option("--quota", metavar="NAME", help="Show only this quota; default: all quotas of the namespace.")
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else on stdout.")
def command(
    namespace: str | None,
    quota: str | None,
    apiserver: str | None,
    kubeconfig: str | None,
    context: str | None,
    as_json: bool,
) -> int:
    """Show who holds each quota of a namespace, by owner and age, and what would free it.

    Shares are percentages of the used amount. Charge that no object explains is listed with the time of its release.
    The last line names the best next step. Nothing in the cluster is changed, and only the metadata of Secrets is read.

    Exit codes: 0 answered ("ok" in --json says whether all is well), 1 answered in part, because this account may not
    list a kind that a quota charges, 2 wrong usage, or the cluster cannot be used.
    """
    from backoff_ctrl.k8s.cluster.asking import Reach, ReachError, find_place  # noqa: PLC0415
    from backoff_ctrl.k8s.holders import HoldingsReader  # noqa: PLC0415 - imports the client: 0.25 s

    from .holders_page import document, page  # noqa: PLC0415

    check_cluster_options(apiserver, kubeconfig, context)
    try:
        reach = Reach(find_place(apiserver, kubeconfig, context, namespace))
        try:
            reach.version()  # fails early if the address or the credentials are wrong
            report = _report(HoldingsReader(reach, _Progress()), quota)
        finally:
            reach.close()
    except ReachError as error:
        raise BadInput(str(error)) from error
    click.echo(json.dumps(document(report), indent=2) if as_json else page(report))
    return FAILED if report.unread else DONE


def _report(reader: HoldingsReader, quota: str | None) -> Report:
    """Read the holders. If some charge is unexplained, read again and keep only what is confirmed."""
    from backoff_ctrl.k8s.charges.attribution import attribute, confirmed  # noqa: PLC0415

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
