"""Addresses and node ports of Services: given once, kept for life."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

from .kinds import SERVICES

if TYPE_CHECKING:
    import random

    from .encoding import JSON
    from .store import Store

_FIRST = int(IPv4Address("10.96.0.0"))
_COUNT = 2**20
_NODE_PORTS = range(30000, 32768)
_OUTSIDE = frozenset({"NodePort", "LoadBalancer"})


def give_addresses(store: Store, rng: random.Random, spec: JSON, before: JSON | None) -> None:
    """Fill in what a Service's type asks for; what it had, it keeps."""
    old = before or {}
    if spec.get("type") == "ExternalName":
        return
    if not spec.get("clusterIP"):
        spec["clusterIP"] = old.get("clusterIP") or _free_address(store, rng)
    if not spec.get("clusterIPs") or (
        spec["clusterIPs"] == old.get("clusterIPs") and spec["clusterIP"] != old.get("clusterIP")
    ):
        spec["clusterIPs"] = [spec["clusterIP"]]
    _give_ports(store, rng, spec, old)


def _free_address(store: Store, rng: random.Random) -> str:
    taken = {spec.get("clusterIP") for spec in _specs(store)}
    while (address := str(IPv4Address(_FIRST + rng.randrange(1, _COUNT)))) in taken:
        pass
    return address


def _give_ports(store: Store, rng: random.Random, spec: JSON, old: JSON) -> None:
    had = {(port.get("port"), port.get("protocol")): port.get("nodePort") for port in old.get("ports") or ()}
    wanted = spec.get("type") == "NodePort" or (
        spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
    )
    taken: set[Any] | None = None
    for port in spec.get("ports") or ():
        kept = had.get((port.get("port"), port.get("protocol")))
        if spec.get("type") not in _OUTSIDE:
            if port.get("nodePort") == kept:
                port.pop("nodePort", None)
        elif not port.get("nodePort") and kept:
            port["nodePort"] = kept
        elif not port.get("nodePort") and wanted:
            if taken is None:
                taken = {each.get("nodePort") for found in _specs(store) for each in found.get("ports") or ()}
            free = [each for each in _NODE_PORTS if each not in taken]
            if free:
                port["nodePort"] = rng.choice(free)
                taken.add(port["nodePort"])


def _specs(store: Store) -> list[JSON]:
    return [stored.parse().get("spec") or {} for stored in store.of(SERVICES).within(None)]
