"""Cluster IPs and node ports of Services: each is allocated once and kept for the life of the Service."""

from __future__ import annotations

import random
from functools import cached_property
from ipaddress import IPv4Address
from typing import Any

from backoff_ctrl.k8s.sandbox.objects.answers import ApiError, bad, invalid
from backoff_ctrl.k8s.sandbox.objects.kinds import SERVICES
from backoff_ctrl.k8s.sandbox.objects.store import Store
from backoff_ctrl.k8s.sandbox.objects.texts import JSON

_FIRST = int(IPv4Address("10.96.0.0"))
_COUNT = 2**20
_NODE_PORTS = range(30000, 32768)
_OUTSIDE = frozenset({"NodePort", "LoadBalancer"})


def give_addresses(store: Store, rng: random.Random, service: JSON, before: JSON | None) -> None:
    """Allocate what a Service's type needs; it keeps what it had. Raises 422 for a port that it cannot have."""
    spec, old = service["spec"], (before or {}).get("spec") or {}
    if spec.get("type") == "ExternalName":
        _take_addresses(spec, old)
        return
    if not spec.get("clusterIP"):
        spec["clusterIP"] = old.get("clusterIP") or _free_address(store, rng)
    if not spec.get("clusterIPs") or (
        spec["clusterIPs"] == old.get("clusterIPs") and spec["clusterIP"] != old.get("clusterIP")
    ):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if spec.get("type") in _OUTSIDE:
        _give_ports(_Ports(store, rng, service["metadata"]["name"], old), spec)
    else:
        had = _node_ports(old)
        for port in spec.get("ports") or ():
            if port.get("nodePort") == had.get(_key(port)):
                port.pop("nodePort", None)


def _take_addresses(spec: JSON, old: JSON) -> None:
    """Remove the addresses that an ExternalName had before; new ones stay, so that validation refuses them."""
    for field in ("clusterIP", "clusterIPs"):
        if not spec.get(field) or spec[field] == old.get(field):
            spec.pop(field, None)


def _free_address(store: Store, rng: random.Random) -> str:
    taken = {spec.get("clusterIP") for spec in _specs(store)}
    while (address := str(IPv4Address(_FIRST + rng.randrange(1, _COUNT)))) in taken:
        pass
    return address


class _Ports:
    """The node ports of one Service while they are allocated, and those that all Services have."""

    def __init__(self, store: Store, rng: random.Random, name: str, old: JSON) -> None:
        self._store, self._rng, self._name = store, rng, name
        self.had = _node_ports(old)
        self._outside_before = old.get("type") in _OUTSIDE
        self._shared: set[tuple[Any, Any]] = set()
        self._seen: set[tuple[Any, Any]] = set()

    @cached_property
    def _taken(self) -> set[Any]:
        """All allocated node ports; computed only when another one is needed."""
        specs = (spec for spec in _specs(self._store) if spec.get("type") in _OUTSIDE)
        return {port.get("nodePort") for spec in specs for port in spec.get("ports") or ()}

    def draw(self) -> int | None:
        """Allocate a free port; None where all are taken."""
        free = [each for each in _NODE_PORTS if each not in self._taken]
        number = self._rng.choice(free) if free else None
        self._taken.add(number)
        return number

    def reserve(self, index: int, port: JSON) -> None:
        """Allocate the requested port. Raises 422 for one that is taken, and 500 where the real server does."""
        number = port["nodePort"]
        key = (port.get("protocol"), number)
        if self._outside_before and key in self._seen:
            raise ApiError(500, "", f"duplicate nodePort: {{{key[0]} {number}}}")
        self._seen.add(key)
        # Ports of two protocols may share a number; new ones only if they belong to the same Service port.
        shared = (None if self._outside_before else port.get("port"), number)
        if (self._outside_before and number in self.had.values()) or shared in self._shared:
            return
        self._shared.add(shared)
        text = ""
        if number not in _NODE_PORTS:
            text = "provided port is not in the valid range. The range of valid ports is 30000-32767"
        elif number in self._taken:
            text = "provided port is already allocated"
        if text:
            raise invalid(SERVICES, self._name, [bad(f"spec.ports[{index}].nodePort", number, text)])
        self._taken.add(number)


def _give_ports(ports: _Ports, spec: JSON) -> None:
    wanted = spec.get("type") == "NodePort" or spec.get("allocateLoadBalancerNodePorts", True)
    for index, port in enumerate(spec.get("ports") or ()):
        kept = ports.had.get(_key(port))
        if not port.get("nodePort") and kept:
            port["nodePort"] = kept
        if port.get("nodePort"):
            ports.reserve(index, port)
        elif wanted and (number := ports.draw()):
            port["nodePort"] = number


def _node_ports(spec: JSON) -> dict[tuple[Any, Any], Any]:
    return {_key(port): port.get("nodePort") for port in spec.get("ports") or ()}


def _key(port: JSON) -> tuple[Any, Any]:
    return port.get("port"), port.get("protocol")


def _specs(store: Store) -> list[JSON]:
    return [stored.parse().get("spec") or {} for stored in store.of(SERVICES).within(None)]
