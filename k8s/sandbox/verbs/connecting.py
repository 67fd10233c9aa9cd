"""Requests that need a node: logs, exec, attach, port-forward. The sandbox has no nodes, and its answers say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.kinds.answers import bad_request

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.core import Core

    from .requests import Query, Target

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
