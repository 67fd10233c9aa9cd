"""The pods that an operator will make of an object, where its config says which: what a gang reserves room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.charges.fields import FootprintError
from backoff_ctrl.k8s.charges.footprint import charge
from backoff_ctrl.k8s.charges.parts import Part, makes_others, parts_of
from backoff_ctrl.k8s.plugins.pods.reading import mapping
from backoff_ctrl.k8s.plugins.protocol import TaskSpecError

from .paths import joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .config import OperatorConfig, PodsMade


def gang_parts(config: OperatorConfig, resource_name: str, manifest: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return what a manifest makes: by what we know of its kind, else by the config. Raises ``TaskSpecError``."""
    try:
        if makes_others(resource_name):
            return parts_of(manifest, resource=resource_name)
        suspended = config.suspended is not None and config.suspended.first(manifest) is True
        described = [each for each in config.pods_made if not each.fields]
        found = [part for made in described for part in _parts(config, made, manifest, suspended=suspended)]
    except FootprintError as error:
        raise TaskSpecError("spec.template", str(error)) from None
    return tuple(found)


def templates_of(made: PodsMade, manifest: Mapping[str, Any]) -> Iterator[tuple[Any, str, Mapping[str, Any]]]:
    """Return each pod template that an entry of the config names: itself, where it lies, and its section."""
    for section, place in made.section.places(manifest):
        if isinstance(section, dict):
            for template, below in made.template.places(section):
                yield template, joined(place, below), section


def _parts(config: OperatorConfig, made: PodsMade, manifest: Mapping[str, Any], *, suspended: bool) -> Iterator[Part]:
    for template, place, section in templates_of(made, manifest):
        spec = mapping(template).get("spec")
        if not isinstance(spec, dict):
            raise FootprintError(f"{place}.spec: required field is missing")
        count = _count(made, section, place)
        if count:
            demand = charge({"kind": "Pod", "spec": spec}, "pods", f"{place}.spec")
            yield Part(demand, count, "Pod", config.resource.kind, place, suspended)


def _count(made: PodsMade, section: Mapping[str, Any], place: str) -> int:
    found = None if made.replicas is None else made.replicas.first(section)
    if found is None:
        return made.default_replicas
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise FootprintError(f"{place}: its number of replicas, {found!r}, is not a whole number of 0 or more")
    return found
