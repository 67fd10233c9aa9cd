"""The ceilings in the cluster's own ResourceQuotas: ``backoff-ctrl ceilings --kubeconfig``, without a gate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.answers.fields import FieldError, metadata_of
from backoff_ctrl.k8s.answers.paging import EndlessListError, is_list
from backoff_ctrl.k8s.charges.quotas import read_quota
from backoff_ctrl.k8s.cluster.asking import Reach, ReachError, find_place
from backoff_ctrl.k8s.cluster.paths import path_to
from backoff_ctrl.k8s.status.shapes import Ceiling
from backoff_ctrl.k8s.status.sources import shown

from .amounts import quantity_text

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_ceilings(kubeconfig: str | None, context: str | None, namespace: str | None) -> tuple[str, list[Ceiling]]:
    """Return the ceilings of one namespace, or of all (None), and when they were read. Raises ``BadInput``."""
    try:
        reach = Reach(find_place(None, kubeconfig, context, namespace))
        try:
            reach.version()  # fails early if the address or the credentials are wrong
            as_of = shown(time.time())
            return as_of, [found for quota in _quotas(reach, namespace) for found in _ceilings(quota, as_of)]
        finally:
            reach.close()
    except ReachError as error:
        raise BadInput(str(error)) from error


def _quotas(reach: Reach, namespace: str | None) -> Iterator[dict[str, Any]]:
    try:
        for status, page in reach.pages(path_to("/api/v1", "resourcequotas", namespace=namespace)):
            reach.insist_on_credentials(status, page)
            if status == 403:
                where = "all namespaces: choose one with -n, or" if namespace is None else f"namespace {namespace}:"
                raise ReachError(f"this account may not list resourcequotas in {where} ask for a role such as view")
            if status != 200 or not is_list(page) or not isinstance(page.get("metadata"), dict):
                raise ReachError(f"{reach.place.url} answered {status} to the list of resourcequotas: try again")
            yield from (item for item in page["items"] or () if isinstance(item, dict))
    except EndlessListError as error:
        raise ReachError(f"the list of resourcequotas at {reach.place.url} has no end: try again") from error


def _ceilings(quota: dict[str, Any], as_of: str) -> Iterator[Ceiling]:
    """Yield what one quota enforces, from its status. One that can't be read has no ceilings."""
    named = metadata_of(quota)
    try:
        seen = read_quota(quota)
    except FieldError:
        return
    for resource, limited in sorted(seen.hard.items()):
        used = seen.used.get(resource, 0)
        yield Ceiling(
            str(named.get("namespace", "")),
            str(named.get("name", "")),
            resource,
            limited=quantity_text(resource, limited),
            used=quantity_text(resource, used),
            held=None,
            reserved=None,
            headroom=quantity_text(resource, limited - used),
            unsettled="0",
            kept=None,
            source="observed",
            heard_at=as_of,
            block=None,
        )
