"""``backoff-ctrl holders``: who holds each quota of a namespace, and what would free it."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from backoff_ctrl.api.exits import DONE, FAILED, BadInput

from .cluster_options import check_cluster_options, cluster_options

if TYPE_CHECKING:
    from backoff_ctrl.k8s.holders.attribution import Report
    from backoff_ctrl.k8s.holders.reader import HoldingsReader

SECOND_LOOK: Final = 1.0
"""Seconds after which charge that nothing explains is looked at again: creates under way look the same for a moment."""
LARGE: Final = 1000
"""Objects of a kind from which on the progress of its list is told."""


@click.command("holders")
@click.option("-n", "--namespace", help="Whose quotas; default: the context's namespace.")
@click.option("--quota", metavar="NAME", help="Only this quota; default: all of the namespace.")
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else on stdout.")
def command(
    namespace: str | None,
    quota: str | None,
    server: str | None,
    kubeconfig: str | None,
    context: str | None,
    as_json: bool,
) -> int:
    """Say who holds each quota of a namespace, by owner and age, and what would free it.

    Shares are of what is used. Charge that no object explains is listed with when it comes back. The last line names
    the best next step. Nothing is changed in the cluster; of Secrets only the metadata is read.

    Exit codes: 0 answered, whatever the answer ("ok" in --json says whether anything is wrong), 1 answered in part
    since this account may not list a kind that a quota charges, 2 wrong use, or the cluster can't be used.
    """
    from backoff_ctrl.k8s.cluster.asking import Reach, ReachError, find_place  # noqa: PLC0415
    from backoff_ctrl.k8s.holders.reader import HoldingsReader  # noqa: PLC0415 - loads the client: 0.25 s

    from .holders_page import document, page  # noqa: PLC0415

    check_cluster_options(server, kubeconfig, context)
    try:
        reach = Reach(find_place(server, kubeconfig, context, namespace))
        try:
            reach.version()  # says what is wrong with address and credentials
            report = _report(HoldingsReader(reach, _Telling()), quota)
        finally:
            reach.close()
    except ReachError as error:
        raise BadInput(str(error)) from error
    click.echo(json.dumps(document(report), indent=2) if as_json else page(report))
    return FAILED if report.unread else DONE


def _report(reader: HoldingsReader, quota: str | None) -> Report:
    """Look, and where something does not add up look again."""
    from backoff_ctrl.k8s.holders.attribution import attribute, confirmed  # noqa: PLC0415

    report = attribute(reader.read(quota), datetime.now(UTC))
    if not report.excess:
        return report
    time.sleep(SECOND_LOOK)
    return confirmed(attribute(reader.read(quota), datetime.now(UTC)), report)


class _Telling:
    """Tells on stderr how far a long list has come: over and over on a terminal, once where a file is written."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, kind: str, seen: int, whole: int) -> None:
        """Tell of one page."""
        live = sys.stderr.isatty()
        if whole <= LARGE or (kind in self._told and not live):
            return
        over = live and seen == whole
        click.echo(
            f"\r\x1b[K{'' if over else f'listing {kind}: {seen} of {whole}'}" if live else f"listing {kind}: {whole}",
            err=True,
            nl=not live,
        )
        self._told.add(kind)
