"""What only a cluster knows of ResourceClaims: the templates that pods name, and what DeviceClasses stand for.

``reading`` asks for the templates that parts name. Together with ``reading_classes`` it lists the DeviceClasses: a
class may stand for an extended resource, under whose name the server charges its devices as well. ``with_devices`` adds
that to parts, ``footprint_with_devices`` to a whole footprint. A template that can't be read leaves its claims charged
by their number alone. Pure: only who drives a reading asks.

Sources: ``pkg/quota/v1/evaluator/core/resource_claims.go`` (``addExtendedResourceQuota``) and
``pkg/controller/resourceclaim/controller.go`` of k8s.io/kubernetes v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlencode

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.k8s.kube.answers.fields import FieldError, mapping, mapping_in
from backoff_ctrl.k8s.kube.answers.paging import PAGE, EndlessListError, Pages, is_list
from backoff_ctrl.k8s.kube.paths import PathError, path_to

from .devices import Classes, classes_of, with_extended
from .footprint import charge
from .parts import Footprint, Part
from .resources import DEVICE_CLAIMS

T = TypeVar("T")
Answer: TypeAlias = tuple[int, Mapping[str, Any]]
"""The status of an answer, 0 without an answer, and its object."""
Reading: TypeAlias = Generator[str, Answer, T]
"""Yields paths at the API server with their queries, and takes its answers."""
GROUP: Final = "/apis/resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Of the group ``resource.k8s.io``, the newest first: Kubernetes 1.34, 1.33 and 1.32."""
OK: Final = 200
NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class Devices:
    """What a cluster says of devices.

    ``templates``: the specs of the claims, by the name of their ResourceClaimTemplate. ``classes``: the extended
    resource of each DeviceClass that has one, ``nvidia.com/gpu``; None: they can't be listed.
    """

    templates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    classes: Classes | None = None


UNKNOWN: Final = Devices()


def templates_named(parts: Iterable[Part]) -> tuple[str, ...]:
    """Return the ResourceClaimTemplates that parts are made from, once each."""
    return tuple(dict.fromkeys(part.claim_template for part in parts if part.claim_template))


def has_devices(whole: Footprint) -> bool:
    """Return whether ResourceClaims are among what is charged."""
    demands = (whole.demand, *(part.demand for part in whole.parts))
    return any(f"count/{DEVICE_CLAIMS}" in each.amounts for each in demands)


def drive(reading: Reading[T], ask: Callable[[str], Answer]) -> T:
    """Return what a reading learns from the answers of ``ask``."""
    try:
        path = next(reading)
        while True:
            path = reading.send(ask(path))
    except StopIteration as end:
        found: T = end.value
        return found


def reading(namespace: str, parts: Iterable[Part]) -> Reading[Devices]:
    """Ask for all that is to be known of the claims among these parts, which are made in this namespace."""
    templates: dict[str, Mapping[str, Any]] = {}
    for name in templates_named(parts):
        found = yield from _template(namespace, name)
        if found is not None:
            templates[name] = mapping_in(found.get("spec"), "spec")
    return Devices(templates, (yield from reading_classes()))


def reading_classes() -> Reading[Classes | None]:
    """List the DeviceClasses; return those that stand for an extended resource. None: they can't be listed.

    Empty on a server without DeviceClasses.
    """
    for version in VERSIONS:
        pages, listed, more = Pages(), list[Any](), True
        while more:
            query = {"limit": PAGE} | ({"continue": pages.token} if pages.token else {})
            status, page = yield f"{path_to(f'{GROUP}/{version}', 'deviceclasses')}?{urlencode(query)}"
            if status == NOT_FOUND:
                break
            if status != OK or not is_list(page):
                return None
            listed += page["items"] or ()
            try:
                more = pages.go_on(mapping(page.get("metadata")))
            except EndlessListError:
                return None
        else:
            return classes_of(listed)
    return {}


def _template(namespace: str, name: str) -> Generator[str, Answer, Mapping[str, Any] | None]:
    for version in VERSIONS:
        try:
            path = path_to(f"{GROUP}/{version}", "resourceclaimtemplates", namespace=namespace, name=name)
        except PathError:
            return None  # no object can have this name
        status, found = yield path
        if status == OK:
            return found
    return None


def with_devices(parts: Iterable[Part], known: Devices) -> tuple[Part, ...]:
    """Return parts with what their ResourceClaims are charged for devices, as far as that is known."""
    return tuple(
        replace(part, demand=claim_charge(known.templates[part.claim_template], known))
        if part.claim_template in known.templates
        else part
        for part in parts
    )


def claim_charge(spec: Mapping[str, Any], known: Devices) -> Demand:
    """Return what a ResourceClaim of this spec is charged; by its number alone where the spec can't be read."""
    try:
        demand = charge({"kind": "ResourceClaim", "spec": spec}, DEVICE_CLAIMS)
    except FieldError:
        demand = charge({"kind": "ResourceClaim", "spec": {}}, DEVICE_CLAIMS)
    return with_extended(demand, known.classes or {})


def footprint_with_devices(whole: Footprint, known: Devices) -> Footprint:
    """Return a footprint whose ResourceClaims, its own and those that it makes, are charged for their devices."""
    if not whole.parts:
        return replace(whole, demand=with_extended(whole.demand, known.classes or {}))
    parts = with_devices(whole.parts, known)
    amounts = dict(whole.demand.amounts)
    for before, part in zip(whole.parts, parts, strict=True):
        count = 0 if part.suspended else part.count or 0
        for name, amount in part.demand.amounts.items():
            if more := (amount - before.demand.amounts.get(name, 0)) * count:
                amounts[name] = amounts.get(name, 0) + more
    return replace(whole, demand=Demand(amounts, whole.demand.scopes), parts=parts)
