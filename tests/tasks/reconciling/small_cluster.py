"""A cluster and a plugin manager in a few lines, for the reconciler: objects by name, each attempt as it was told.

The manager is a real one in what matters here: it makes an attempt's object at most once, whatever is asked again, it
keeps nothing but the state that it is given back, and every call is a chance to be killed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.tasks.plugins.core import Handled
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, aborted, failed, queued, running, success, waiting
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext

Ends = list[str]
"""How the attempts of a task end, one after the other: "ok", "user", "system", "fatal" or "never"."""


@dataclass
class SmallCluster:
    """The objects of all tasks, and how often each was made."""

    ends: dict[str, Ends] = field(default_factory=dict)
    room: int = 1_000_000
    """How many objects may compute at a time: further ones wait for quota."""
    restless: bool = False
    """Whether each look at a waiting task finds another place in the line."""
    made: Counter[str] = field(default_factory=Counter)
    living: set[str] = field(default_factory=set)
    deleted: list[str] = field(default_factory=list)
    finalized: Counter[str] = field(default_factory=Counter)
    on_step: Callable[[], None] = lambda: None
    """Called at each chance to be killed."""
    steps: list[str] = field(default_factory=list)
    left: str = ""
    """What the first abort, or else each finalize, says of what it could not end."""

    def end_of(self, task: TaskContext) -> str:
        ends = self.ends.get(task.metadata.name, ["ok"])
        return ends[min(task.metadata.attempt, len(ends) - 1)]


class SmallManager:
    """The executor: two looks after an object was made it has ended."""

    def __init__(self, cluster: SmallCluster) -> None:
        self.cluster = cluster

    async def handle(self, task: TaskContext, state: dict[str, Any] | None) -> Handled:
        """Make the object, then look at it until it has ended."""
        cluster, name = self.cluster, task.metadata.generated_name
        cluster.steps.append(task.metadata.name)
        await self._breath()
        looks = 0 if state is None else state.get("looks", 0)
        if name not in cluster.living and name not in cluster.deleted:
            if len(cluster.living) >= cluster.room:
                place = f", place {len(cluster.steps)}" if cluster.restless else ""
                return Handled(waiting(f"exceeded quota{place}"), {"version": 1, "stage": "NotStarted"})
            cluster.made[name] += 1
            cluster.living.add(name)
            await self._breath()
        made = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": ""}
        after = {"version": 1, "stage": "Started", "looks": min(looks + 1, 2), "object": made, "plugin": "small"}
        return Handled(self._info(task, name, looks), after)

    def _info(self, task: TaskContext, name: str, looks: int) -> PhaseInfo:
        if name in self.cluster.deleted:
            return failed("Gone", "it was deleted", kind=ErrorKind.SYSTEM, retryable=True)
        end = self.cluster.end_of(task)
        if looks == 0:
            return queued("created")
        if looks == 1 or end == "never":
            return running()
        kind = ErrorKind.SYSTEM if end == "system" else ErrorKind.USER
        return success() if end == "ok" else failed("Died", f"as {end}", kind=kind, retryable=end != "fatal")

    async def abort(self, task: TaskContext, state: dict[str, Any] | None) -> Handled:
        await self._breath()
        self._drop(task.metadata.generated_name)
        await self._breath()
        state = state or {"version": 1, "stage": "NotStarted"}
        left, self.cluster.left = self.cluster.left, ""
        return Handled(aborted("on its user's wish"), state, left)

    async def sweep(self, task: TaskContext, state: dict[str, Any] | None) -> None:
        await self._breath()
        self._drop(task.metadata.generated_name)

    async def finalize(self, task: TaskContext, state: dict[str, Any] | None) -> str:
        """Delete the object: whoever handles the attempt again after this would find nothing."""
        await self._breath()
        self.cluster.finalized[task.metadata.generated_name] += 1
        self._drop(task.metadata.generated_name)
        await self._breath()
        return self.cluster.left

    def _drop(self, name: str) -> None:
        if name in self.cluster.living:
            self.cluster.living.discard(name)
            self.cluster.deleted.append(name)

    async def _breath(self) -> None:
        await asyncio.sleep(0)
        self.cluster.on_step()


RUNNING = Phase.RUNNING.title
