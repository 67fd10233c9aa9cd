"""What a write to an existing object adds to its charge: the new charge less the old one, as the API server has it.

Source: ``checkRequest`` of ``k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go``, v1.36. A refusal
names only what is added. So a pod that grows beyond the whole quota looks as if it fitted once others have left.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.answers.quota_sentence import exceeds
from backoff_ctrl.k8s.kube.answers.rejections import Rejection

from .footprint import footprint
from .live import live


def added(manifest: Mapping[str, Any] | None, resource: str, living: Mapping[str, Any] | None, now: datetime) -> Demand:
    """Estimate what storing this manifest adds to the charge of the ``living`` object (None: there is no such object).

    A manifest that can't be read adds no amount: the server's refusal will show the amounts.
    """
    try:
        whole = Demand({}) if manifest is None else footprint(manifest, resource=resource)
        has = {} if living is None else live(resource, living, now).charged.amounts
    except FieldError:
        return Demand({})
    more = {name: amount - has.get(name, 0) for name, amount in whole.amounts.items()}
    return Demand({name: amount for name, amount in more.items() if amount > 0}, whole.scopes)


def outgrows(rejection: Rejection, resource: str, living: Mapping[str, Any], now: datetime) -> bool:
    """Return whether the ``living`` object would be charged more than the whole quota, after the refused write.

    False where the quota does not count the object yet: then the refusal names the whole new amount.
    """
    try:
        has = live(resource, living, now).charged.amounts
    except FieldError:
        return False
    used = rejection.used
    counted = {name: has[name] for name in rejection.requested if 0 < has.get(name, 0) <= used.get(name, 0)}
    return exceeds({name: rejection.requested[name] + amount for name, amount in counted.items()}, rejection.limited)
