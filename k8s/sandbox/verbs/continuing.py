"""Continue tokens: where the next page of a list begins, worded as ``k8s.io/apiserver`` ``pkg/storage/continue.go``."""

from __future__ import annotations

import base64
import json
import posixpath
import re
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.kinds.answers import bad_request
from backoff_ctrl.k8s.sandbox.kinds.schema import json_word
from backoff_ctrl.k8s.sandbox.wire.go_json import parse

if TYPE_CHECKING:
    from .requests import Target

NEWEST = -1
"""The version in a token that continues with the objects as they are by then."""
_VERSION = "meta.k8s.io/v1"
_FIELDS: dict[str, tuple[type, str]] = {"v": (str, "string"), "rv": (int, "int64"), "start": (str, "string")}
_NOT_BASE64 = re.compile(rb"[^-_A-Za-z0-9]")
_INT64 = range(-(2**63), 2**63)


def token_of(target: Target, version: int, last: tuple[str, str]) -> str:
    """The token that asks for the objects after ``last``, a (namespace, name)."""
    start = "/".join(part for part in last if part) if target.namespace is None else f"/{last[1]}"
    token = json.dumps({"v": _VERSION, "rv": version, "start": f"{start}\0"}, separators=(",", ":"))
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def read_token(target: Target, token: str) -> tuple[int, tuple[str, str]]:
    """Version (negative for the newest) and last object of a token. Raises 400."""
    try:
        version, start = _checked(_fields(parse(_decoded(token.encode()))))
    except ValueError as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    namespace, _, name = start.rstrip("\0").rpartition("/")
    return version, (namespace or target.place, name)


def _decoded(token: bytes) -> bytes:
    """Decode base64 without padding as Go does: it ignores line ends."""
    wrong = _NOT_BASE64.search(token.replace(b"\n", b"A").replace(b"\r", b"A"))
    bare = token.replace(b"\n", b"").replace(b"\r", b"")
    if wrong or len(bare) % 4 == 1:
        raise ValueError(f"illegal base64 data at input byte {wrong.start() if wrong else len(token) - 1}")
    return base64.urlsafe_b64decode(bare + b"=" * (-len(bare) % 4))


def _fields(found: Any) -> dict[str, Any]:
    """The fields of a token, type-checked; a null counts as absent."""
    mistyped = "" if isinstance(found, dict | None) else json_word(found)
    if mistyped:
        raise ValueError(f"json: cannot unmarshal {mistyped} into Go value of type storage.continueToken")
    said = {name: value for name, value in (found or {}).items() if name in _FIELDS and value is not None}
    for name, value in said.items():
        type_, go_type = _FIELDS[name]
        if isinstance(value, bool) or not isinstance(value, type_) or (type_ is int and value not in _INT64):
            number = f" {value}" if type_ is int and json_word(value) == "number" else ""
            word = json_word(value) + number
            raise ValueError(
                f"json: cannot unmarshal {word} into Go struct field continueToken.{name} of type {go_type}"
            )
    return said


def _checked(said: dict[str, Any]) -> tuple[int, str]:
    api_version, version, start = said.get("v", ""), said.get("rv", 0), said.get("start", "")
    if api_version != _VERSION:
        raise ValueError(f"server does not recognize this encoded version {api_version}")
    if not version:
        raise ValueError(f"incorrect encoded start resourceVersion (version {_VERSION})")
    if not start:
        raise ValueError(f"encoded start key empty (version {_VERSION})")
    key = start if start.startswith("/") else f"/{start}"
    if posixpath.normpath(key) != key or key.startswith("//"):
        raise ValueError(start)  # it would lead outside the list
    return version, start
