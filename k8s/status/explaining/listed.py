"""What the quotas of a namespace, just listed, say to demands: for those who ask a cluster and not a gate. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.k8s.charges.quotas import UnreadableQuotaError, read_quota

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from backoff_ctrl.engine.demand import Demand
    from backoff_ctrl.engine.outlook import Outlook

    from .explanation import Ask


def asking_listed(namespace: str, quotas: Iterable[object]) -> tuple[Ask, list[str]]:
    """Return who answers for these ResourceQuotas, which are all of the namespace, and the names of unreadable ones."""
    engine = Controller()
    unreadable = []
    for each in quotas:
        name = _name_of(each)
        try:
            engine.observe_quota(namespace, name, read_quota(each), 0.0)
        except UnreadableQuotaError:
            unreadable.append(name)
    if not unreadable:
        engine.watching(0.0, namespace)

    def ask(wanted: Sequence[tuple[Demand, int]]) -> Outlook:
        return engine.outlook(namespace, wanted, 0.0)

    return ask, unreadable


def _name_of(quota: object) -> str:
    metadata: Mapping[str, Any] | None = quota.get("metadata") if isinstance(quota, dict) else None
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
