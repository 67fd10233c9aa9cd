"""What a ResourceClaim is charged: devices by class (``resource_claims.go`` of ``pkg/quota/v1/evaluator/core``).

Extended resources that map to a DeviceClass (``extendedResourceName``) are not supported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.amounts.amounts import DECIMAL, NANO, ONE, Amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_COUNT = "count/resourceclaims.resource.k8s.io"
_BY_CLASS = ".deviceclass.resource.k8s.io/devices"
_IMPLICIT = "requests.deviceclass.resource.kubernetes.io/"
_MOST = 32  # AllocationResultsMaxSize: what "All" is charged as


def device_charge(claim: Mapping[str, Any]) -> dict[str, Amount]:
    """Count the devices of each class; of alternative requests the largest counts."""
    number: dict[str, int] = {}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        worst: dict[str, int] = {}
        for one in request.get("firstAvailable") or [request.get("exactly") or {}]:
            name = one.get("deviceClassName", "")
            wanted = _MOST if one.get("allocationMode") == "All" else one.get("count") or 1
            worst[name] = max(worst.get(name, 0), wanted)
        for name, wanted in worst.items():
            number[name] = number.get(name, 0) + wanted
    amounts = {f"{name}{_BY_CLASS}": Amount(NANO * wanted, DECIMAL) for name, wanted in number.items()}
    implicit = {f"{_IMPLICIT}{name}": Amount(NANO * wanted, DECIMAL) for name, wanted in number.items()}
    return {_COUNT: ONE, **amounts, **implicit}


def names_of_devices(names: Iterable[str]) -> frozenset[str]:
    """The names in a quota that ResourceClaims can be charged to."""
    return frozenset(name for name in names if name == _COUNT or name.endswith(_BY_CLASS))
