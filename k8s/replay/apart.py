"""What keeps a replay's pods off every node of a real cluster: they are charged, and finished by the replay itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

RUN_LABEL: Final = "backoff-ctrl.dev/demo"  # on every namespace that a demo makes; its value is the run
PREFIX: Final = "backoff-ctrl-demo"

APART: Final[Mapping[str, Any]] = {
    "schedulerName": PREFIX,
    "schedulingGates": [{"name": RUN_LABEL}],
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
}
"""What the demo's pods carry so that no node ever runs one: a scheduler that nobody is, and a gate that nobody opens.

They pass the strictest Pod Security Standard, so that a cluster which enforces it takes them.
"""
_CONTAINER: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def set_apart(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod with what keeps it off every node. It is charged the same."""
    spec = pod["spec"]
    containers = [{**each, "securityContext": dict(_CONTAINER)} for each in spec["containers"]]
    return {**pod, "spec": {**spec, **APART, "containers": containers}}
