"""Keeps a replay's pods off the nodes of a real cluster: the quota is charged for them, but they never run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_LABEL: Final = "backoff-ctrl.dev/demo"  # on each namespace of a demo; its value identifies the run
PREFIX: Final = "backoff-ctrl-demo"

APART: Final[Mapping[str, Any]] = {
    "schedulerName": PREFIX,
    "schedulingGates": [{"name": RUN_LABEL}],
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
}
"""Fields of the demo's pods that keep them off the nodes: the name of a scheduler that does not exist, and a scheduling
gate that is never removed.

They also pass the strictest Pod Security Standard, for clusters that enforce it.
"""
_CONTAINER: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def set_apart(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod with the fields that keep it off the nodes. Its charge is the same."""
    spec = pod["spec"]
    containers = [{**each, "securityContext": dict(_CONTAINER)} for each in spec["containers"]]
    return {**pod, "spec": {**spec, **APART, "containers": containers}}
