"""Subresources with operations of their own: binding, eviction, scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.sandbox.kinds.answers import bad_request, conflict, invalid, unexpected
from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
from backoff_ctrl.k8s.sandbox.merging.patches import json_patch, merge_patch
from backoff_ctrl.k8s.sandbox.storage.identity import timestamp
from backoff_ctrl.k8s.sandbox.wire.encoding import JSON, dump, load

from .requests import Target

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.core import Core

    from .deleting import Deleter
    from .requests import Query, WriteOptions
    from .writing import Writer


_BINDINGS = Kind("", "v1", "pods/binding", "Binding")
_SCALES = Kind("autoscaling", "v1", "scales", "Scale")


class Subresources:
    """Binds and evicts pods, and scales the kinds that create pods."""

    def __init__(self, core: Core, writer: Writer, deleter: Deleter) -> None:
        """Work with these parts of the sandbox."""
        self._core = core
        self._writer = writer
        self._deleter = deleter

    def act(self, target: Target, query: Query, body: Any) -> bytes:
        """Bind a pod to a node, or evict it. Raises 400, 404, 409."""
        named = (body.get("metadata") or {}).get("name")
        if target.subresource == "eviction":
            if named and named != target.name:
                raise bad_request("name in URL does not match name in Eviction object")
            self._deleter.delete(Target(target.kind, target.namespace, target.name), query, body.get("deleteOptions"))
        else:
            self._bind(target, str((body.get("target") or {}).get("name") or ""))
        return dump({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})

    def _bind(self, target: Target, node: str) -> None:
        if not node:
            raise unexpected("target.name: Required value")
        store = self._core.store
        stored = store.get(target.kind, target.place, target.name)
        pod = stored.parse()
        if pod["spec"].get("nodeName"):
            text = f'pod {target.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
            raise conflict(_BINDINGS, target.name, text)
        pod["spec"]["nodeName"] = node
        conditions = [each for each in pod["status"].get("conditions") or () if each.get("type") != "PodScheduled"]
        now = timestamp(self._core.clock())
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        pod["status"]["conditions"] = [*conditions, scheduled]
        store.replace(target.kind, stored, pod)

    def scale_of(self, obj: JSON) -> JSON:
        """The Scale of an object that has replicas."""
        metadata = {
            field: obj["metadata"][field]
            for field in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        }
        spec = {"replicas": (obj.get("spec") or {}).get("replicas", 0)}
        status: JSON = {"replicas": (obj.get("status") or {}).get("replicas", 0)}
        selector = (obj.get("spec") or {}).get("selector") or {}
        labels = selector.get("matchLabels", selector)
        if labels:
            status["selector"] = ",".join(f"{name}={labels[name]}" for name in sorted(labels))
        return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}

    def set_scale(self, target: Target, body: Any, options: WriteOptions) -> bytes:
        """Replace the Scale. Raises 400, 422."""
        spec = body.get("spec") if isinstance(body, dict) else None
        replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
        if isinstance(replicas, bool) or not isinstance(replicas, int):
            text = "json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32"
            raise bad_request(f'Scale in version "v1" cannot be handled as a Scale: {text}')
        if replicas < 0:
            text = f"Invalid value: {replicas}: must be greater than or equal to 0"
            raise invalid(_SCALES, target.name, [("FieldValueInvalid", "spec.replicas", text)])

        def resized(obj: JSON) -> JSON:
            obj.setdefault("spec", {})["replicas"] = replicas
            return obj

        plain = Target(target.kind, target.namespace, target.name)
        changed = self._writer.change(plain, resized, options)
        return dump(self.scale_of(load(changed)))

    def patch_scale(self, target: Target, body: Any, media_type: str, options: WriteOptions) -> bytes:
        """Patch the Scale. Raises 400."""
        scale = self.scale_of(self._core.store.get(target.kind, target.place, target.name).parse())
        patched = json_patch(scale, body) if media_type == "application/json-patch+json" else merge_patch(scale, body)
        return self.set_scale(target, patched, options)
