"""Explains manifests by the quotas and LimitRanges of a cluster, listed once for each namespace."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.answers.fields import metadata_of
from backoff_ctrl.k8s.answers.paging import is_list
from backoff_ctrl.k8s.answers.printing import printable
from backoff_ctrl.k8s.cluster.asking import Reach, ReachError, find_place
from backoff_ctrl.k8s.status import explaining
from backoff_ctrl.k8s.status.admission_rules import items_of
from backoff_ctrl.k8s.status.bodies import namespace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from backoff_ctrl.k8s.status.admission_rules import Item
    from backoff_ctrl.k8s.status.shapes import Explained


def by_cluster(
    kubeconfig: str | None, context: str | None, *, confirm: bool
) -> Callable[[dict[str, Any], str | None], tuple[str, Explained, dict[str, Any]]]:
    """Return a function that explains a manifest, in a namespace if one is given. Raises ``BadInput``.

    ``confirm``: also ask the server, as the user of the kubeconfig.
    """
    try:
        reach = Reach(find_place(None, kubeconfig, context, None))
        reach.version()  # fails early if the address or the credentials are wrong
    except ReachError as error:
        raise BadInput(str(error)) from error
    known: dict[str, tuple[explaining.Ask, list[str], Sequence[Item] | None]] = {}

    def explain(manifest: dict[str, Any], namespace: str | None) -> tuple[str, Explained, dict[str, Any]]:
        named = metadata_of(manifest).get("namespace")
        place = namespace_of(manifest, namespace or (None if named else reach.place.namespace))
        if place not in known:
            known[place] = _listed(reach, place)
        ask, unreadable, ranges = known[place]
        found, _ = explaining.explain(manifest, ask, ranges, time.time())
        if unreadable:
            left_out = f"quotas that can't be read are left out: {', '.join(map(printable, unreadable))}"
            found.note = f"{found.note}; {left_out}" if found.note else left_out
        if confirm:
            try:
                found.confirmation = explaining.confirm(manifest, place, found, reach.ask)
            except ReachError as error:
                raise BadInput(str(error)) from error
        return place, found, asdict(found)

    return explain


def _listed(reach: Reach, namespace: str) -> tuple[explaining.Ask, list[str], Sequence[Item] | None]:
    """List the quotas of a namespace, and its LimitRanges if this account may. Raises ``BadInput``."""
    try:
        status, quotas = reach.ask("GET", f"/api/v1/namespaces/{namespace}/resourcequotas")
        reach.insist_on_credentials(status, quotas)
        ranges_status, ranges = reach.ask("GET", f"/api/v1/namespaces/{namespace}/limitranges")
    except ReachError as error:
        raise BadInput(str(error)) from error
    if status != 200 or not is_list(quotas):
        said = printable(str(quotas.get("message") or f"status {status}"))
        raise BadInput(
            f"the quotas of namespace {printable(namespace)} can't be listed ({said}): use an account that may, "
            "such as one with the role view"
        )
    ask, unreadable = explaining.asking_listed(namespace, quotas["items"] or ())
    return ask, unreadable, items_of(ranges["items"] or ()) if ranges_status == 200 and is_list(ranges) else None
