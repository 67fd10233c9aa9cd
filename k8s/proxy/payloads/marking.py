"""Marks a create: the name that was drawn, and the annotations by which its object is recognised. The rest stays."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.creates.naming import BODY_HASH, CREATE_ID

from .json_text import mark_json
from .payload import Form, Payload
from .protobuf import mark_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from backoff_ctrl.k8s.creates.naming import Named

    Marker = Callable[[bytes, str, Mapping[str, str], Collection[str]], bytes | None]

OURS: Final = frozenset({CREATE_ID, BODY_HASH})
"""Annotations that are copies if the creator's body has them, as in a manifest exported from a living pod."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What is written into a body's metadata. ``name``: empty if the body names its object itself.

    ``dropped``: annotations that go, unless they are written anew.
    """

    name: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()


def mark_of(named: Named) -> Mark:
    """Return the mark of a create: what ``Named.body`` changes."""
    name = named.name if named.minted else ""
    if named.kept:
        return Mark(name)
    return Mark(name, {CREATE_ID: named.create_id, **({BODY_HASH: named.body_hash} if named.body_hash else {})}, OURS)


def marked(payload: Payload, mark: Mark) -> Payload | None:
    """Return the payload with a mark, in the same form; None if it can't be marked and is to be sent as it is.

    Never marked is a server-side apply: the marks would belong to its field manager, and the next apply would take them
    away. Raises ``PayloadError`` as ``read`` does.
    """
    if payload.form is None or payload.is_apply_patch:
        return None
    marker: Marker = {Form.JSON: mark_json, Form.PROTOBUF: mark_protobuf, Form.YAML: _mark_yaml}[payload.form]
    body = marker(payload.body, mark.name, mark.annotations, mark.dropped)
    return None if body is None else replace(payload, body=body)


def _mark_yaml(body: bytes, name: str, annotations: Mapping[str, str], dropped: Collection[str]) -> bytes | None:
    from .yaml_text import mark_yaml  # noqa: PLC0415 - loads in 20 ms, which hardly any creator needs

    return mark_yaml(body, name, annotations, dropped)
