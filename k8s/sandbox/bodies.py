"""Request bodies: JSON or YAML, bounded, never anything that could run or grow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from .answers import bad_request, unsupported_media_type
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


def read_body(data: bytes, header: str | None, accepted: tuple[str, ...] = BODY_TYPES) -> Any:
    """Parse a body. Raises 400 for what can't be parsed, 415 for another type than those accepted."""
    given = media_type(header)
    if given not in accepted:
        if accepted == PATCH_TYPES or given not in {"", "*/*", "application/x-www-form-urlencoded"}:
            raise unsupported_media_type(given, accepted)
        given = JSON_TYPE
    if given == PROTOBUF_TYPE:
        return read_protobuf(data)
    return _parsed(_yaml if given in YAML_TYPES else json.loads, data)


def _parsed(parse: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return parse(data)
    except (ValueError, yaml.YAMLError, RecursionError, UnicodeError) as error:
        reason = str(error) or type(error).__name__
        raise bad_request(f"couldn't get version/kind; json parse error: {reason}") from error


def _yaml(data: bytes) -> Any:
    if data.lstrip()[:1] in {b"{", b"["}:
        try:
            return json.loads(data)
        except ValueError:
            return yaml.load(data, Loader=_PlainLoader)  # noqa: S506 - a SafeLoader
    return yaml.load(data, Loader=_PlainLoader)  # noqa: S506 - a SafeLoader
