"""The four patch types, and the subresources with operations of their own: log and scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from backoff_ctrl.k8s.lab.sandbox.core import Core
from backoff_ctrl.k8s.lab.sandbox.objects.answers import (
    ApiError,
    bad,
    bad_request,
    conflict,
    invalid,
    invalid_options,
    not_found,
    unsupported_media_type,
)
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import SERVICES, Kind
from backoff_ctrl.k8s.lab.sandbox.objects.metadata import check_body, timestamp
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, dump, json_word, load

from .apply import Application
from .patches import json_patch, merge_patch, strategic_merge
from .requests import Query, Target, WriteOptions
from .writing import Writer

_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"


class Patch(NamedTuple):
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
            raise _unfit(error) from error

    return 200, writer.change(target, patched, patch.options)


def _patched(target: Target, obj: JSON, patch: Patch) -> JSON:
    if patch.media_type == _JSON_PATCH:
        return json_patch(obj, patch.body)
    if patch.media_type == _STRATEGIC:
        return strategic_merge(obj, patch.body, service=target.kind is SERVICES)
    if not isinstance(patch.body, dict):
        raise bad_request(f"error decoding patch: {json_word(patch.body)} is no object")
    merged: JSON = merge_patch(obj, patch.body)
    return merged


def _unfit(error: ApiError) -> ApiError:
    """422 for a patch whose result is not an object of the kind."""
    why = error.status["message"].partition(" cannot be handled as a ")[2].partition(": ")[2]
    text = f"Invalid value: {why or error.status['message']}"
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
    body = check_body(kind, body, strict=True)
    application = Application(kind, target.subresource, query.text("fieldManager"), force=query.flag("force"),
                              now=timestamp(core.clock()))  # fmt: skip
    if core.store.of(kind).get(target.place, target.name) is not None:
        return 200, writer.change(target, lambda obj: application.onto(obj, body), patch.options, applied=True)
    if target.subresource:
        raise not_found(kind, target.name)
    if (body.get("metadata") or {}).get("uid"):
        text = f"the provided object specified uid {body['metadata']['uid']}, and no existing object was found"
        raise conflict(kind, target.name, f"uid mismatch: {text}")
    created = application.onto({}, body)
    created["metadata"].pop("resourceVersion", None)
    return 201, writer.create(target, created, patch.options)


_FAKE = "sandbox://"
_NO_LOG = "The sandbox only set this pod's status to Running: there is no container, and so no log.\n"


def log_of(core: Core, target: Target, query: Query) -> bytes:
    """The log of a container: one sentence for a pod that the fake kubelet runs, empty for others.

    Raises 400 when the container must be named, 404.
    """
    pod = core.store.get(target.kind, target.place, target.name).parse()
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    names, first = ([each["name"] for each in spec.get(field) or ()] for field in ("containers", "initContainers"))
    wanted = query.text("container")
    if not wanted and len(names) > 1:
        choices = f"choose one of: [{' '.join(names)}]"
        raise bad_request(f"a container name must be specified for pod {target.name}, {choices}")
    if wanted and wanted not in (*names, *first):
        raise bad_request(f"container {wanted} is not valid for pod {target.name}")
    statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return _NO_LOG.encode() if any(str(each.get("containerID", "")).startswith(_FAKE) for each in statuses) else b""


_SCALES = Kind("autoscaling", "v1", "scales", "Scale")


def scale_of(obj: JSON) -> JSON:
    """The Scale of an object that has replicas."""
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {field: obj["metadata"][field] for field in fields}
    spec = {"replicas": (obj.get("spec") or {}).get("replicas", 0)}
    status: JSON = {"replicas": (obj.get("status") or {}).get("replicas", 0)}
    selector = (obj.get("spec") or {}).get("selector") or {}
    labels = selector.get("matchLabels", selector)
    if labels:
        status["selector"] = ",".join(f"{name}={labels[name]}" for name in sorted(labels))
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def set_scale(writer: Writer, target: Target, scale: Any, options: WriteOptions) -> bytes:
    """Replace the Scale. Raises 400, 422."""
    spec = scale.get("spec") if isinstance(scale, dict) else None
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise bad_request('Scale in version "v1" cannot be handled as a Scale: spec.replicas is no number')
    if replicas < 0:
        problem = bad("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid(_SCALES, target.name, [problem])

    def resized(obj: JSON) -> JSON:
        obj.setdefault("spec", {})["replicas"] = replicas
        return obj

    return dump(scale_of(load(writer.change(replace(target, subresource=""), resized, options))))


def patch_scale(core: Core, writer: Writer, target: Target, patch: Patch) -> bytes:
    """Patch the Scale. Raises 400, 422."""
    scale = scale_of(core.store.get(target.kind, target.place, target.name).parse())
    patched = json_patch(scale, patch.body) if patch.media_type == _JSON_PATCH else merge_patch(scale, patch.body)
    return set_scale(writer, target, patched, patch.options)
