"""Request bodies: JSON or YAML, bounded, never anything that could run or grow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from .answers import ApiError, bad_request, unsupported_media_type
from .protobuf import PROTOBUF_TYPE, read_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable

JSON_TYPE = "application/json"
YAML_TYPES = frozenset({"application/yaml", "application/apply-patch+yaml"})
BODY_TYPES = (JSON_TYPE, "application/yaml", PROTOBUF_TYPE)
PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML whose dates stay text and which knows no aliases (they can grow without bound)."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted")
        return super().compose_node(parent, index)


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def media_type(header: str | None) -> str:
    """The type alone, without parameters."""
    return (header or JSON_TYPE).partition(";")[0].strip().lower()


def read_body(data: bytes, header: str | None, kind_name: str = "") -> Any:
    """Parse the body of a create, update or delete. Raises 400 for what can't be parsed, 415 for another type."""
    given = media_type(header)
    if given not in BODY_TYPES:
        if given not in {"", "*/*", "application/x-www-form-urlencoded"}:
            raise unsupported_media_type(BODY_TYPES)
        given = JSON_TYPE
    if given == PROTOBUF_TYPE:
        return read_protobuf(data)
    try:
        return _parsed(_yaml if given in YAML_TYPES else json.loads, data)
    except ValueError as error:
        reason = f"couldn't get version/kind; json parse error: {error}"
        if kind_name:
            reason = f"the object provided is unrecognized (must be of type {kind_name}): {reason} ({_start(data)})"
        raise bad_request(reason) from error


def read_patch(data: bytes, header: str | None) -> Any:
    """Parse the body of a patch. Raises 400 and 415."""
    given = media_type(header)
    if given not in PATCH_TYPES:
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    try:
        return _parsed(_yaml if given in YAML_TYPES else json.loads, data)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from error


def _start(data: bytes) -> str:
    """The beginning of a body, as Kubernetes shows what it could not read."""
    return data[:32].hex() if data else "<empty>"


def _parsed(parse: Callable[[bytes], Any], data: bytes) -> Any:
    """Parse; every way to fail becomes a ``ValueError`` with a sentence."""
    if not data.strip():
        raise ValueError("unexpected end of JSON input")
    try:
        return parse(data)
    except (yaml.YAMLError, RecursionError, UnicodeError) as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def _yaml(data: bytes) -> Any:
    if data.lstrip()[:1] in {b"{", b"["}:
        try:
            return json.loads(data)
        except ValueError:
            return yaml.load(data, Loader=_PlainLoader)  # noqa: S506 - a SafeLoader
    return yaml.load(data, Loader=_PlainLoader)  # noqa: S506 - a SafeLoader
