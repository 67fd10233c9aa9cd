"""The READY, STATUS and RESTARTS of a pod in ``kubectl get pods``: after ``printPod`` of Kubernetes 1.36."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .ages import age_now

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

_ENDED = frozenset({"Succeeded", "Failed"})


class PodCells(NamedTuple):
    """The cells READY, STATUS and RESTARTS."""

    ready: str
    status: str
    restarts: str


@dataclass(slots=True)
class _Restarts:
    """How often containers restarted, and when the latest of the ended ones had finished."""

    count: int = 0
    last: str = ""  # timestamps in one format: the later one is the greater one

    def add(self, container: JSON) -> None:
        """Add the restarts of a container."""
        self.count += int(container.get("restartCount") or 0)
        before = (container.get("lastState") or {}).get("terminated") or {}
        self.last = max(self.last, before.get("finishedAt") or "")

    def cell(self) -> str:
        """The text of the cell, such as ``4 (2m ago)``."""
        return f"{self.count} ({age_now(self.last)} ago)" if self.count and self.last else str(self.count)


def pod_cells(pod: JSON) -> PodCells:
    """Compute the three cells from spec and status."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    phase = str(status.get("phase") or "")
    reason = str(status.get("reason") or phase)
    if (conditions.get("PodScheduled") or {}).get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    first = list(spec.get("initContainers") or ())
    beside = {each.get("name") for each in first if each.get("restartPolicy") == "Always"}
    total = len(spec.get("containers") or ()) + len(beside)
    said, ready, restarts, restarts_beside = _initializing(status, beside, len(first))
    if not said or _holds(conditions, "Initialized"):
        reason, now_ready = _running(status, said or reason, _holds(conditions, "Ready"), restarts_beside)
        ready, restarts = ready + now_ready, restarts_beside
    else:
        reason = said
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif phase not in _ENDED:
            reason = "Terminating"
    return PodCells(f"{ready}/{total}", reason, restarts.cell())


def _initializing(status: JSON, beside: set[str | None], total: int) -> tuple[str, int, _Restarts, _Restarts]:
    """The status of the first init container that still holds up the pod, the number ready, and the restarts.

    The last value counts only the restarts of sidecars.
    """
    ready, restarts, restarts_beside = 0, _Restarts(), _Restarts()
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        ended, waits = state.get("terminated"), (state.get("waiting") or {}).get("reason") or ""
        restarts.add(container)
        if container.get("name") in beside:
            restarts_beside.add(container)
        if ended is not None and not ended.get("exitCode"):
            continue
        if container.get("name") in beside and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        if ended is not None:
            return f"Init:{_ended(ended)}", ready, restarts, restarts_beside
        said = waits if waits not in {"", "PodInitializing"} else f"{index}/{total}"
        return f"Init:{said}", ready, restarts, restarts_beside
    return "", ready, restarts, restarts_beside


def _running(status: JSON, reason: str, pod_ready: bool, restarts: _Restarts) -> tuple[str, int]:
    """The status that follows from the containers, and how many of them are ready."""
    ready, failed = 0, ""
    for container in reversed(status.get("containerStatuses") or ()):
        restarts.add(container)
        state = container.get("state") or {}
        ended, waits = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if waits:
            reason = waits
        elif ended is not None:
            reason = _ended(ended)
            failed = reason if ended.get("exitCode") else failed
        elif container.get("ready") and state.get("running") is not None:
            ready += 1
    if reason == "Completed":
        if ready and pod_ready:
            return "Running", ready
        if failed or ready:
            return failed or "NotReady", ready
    return reason, ready


def _ended(state: JSON) -> str:
    if state.get("reason"):
        return str(state["reason"])
    return f"Signal:{state['signal']}" if state.get("signal") else f"ExitCode:{state.get('exitCode', 0)}"


def _holds(conditions: dict[str | None, JSON], name: str) -> bool:
    return (conditions.get(name) or {}).get("status") == "True"
