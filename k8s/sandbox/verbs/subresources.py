"""Subresources with operations of their own: log, binding, eviction, scale. There are no nodes: no exec, no attach."""

from __future__ import annotations

from typing import Any

from backoff_ctrl.k8s.sandbox.core import Core
from backoff_ctrl.k8s.sandbox.objects.answers import bad_request, conflict, invalid, unexpected
from backoff_ctrl.k8s.sandbox.objects.kinds import Kind
from backoff_ctrl.k8s.sandbox.objects.metadata import timestamp
from backoff_ctrl.k8s.sandbox.objects.texts import JSON, dump, load
from backoff_ctrl.k8s.sandbox.verbs.deleting import Deleter
from backoff_ctrl.k8s.sandbox.verbs.patches import json_patch, merge_patch
from backoff_ctrl.k8s.sandbox.verbs.requests import Query, Target, WriteOptions
from backoff_ctrl.k8s.sandbox.verbs.writing import Writer

CONNECTIONS = frozenset({"attach", "exec", "portforward", "proxy"})
_FAKE = "sandbox://"
_NO_LOG = "The sandbox only set this pod's status to Running: there is no container, and so no log.\n"


def log_of(core: Core, target: Target, query: Query) -> bytes:
    """The log of a container: empty for a pod that nothing runs, one sentence for a pod of the fake kubelet.

    Raises 400 when the container must be named, 404.
    """
    pod = core.store.get(target.kind, target.place, target.name).parse()
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    names = {field: [each["name"] for each in spec.get(field) or ()] for field in ("containers", "initContainers")}
    wanted = query.text("container")
    if not wanted and len(names["containers"]) > 1:
        beside = (
            f" or one of the init containers: {_listed(names['initContainers'])}" if names["initContainers"] else ""
        )
        choices = f"choose one of: {_listed(names['containers'])}{beside}"
        raise bad_request(f"a container name must be specified for pod {target.name}, {choices}")
    if wanted and not any(wanted in each for each in names.values()):
        raise bad_request(f"container {wanted} is not valid for pod {target.name}")
    statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return _NO_LOG.encode() if any(str(each.get("containerID", "")).startswith(_FAKE) for each in statuses) else b""


def refuse_connection(core: Core, target: Target) -> None:
    """Refuse, because the pod is on no node. Raises 400, 404."""
    core.store.get(target.kind, target.place, target.name)
    raise bad_request(f"pod {target.name} does not have a host assigned")


def _listed(names: list[str]) -> str:
    return f"[{' '.join(names)}]"


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
