"""The ceilings in the cluster's own ResourceQuotas: ``backoff-ctrl ceilings --kubeconfig``, without a gate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.kube.answers.fields import FieldError, metadata_of
from backoff_ctrl.k8s.kube.answers.paging import EndlessListError, is_list
from backoff_ctrl.k8s.kube.charges.quotas import read_quota
from backoff_ctrl.k8s.kube.cluster.asking import Reach, ReachError, find_place
from backoff_ctrl.k8s.kube.paths import path_to
from backoff_ctrl.k8s.status.amounts import quantity_text
from backoff_ctrl.k8s.status.shapes import Ceiling
from backoff_ctrl.k8s.status.sources import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backoff_ctrl.k8s.kube.cluster.finding import ClusterAccess

    CeilingsRead = tuple[str, list[Ceiling]]


def find_cluster(
    apiserver: str | None, kubeconfig: str | None, context: str | None, namespace: str | None
) -> ClusterAccess:
    """Return the cluster that the options choose, and the namespace, by default the context's. Raises ``BadInput``."""
    try:
        return find_place(apiserver, kubeconfig, context, namespace)
    except ReachError as error:
        raise BadInput(str(error)) from error


def read_ceilings(place: ClusterAccess, namespace: str | None, missing: Callable[[str], object]) -> CeilingsRead:
    """Return the ceilings of one namespace, or of all (None), and when they were read. Raises ``BadInput``.

    ``missing`` is called with a sentence about a namespace that does not exist.
    """
    try:
        reach = Reach(place)
        try:
            reach.version()  # fails early if the address or the credentials are wrong
            as_of = shown(time.time())
            found = [each for quota in quotas(reach, namespace) for each in _ceilings(quota, as_of)]
            if namespace and not found and (absence := reach.absence(namespace)):
                missing(absence)
            return as_of, found
        finally:
            reach.close()
    except ReachError as error:
        raise BadInput(str(error)) from error


def quotas(reach: Reach, namespace: str | None) -> Iterator[dict[str, Any]]:
    """Yield the quotas of one namespace, or of all (None). Raises ``ReachError``."""
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
