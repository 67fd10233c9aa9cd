"""Request bodies: JSON or YAML, limited in size, and safe: parsing neither runs code nor expands aliases."""

from __future__ import annotations

import re
from typing import Any

import yaml

from backoff_ctrl.k8s.sandbox.objects.answers import ApiError, bad_request, unsupported_media_type
from backoff_ctrl.k8s.sandbox.objects.kinds import Kind
from backoff_ctrl.k8s.sandbox.objects.protobuf import PROTOBUF_TYPE, read_protobuf
from backoff_ctrl.k8s.sandbox.objects.schema import cannot_handle, json_word
from backoff_ctrl.k8s.sandbox.objects.texts import JSON, NO_MORE, TooDeepError, dump, parse, repeated_fields, summary

JSON_TYPE = "application/json"
YAML_TYPES = frozenset({"application/yaml", "application/apply-patch+yaml"})
BODY_TYPES = (JSON_TYPE, "application/yaml", PROTOBUF_TYPE)
PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_PATCH_WORDS = {PATCH_TYPES[2]: "", PATCH_TYPES[3]: "error decoding YAML: error converting YAML to JSON: "}
_NO_VERSION = "couldn't get version/kind; json parse error: "
_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


_YAML_WORDS = (
    (r"^expected (.*?),? but .*", r"did not find expected \1"),
    (r"^found character .* that cannot", "found character that cannot"),
    (r"not allowed here$", "not allowed in this context"),
)


class _PlainLoader(yaml.SafeLoader):
    """Safe YAML that keeps dates as text and refuses aliases (which can expand without bound)."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Build a node, but no alias: a few lines of aliases can expand to gigabytes. Raises ``YAMLError`` for one."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted")
        return super().compose_node(parent, index)


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def media_type(header: str | None) -> str:
    """The media type of a ``Content-Type`` header, without parameters."""
    return (header or JSON_TYPE).partition(";")[0].strip().lower()


def read_body(data: bytes, header: str | None) -> JSON:
    """Parse a body by its media type. Raises 400 for a malformed body, 415 for another type."""
    given = media_type(header)
    if given not in BODY_TYPES:
        if given not in {"", "*/*"}:
            raise unsupported_media_type(BODY_TYPES)
        given = JSON_TYPE
    if given == PROTOBUF_TYPE:
        found: JSON = read_protobuf(data)
        return found
    try:
        parsed = _yaml(data) if given in YAML_TYPES else parse(data)
    except ValueError as error:
        raise bad_request(("" if given in YAML_TYPES else _NO_VERSION) + str(error)) from error
    if not isinstance(parsed, dict):
        text = f"json: cannot unmarshal {json_word(parsed)} into Go value of type {_TYPE_META}"
        raise bad_request(_NO_VERSION + text)
    for field in ("apiVersion", "kind"):
        if not isinstance(parsed.get(field, ""), str | None):
            word = json_word(parsed[field])
            text = f"json: cannot unmarshal {word} into Go struct field .{field} of type string"
            raise bad_request(_NO_VERSION + text)
    return parsed


def read_json(data: bytes) -> Any:
    """Parse any JSON value. Raises 400."""
    try:
        return parse(data)
    except ValueError as error:
        raise bad_request(str(error)) from error


def read_object(kind: Kind, data: bytes, header: str | None, *, strict: bool = False) -> JSON:
    """Parse the body of a create or a replace. ``strict`` refuses repeated fields. Raises 400 and 415."""
    try:
        body = read_body(data, header)
        missing = next((f for f, label in (("kind", "Kind"), ("apiVersion", "apiVersion")) if not body.get(f)), "")
        if missing and not kind.strategic:
            label = {"kind": "Kind"}.get(missing, missing)
            text = data.decode(errors="replace")
            raise bad_request(f"Object '{label}' is missing in '{text}'")
    except ApiError as error:
        if error.code != 400 or media_type(header) == PROTOBUF_TYPE:
            raise
        why = f"the object provided is unrecognized (must be of type {kind.kind}): {error.status['message']}"
        raise bad_request(f"{why} ({summary(data)})") from error
    if strict:
        repeated = repeated_fields(data)
        if repeated:
            listed = ", ".join(f'duplicate field "{path}"' for path in repeated)
            raise cannot_handle(kind, f"strict decoding error: {listed}")
    return body


def read_patch(data: bytes, header: str | None) -> Any:
    """Parse the body of a patch. Raises 400 and 415."""
    given = media_type(header)
    if given not in PATCH_TYPES:
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    try:
        return _yaml(data) if given in YAML_TYPES else parse(data)
    except ValueError as error:
        raise bad_request(f"{_PATCH_WORDS.get(given, 'error decoding patch: ')}{error}") from error


def _yaml(data: bytes) -> Any:
    """Parse YAML, or JSON sent as YAML. Raises ``ValueError`` with a message like those of Go's library."""
    if not data.strip():
        raise ValueError(NO_MORE)
    try:
        data.decode()
        if data.lstrip()[:1] in {b"{", b"["} and b"\\u" not in data:  # YAML does not know surrogate pairs
            try:
                return parse(data)
            except TooDeepError:
                raise  # the YAML parser would take seconds to find out
            except ValueError:
                return _loaded(data)
        return _loaded(data)
    except UnicodeDecodeError as error:
        raise ValueError("yaml: invalid leading UTF-8 octet") from error
    except yaml.YAMLError as error:
        raise ValueError(f"yaml: {_yaml_error(error)}") from error
    except (TooDeepError, RecursionError) as error:
        raise ValueError("yaml: exceeded max depth of 10000") from error


def _loaded(data: bytes) -> Any:
    found = yaml.load(data, Loader=_PlainLoader)  # noqa: S506 - a SafeLoader
    if b"\\" in data:
        try:
            dump(found)
        except UnicodeEncodeError as error:
            raise yaml.YAMLError("found invalid Unicode character escape code") from error
    return found


def _yaml_error(error: yaml.YAMLError) -> str:
    """Go's message: both libraries are ports of libyaml, so their messages begin alike."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if not problem:
        return " ".join(str(error).split())
    for words, others in _YAML_WORDS:
        problem = re.sub(words, others, problem)
    scanned = isinstance(error, yaml.scanner.ScannerError)  # Go counts the lines of a parser's errors from 0
    return f"line {mark.line + scanned}: {problem}" if mark is not None and mark.line else str(problem)
