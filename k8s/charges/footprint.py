"""Compute what a manifest will be charged, per quota resource, before it is sent.

Pure: a dict in, a ``Demand`` out. It equals what a v1.36 server charges; ``tests/data/charges.json`` records what one
did charge. The footprint follows from the manifest alone. It lacks what only the server knows and applies before quota
admission: LimitRange defaults, the default StorageClass and PriorityClass, the overhead of a RuntimeClass that
``spec.overhead`` does not repeat, the extended resource that a DeviceClass stands for, and mutating webhooks. The
server's word (``requested:`` in a rejection, the object in a 201) is authoritative. Of a ``status`` in a manifest, the
server keeps only a pod's ``qosClass``, and so does this module.

``footprint`` is the charge of the create itself. Kinds that make pods later are charged only their own count;
``footprint_of`` adds what they make (``parts``), and marks it as estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backoff_ctrl.engine.demand import Demand

from .charge import charge
from .fields import FootprintError, mapping_at, text_at
from .parts import Part, all_parts, is_custom, makes_others, parts_of
from .resource_names import resource_of

__all__ = ["Footprint", "FootprintError", "footprint", "footprint_of"]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a manifest will be charged, with everything that it makes.

    ``estimated``: it makes objects, or is of a custom kind of which nothing is known. ``demand`` contains the parts
    whose number is known and that are not suspended; its scopes are those of any of the pods.
    """

    kind: str
    estimated: bool
    demand: Demand
    parts: tuple[Part, ...] = ()


def footprint(manifest: Mapping[str, Any], *, resource: str | None = None) -> Demand:
    """Return what the create of this manifest is charged, under every resource name that a quota could limit.

    ``resource`` is ``RESOURCE[.GROUP]`` if the caller knows it (from the URL); otherwise it is derived from kind and
    apiVersion. Raises ``FootprintError`` for a malformed manifest; its message begins with the path of the field.
    """
    return charge(_checked(manifest), resource or resource_of(manifest))


def footprint_of(manifest: Mapping[str, Any]) -> Footprint:
    """Return what a manifest will be charged, including all objects that it makes. Raises as ``footprint`` does.

    What is suspended is charged nothing yet. See ``docs/decisions/parts.md`` for what each kind makes.
    """
    resource = resource_of(_checked(manifest))
    mapping_at(manifest, "metadata", "")  # most charges do not need it, but the server rejects a malformed one
    own = charge(manifest, resource)
    kind = text_at(manifest, "kind", "")
    if not makes_others(resource):
        return Footprint(kind, estimated=is_custom(resource), demand=own)
    amounts, scopes = dict(own.amounts), set(own.scopes)
    for part in all_parts(manifest, resource):
        if part.kind == "Pod":
            scopes |= part.demand.scopes
        if part.count and not part.suspended:
            for name, amount in part.demand.amounts.items():
                amounts[name] = amounts.get(name, 0) + amount * part.count
    return Footprint(kind, estimated=True, demand=Demand(amounts, scopes), parts=parts_of(manifest, resource=resource))


def _checked(manifest: object) -> Mapping[str, Any]:
    """Raise ``FootprintError`` if the manifest is not an object."""
    if not isinstance(manifest, Mapping):
        raise FootprintError("manifest: must be an object with fields such as kind and spec")
    return manifest
