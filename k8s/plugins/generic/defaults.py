"""The platform's defaults in the pods that an operator makes: in templates, or in sections with such fields."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.plugins.templates import TEMPLATE, pod_template

from .parts import templates_of
from .paths import joined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.plugins.protocol import JSON, TaskContext

    from .config import OperatorConfig, PodsMade

_CONTAINER: Final = "container."
"""What the names of a container's fields begin with."""


def add_defaults(config: OperatorConfig, made: JSON, task: TaskContext) -> None:
    """Put the platform's defaults into an object's pods. Raises ``TaskSpecError``."""
    ready: set[int] = set()  # sections that are one, by an alias of YAML, get their defaults once
    for entry in config.pods_made:
        about = task if entry.interruptible else replace(task, metadata=replace(task.metadata, interruptible=False))
        for section, place in _sections(entry, made):
            if id(section) not in ready:
                path = joined(TEMPLATE, place)
                whole = (
                    _filled(section, entry.fields, path, about) if entry.fields else pod_template(about, section, path)
                )
                section.clear()
                section.update(whole)
                ready.add(id(section))


def _sections(entry: PodsMade, made: JSON) -> list[tuple[JSON, str]]:
    """Return what an entry fills in, each with where it lies."""
    if not entry.defaults:
        return []
    if entry.fields:
        return [(found, place) for found, place in entry.section.places(made) if isinstance(found, dict)]
    return [(template, place) for template, place, _ in templates_of(entry, made)]


def _filled(section: JSON, fields: Mapping[str, str], path: str, task: TaskContext) -> JSON:
    """Return a section with the fields that a pod made of it would have."""
    container: JSON = {"name": "main", "image": "any"}
    spec: JSON = {"containers": [container]}
    for own, name in fields.items():
        if section.get(own) is not None:
            _holder(spec, name)[name.removeprefix(_CONTAINER)] = section[own]
    ready = pod_template(task, {"spec": spec}, path)["spec"]
    found: dict[str, Any] = {
        own: _holder(ready, name).get(name.removeprefix(_CONTAINER)) for own, name in fields.items()
    }
    return {**section, **{own: value for own, value in found.items() if value not in (None, [], {})}}


def _holder(spec: JSON, name: str) -> JSON:
    holder: JSON = spec["containers"][0] if name.startswith(_CONTAINER) else spec
    return holder
