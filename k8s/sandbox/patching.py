"""The four kinds of PATCH."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .answers import bad_request, invalid_options, not_found, unsupported_media_type
from .identity import check_body, timestamp
from .kinds import SERVICES
from .patches import json_patch, merge_patch
from .schema import json_word
from .server_side_apply import Application
from .strategic import strategic_merge

if TYPE_CHECKING:
    from .core import Core
    from .encoding import JSON
    from .requests import Query, Target
    from .writing import Writer

_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"


def patch_of(core: Core, writer: Writer, target: Target, query: Query, body: Any, media_type: str) -> tuple[int, bytes]:
    """Patch an object: 200, or 201 where an apply created it."""
    options = query.write_options()
    if media_type == _APPLY:
        return _apply(core, writer, target, query, body)
    if query.text("force"):
        problem = ("FieldValueForbidden", "force", "Forbidden: may not be specified for non-apply patch")
        raise invalid_options("PatchOptions", problem)

    def patched(obj: JSON) -> JSON:
        if media_type == _JSON_PATCH:
            return json_patch(obj, body)
        if media_type == _MERGE_PATCH and not isinstance(body, dict):
            raise bad_request(f"error decoding patch: json: cannot unmarshal {json_word(body)} into Go value of type "
                              "map[string]interface {}")  # fmt: skip
        if media_type == _MERGE_PATCH:
            merged: JSON = merge_patch(obj, body)
            return merged
        if not target.kind.strategic:
            raise unsupported_media_type((_JSON_PATCH, _MERGE_PATCH, _APPLY))
        return strategic_merge(obj, body, service=target.kind is SERVICES)

    return 200, writer.change(target, patched, options)


def _apply(core: Core, writer: Writer, target: Target, query: Query, body: Any) -> tuple[int, bytes]:
    if not isinstance(body, dict) or not body.get("kind") or not body.get("apiVersion"):
        raise bad_request("invalid object type: /, Kind=")
    body = check_body(target.kind, body)
    body.setdefault("metadata", {})
    options = query.write_options()
    name = body["metadata"].get("name")
    if name and name != target.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    application = Application(
        target.kind, target.name, query.text("fieldManager"), force=query.flag("force"), now=timestamp(core.clock())
    )
    if core.store.of(target.kind).get(target.place, target.name) is None:
        if target.subresource or body["metadata"].get("uid"):
            raise not_found(target.kind, target.name)
        return 201, writer.create(target, application.onto({}, body), options)
    return 200, writer.change(target, lambda obj: application.onto(obj, body), options)
