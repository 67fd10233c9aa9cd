"""Tasks that sleep and then end as their parameters say, without an object. For trying retries, needs, priorities,
pages.

``spec.custom`` is ``{seconds: 5}``, and for another end than success ``fail: {kind: USER | SYSTEM, code, message,
retryable, attempts}``. ``attempts`` limits the failures to the first so many attempts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind
from backoff_ctrl.k8s.kube.operators.wrong_values import told, unknown_key

from .core import CoreEntry, CoreSetup, Handled, Key
from .marks import key_of_task
from .phases import PhaseInfo, aborted, failed, running, success
from .protocol import TaskContext, TaskSpecError, refuse_unread


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Failure(_Shape):
    """How the sleep fails."""

    kind: Literal["USER", "SYSTEM"] = "USER"
    code: str = "AsRequested"
    message: str = "the task asked for this failure"
    retryable: bool = True
    attempts: Annotated[int, Field(ge=1)] | None = None

    def info(self) -> PhaseInfo:
        return failed(self.code, self.message, kind=ErrorKind(self.kind), retryable=self.retryable)


class Sleep(_Shape):
    """``spec.custom`` of a task that sleeps; ``seconds`` is at most a year."""

    seconds: Annotated[float, Field(ge=0, le=31_536_000, strict=False)] = 1.0
    fail: Failure | None = None

    def end(self, attempt: int) -> PhaseInfo:
        """Return the end of this attempt, which counts from 0."""
        if self.fail is not None and (self.fail.attempts is None or attempt < self.fail.attempts):
            return self.fail.info()
        return success(f"slept for {self.seconds:g} s", outputs={"seconds": self.seconds})


def sleep_of(task: TaskContext) -> Sleep:
    """Read what the task asks for. Raises ``TaskSpecError``."""
    try:
        return Sleep.model_validate(task.spec.get("custom") or {})
    except ValidationError as error:
        wrong = error.errors()[0]
        path = ".".join(("spec.custom", *(str(each) for each in wrong["loc"])))
        if wrong["type"] == "extra_forbidden":
            raise TaskSpecError(path, unknown_key(Sleep, wrong["loc"])) from None
        raise TaskSpecError(path, f"{told(wrong).lower()}; write {{seconds: 5}}") from None


def _check(task: TaskContext) -> None:
    refuse_unread(task)
    sleep_of(task)


class Sleeper:
    """The core plugin. Its state is when the attempt wakes up, in Unix time."""

    def __init__(self, wake: Callable[[Key], object], clock: Callable[[], float] = time.time) -> None:
        """``wake`` is called when an attempt has slept enough; ``clock`` returns Unix time."""
        self._wake = wake
        self._clock = clock
        self._alarms: dict[Key, asyncio.TimerHandle] = {}

    async def handle(self, task: TaskContext, state: JSON | None) -> Handled:
        """Begin to sleep, or end once it is time."""
        try:
            asked = sleep_of(task)
        except TaskSpecError as error:
            return Handled(failed("BadTaskFormat", str(error)), state)
        now = self._clock()
        until = (state or {}).get("until")
        if not isinstance(until, int | float):
            until = now + asked.seconds
        key = key_of_task(task.metadata)
        left = min(until - now, asked.seconds)  # a clock may have been set back
        self._forget(key)
        if left <= 0:
            return Handled(asked.end(task.metadata.attempt), {"until": until})
        self._alarms[key] = asyncio.get_running_loop().call_later(left, self._wake, key)
        return Handled(running(f"sleeps for {asked.seconds:g} s"), {"until": until})

    async def abort(self, task: TaskContext, state: JSON | None) -> Handled:
        """Wake it up for good."""
        self._forget(key_of_task(task.metadata))
        return Handled(aborted("aborted: it was woken up"), state)

    async def sweep(self, task: TaskContext, state: JSON | None) -> None:
        """Sweep no object: the task has no object."""

    async def finalize(self, task: TaskContext, state: JSON | None) -> None:  # noqa: ARG002
        """Drop its alarm."""
        self._forget(key_of_task(task.metadata))

    def close(self) -> None:
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()

    def _forget(self, key: Key) -> None:
        alarm = self._alarms.pop(key, None)
        if alarm is not None:
            alarm.cancel()


@asynccontextmanager
async def load(setup: CoreSetup) -> AsyncIterator[Sleeper]:
    """Open the core plugin."""
    sleeper = Sleeper(setup.wake)
    try:
        yield sleeper
    finally:
        sleeper.close()


entry = CoreEntry("sleep", ("sleep",), load, check=_check, owns=False)
