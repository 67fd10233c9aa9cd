"""What a controller makes: objects of one kind, each from the same section of a manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from backoff_ctrl.k8s.charges.fields import mapping_at, required_mapping_at, text_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Objects of one kind with one spec, which a maker keeps alive at the same time."""

    kind: str
    resource: str
    """``RESOURCE[.GROUP]``, by which they are counted and their own maker is found."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""
    """The path of ``spec`` in the user's manifest, for errors; empty where the maker writes it itself."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    """The version in ``apiVersion``; only known of the manifest itself."""
    number: int | None = 1
    """How many each maker makes; ``None`` where only the cluster knows."""
    template: str = ""
    """The path of the section that a pod is made from, where its labels can be set."""
    suspended: bool = False
    """Made only when the maker is resumed."""
    makes: tuple[Made, ...] = ()
    """What these objects make, beside what their kind makes anyway."""


Maker = Callable[[Made], Iterable[Made]]
"""Returns what one object of a kind makes. Raises ``FootprintError`` for a malformed one."""


def pods_from(parent: Mapping[str, Any], key: str, at: str, number: int | None = 1, template: str = "") -> Made:
    """Return the pods that are made from the pod template in ``parent[key]``; ``at`` is the path of ``parent``.

    ``template`` is the path of the pod template in the user's manifest, where it is not ``at.key``.
    """
    path = template or (f"{at}.{key}" if at else "")  # empty where the maker writes the template itself
    spec = required_mapping_at(required_mapping_at(parent, key, at), "spec", path)
    return Made(kind="Pod", resource="pods", spec=spec, at=f"{path}.spec", number=number, template=path)


def claims_from(claim: Mapping[str, Any], at: str, number: int | None = 1) -> Made:
    """Return the PersistentVolumeClaims that are made from a claim template, which is at this path."""
    return Made(
        kind="PersistentVolumeClaim",
        resource="persistentvolumeclaims",
        spec=required_mapping_at(claim, "spec", at),
        at=f"{at}.spec",
        metadata=mapping_at(claim, "metadata", at),
        number=number,
    )


def services(kind: str = "ClusterIP", ports: int = 0, number: int = 1) -> Made:
    """Return Services of a type (``NodePort``, ..) with so many ports."""
    spec = {"type": kind, "ports": [{"port": port} for port in range(1, ports + 1)]}
    return Made(kind="Service", resource="services", spec=spec, number=number)


def counted(kind: str, resource: str, number: int = 1, *, suspended: bool = False) -> Made:
    """Return objects that are charged their count alone (``ConfigMap``, ``Role``, ..)."""
    return Made(kind=kind, resource=resource, number=number, suspended=suspended)


def is_managed_elsewhere(spec: Mapping[str, Any], at: str, controller: str) -> bool:
    """Return whether ``managedBy`` names another controller: then what it makes, and where, is unknown."""
    return text_at(spec, "managedBy", at) not in {"", controller}
