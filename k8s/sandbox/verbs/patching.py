"""The four patch types."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from backoff_ctrl.k8s.sandbox.core import Core
from backoff_ctrl.k8s.sandbox.objects.answers import (
    ApiError,
    bad_request,
    conflict,
    invalid_options,
    not_found,
    unexpected,
    unsupported_media_type,
)
from backoff_ctrl.k8s.sandbox.objects.kinds import SERVICES
from backoff_ctrl.k8s.sandbox.objects.metadata import check_body, timestamp
from backoff_ctrl.k8s.sandbox.objects.schema import json_word, unknown_fields
from backoff_ctrl.k8s.sandbox.objects.texts import JSON
from backoff_ctrl.k8s.sandbox.verbs.apply import Application
from backoff_ctrl.k8s.sandbox.verbs.patches import json_patch, merge_patch, strategic_merge
from backoff_ctrl.k8s.sandbox.verbs.requests import Query, Target, WriteOptions
from backoff_ctrl.k8s.sandbox.verbs.writing import Writer

_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"


class Patch(NamedTuple):
    """A patch as the client sent it."""

    body: Any
    media_type: str
    options: WriteOptions


def patch_of(core: Core, writer: Writer, target: Target, query: Query, patch: Patch) -> tuple[int, bytes]:
    """Patch an object: 200, or 201 when an apply created it."""
    if patch.media_type == _APPLY:
        return _apply(core, writer, target, query, patch)
    if query.has("force"):
        problem = ("FieldValueForbidden", "force", "Forbidden: may not be specified for non-apply patch")
        raise invalid_options("PatchOptions", problem)
    if patch.media_type == _STRATEGIC and not target.kind.strategic:
        raise unsupported_media_type((_JSON_PATCH, _MERGE_PATCH, _APPLY))

    def patched(obj: JSON) -> JSON:
        result = _patched(target, obj, patch)
        try:
            return check_body(target.kind, result, strict=patch.options.strict)
        except ApiError as error:
            if error.code != 400:
                raise
            raise _unfit(result, error) from error

    return 200, writer.change(target, patched, patch.options)


def _patched(target: Target, obj: JSON, patch: Patch) -> JSON:
    if patch.media_type == _JSON_PATCH:
        return json_patch(obj, patch.body)
    if patch.media_type == _STRATEGIC:
        return strategic_merge(obj, patch.body, service=target.kind is SERVICES)
    if patch.body is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(patch.body, dict):
        raise bad_request(f"error decoding patch: json: cannot unmarshal {json_word(patch.body)} into Go value of type "
                          "map[string]interface {}")  # fmt: skip
    merged: JSON = merge_patch(obj, patch.body)
    return merged


def _unfit(result: JSON, error: ApiError) -> ApiError:
    """422 for a patch whose result is not an object of the kind; the message shows the whole result."""
    why = error.status["message"].partition(" cannot be handled as a ")[2].partition(": ")[2]
    shown = json.dumps(json.dumps(result, separators=(",", ":"), sort_keys=True))
    text = f"Invalid value: {shown}: {why or error.status['message']}"
    causes = [{"reason": "FieldValueInvalid", "message": text, "field": "patch"}]
    return ApiError(422, "Invalid", f' "" is invalid: patch: {text}', {"causes": causes})


def _apply(core: Core, writer: Writer, target: Target, query: Query, patch: Patch) -> tuple[int, bytes]:
    kind, body = target.kind, patch.body if isinstance(patch.body, dict) else {}
    group_version, named = body.get("apiVersion") or "", body.get("kind") or ""
    if (group_version, named) != (kind.api_version, kind.kind):
        shown = group_version if "/" in str(group_version) else f"/{group_version}"
        raise bad_request(f"invalid object type: {shown}, Kind={named}")
    name = (body.get("metadata") or {}).get("name")
    if name and name != target.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    unknown = unknown_fields(kind, body)
    if unknown:
        about = f"{target.place}/{target.name}; {kind.group}/{kind.version}, Kind={kind.kind}"
        raise unexpected(f"failed to create typed patch object ({about}): .{unknown[0]}: field not declared in schema")
    body = check_body(kind, body)
    application = Application(kind, target.subresource, query.text("fieldManager"), force=query.flag("force"),
                              now=timestamp(core.clock()))  # fmt: skip
    if core.store.of(kind).get(target.place, target.name) is not None:
        return 200, writer.change(target, lambda obj: application.onto(obj, body), patch.options, applied=True)
    if target.subresource:
        raise not_found(kind, target.name)
    uid = (body.get("metadata") or {}).get("uid")
    if uid:
        text = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(kind, target.name, text)
    created = application.onto({}, body)
    created["metadata"].pop("resourceVersion", None)
    return 201, writer.create(target, created, patch.options)
