"""An object of Kubernetes, read once: what each step asks of it is a field. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .fields import mapping, metadata_of, text

Key: TypeAlias = tuple[str, str]
"""The namespace (empty for cluster-scoped objects) and the name."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object, with what is asked of it at each step: read once. Fields that the server did not set are empty."""

    body: dict[str, Any]
    key: Key
    uid: str
    version: str
    labels: Mapping[str, Any] = field(default_factory=dict)
    is_going: bool = False
    """It is being deleted."""

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def name(self) -> str:
        return self.key[1]


def object_of(body: dict[str, Any]) -> Object:
    """Read an object as an answer has it. A field of another type than its own counts as missing."""
    metadata = metadata_of(body)
    return Object(
        body,
        (text(metadata.get("namespace")), text(metadata.get("name"))),
        text(metadata.get("uid")),
        text(metadata.get("resourceVersion")),
        mapping(metadata.get("labels")),
        bool(metadata.get("deletionTimestamp")),
    )
