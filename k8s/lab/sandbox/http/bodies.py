"""Request bodies: JSON, YAML or protobuf. Parsing neither runs code nor expands aliases."""

from __future__ import annotations

from typing import Any

import yaml

from backoff_ctrl.k8s.lab.sandbox.objects.answers import ApiError, bad_request, unsupported_media_type
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import Kind
from backoff_ctrl.k8s.lab.sandbox.objects.protobuf import PROTOBUF_TYPE, read_protobuf
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, dump, json_word, parse
from backoff_ctrl.k8s.lab.sandbox.objects.yaml_text import BodyLoader

JSON_TYPE = "application/json"
_YAML_TYPES = frozenset({"application/yaml", "application/apply-patch+yaml"})
_BODY_TYPES = (JSON_TYPE, "application/yaml", PROTOBUF_TYPE)
_PATCH_TYPES = frozenset(
    {
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    }
)


def media_type(header: str | None) -> str:
    return (header or JSON_TYPE).partition(";")[0].strip().lower()


def read_body(data: bytes, header: str | None) -> JSON:
    """Parse an object by its media type. Raises 400 for a malformed body, 415 for another type."""
    given = media_type(header)
    if given in {"", "*/*"}:
        given = JSON_TYPE
    if given not in _BODY_TYPES:
        raise unsupported_media_type(_BODY_TYPES)
    parsed = read_protobuf(data) if given == PROTOBUF_TYPE else _read(data, given)
    if not isinstance(parsed, dict):
        raise bad_request(f"couldn't get version/kind; json parse error: {json_word(parsed)} is no object")
    for field in ("apiVersion", "kind"):
        if not isinstance(parsed.get(field, ""), str | None):
            raise bad_request(f"couldn't get version/kind; json parse error: {field} is not a string")
    return parsed


def read_object(kind: Kind, data: bytes, header: str | None) -> JSON:
    """Parse the body of a create or a replace. Raises 400 and 415."""
    try:
        body = read_body(data, header)
        for field, label in (("kind", "Kind"), ("apiVersion", "apiVersion")):
            if not body.get(field) and not kind.strategic:
                raise bad_request(f"Object '{label}' is missing in '{data.decode(errors='replace')}'")
    except ApiError as error:
        if error.code != 400:
            raise
        what = f"the object provided is unrecognized (must be of type {kind.kind})"
        raise bad_request(f"{what}: {error.status['message']}") from error
    return body


def read_patch(data: bytes, header: str | None) -> Any:
    """Parse the body of a patch. Raises 400 and 415."""
    given = media_type(header)
    if given not in _PATCH_TYPES:
        raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    return _read(data, given)


def _read(data: bytes, given: str) -> Any:
    """Parse JSON or YAML. JSON sent as YAML is not given to the YAML parser, which would take seconds. Raises 400."""
    if given not in _YAML_TYPES or data.lstrip()[:1] == b"{":
        try:
            return parse(data)
        except ValueError as error:
            if given not in _YAML_TYPES or isinstance(error.__cause__, RecursionError):
                raise bad_request(f"couldn't read the body: {error}") from error
    try:
        found = yaml.load(data, Loader=BodyLoader)  # noqa: S506 - a SafeLoader
        dump(found)  # an escape that is no character, or a key that is no text, can't be stored
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise bad_request(f"error converting YAML to JSON: yaml: {' '.join(str(error).split())}") from error
    return found
