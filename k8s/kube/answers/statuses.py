"""Reads a status field by field and never raises: a missing, null or wrongly typed value counts as absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .fields import mapping, mappings, metadata_of, moment, text


def number(value: object) -> int:
    """Return a whole number; 0 for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def labels_with(resource: Mapping[str, Any], *, name: str, uid: str) -> dict[str, str]:
    """Return the labels with an object's name and uid that its controller gives to its pods."""
    metadata = metadata_of(resource)
    found = {name: text(metadata.get("name")), uid: text(metadata.get("uid"))}
    return {key: value for key, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Termination:
    """How a container ended. An unreadable exit code is -1, a failure."""

    exit_code: int
    reason: str
    message: str
    finished_at: datetime | None

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the kernel ended it because its memory limit was reached."""
        return "OOMKilled" in self.reason

    @property
    def is_killed(self) -> bool:
        """Whether SIGKILL ended it: 128 + 9, or -9 as some runtimes write it in a byte."""
        return self.exit_code in (137, 247)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run yet."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """The kubelet's status of a container; ``last`` is how it ended before its restart."""

    name: str
    ready: bool
    waiting: Waiting | None
    is_running: bool
    started_at: datetime | None
    terminated: Termination | None
    last: Termination | None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of an object's status; ``since`` is its last transition."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None


def conditions_of(status: Mapping[str, Any]) -> list[Condition]:
    return [
        Condition(
            text(each.get("type")),
            _status(each.get("status")),
            text(each.get("reason")),
            text(each.get("message")),
            moment(each.get("lastTransitionTime")),
        )
        for each in mappings(status.get("conditions"))
    ]


def _status(value: object) -> str:
    """Return a condition's status; in YAML written by hand it may be a boolean."""
    return str(value) if isinstance(value, bool) else text(value)


def containers_of(status: Mapping[str, Any], *lists: str) -> list[ContainerStatus]:
    """Return the statuses of a pod's containers, of these lists in this order."""
    return [_container(each) for key in lists for each in mappings(status.get(key))]


def _container(status: Mapping[str, Any]) -> ContainerStatus:
    state = mapping(status.get("state"))
    waiting, running = state.get("waiting"), state.get("running")
    return ContainerStatus(
        text(status.get("name")),
        status.get("ready") is True,
        Waiting(text(waiting.get("reason")), text(waiting.get("message"))) if isinstance(waiting, Mapping) else None,
        isinstance(running, Mapping),
        moment(mapping(running).get("startedAt")),
        _termination(state.get("terminated")),
        _termination(mapping(status.get("lastState")).get("terminated")),
    )


def _termination(value: object) -> Termination | None:
    if not isinstance(value, Mapping):
        return None
    code = value.get("exitCode", 0)
    exit_code = code if isinstance(code, int) and not isinstance(code, bool) else -1
    return Termination(
        exit_code, text(value.get("reason")), text(value.get("message")), moment(value.get("finishedAt"))
    )
