"""The status that a kubelet reports for a running or finished pod: conditions and container statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def status_of(pod: Mapping[str, Any], phase: str, now: str) -> dict[str, Any]:
    """The status to merge in when a pod starts (phase Running) or ends (Succeeded). ``now``: a timestamp."""
    spec, known = pod.get("spec") or {}, pod.get("status") or {}
    runs = phase == "Running"
    began = now if runs else str(known.get("startTime") or now)
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": _conditions(runs, now),
        "containerStatuses": [_container(each, runs, began, now) for each in spec.get("containers") or ()],
    }
    first = spec.get("initContainers") or ()
    if first:
        status["initContainerStatuses"] = [_init_container(each, runs, began, now) for each in first]
    if runs:
        status["startTime"] = now
    return status


def _conditions(runs: bool, now: str) -> list[dict[str, str]]:
    over = {} if runs else {"reason": "PodCompleted"}
    while_it_runs = "True" if runs else "False"
    return [
        {"type": "PodReadyToStartContainers", "status": while_it_runs, "lastTransitionTime": now},
        {"type": "Initialized", "status": "True", **over, "lastTransitionTime": now},
        {"type": "Ready", "status": while_it_runs, **over, "lastTransitionTime": now},
        {"type": "ContainersReady", "status": while_it_runs, **over, "lastTransitionTime": now},
    ]


def _init_container(container: Mapping[str, Any], runs: bool, began: str, now: str) -> dict[str, Any]:
    """An init container, finished before the others start; or a sidecar (``restartPolicy: Always``), still running."""
    if container.get("restartPolicy") == "Always":
        return _container(container, runs, began, now)
    return {**_container(container, False, began, began), "ready": True}


def _container(container: Mapping[str, Any], runs: bool, began: str, now: str) -> dict[str, Any]:
    name = str(container.get("name"))
    where = f"sandbox://{name}"
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": began, "finishedAt": now, "containerID": where}
    return {
        "name": name,
        "image": str(container.get("image") or ""),
        "imageID": "",
        "containerID": where,
        "ready": runs,
        "started": runs,
        "restartCount": 0,
        "lastState": {},
        "state": {"running": {"startedAt": began}} if runs else {"terminated": ended},
    }
