"""One step of one task: at most one thing is done in the cluster, and then its outcome is to be written.

The order of writes is what makes a kill harmless. The number of an attempt is written before its object can be made;
how it ended is written before its object is let go; and what is let go is written last. Whatever was begun between two
writes is begun again after a restart, with the same key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.plugins.manager.outcomes import TIMED_OUT
from backoff_ctrl.k8s.plugins.phases import ErrorKind, Phase, TaskError

from .executing import context_of
from .model import seconds_of
from .needs import verdict
from .progress import (
    DEPENDENCY_FAILED,
    STEPS_FAILED,
    delay_left,
    ended,
    failed_at_once,
    judged,
    moved,
    next_attempt,
    reported,
    waited_since,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from backoff_ctrl.k8s.plugins.config import K8sPluginConfig
    from backoff_ctrl.k8s.plugins.protocol import TaskContext

    from .executing import Executor
    from .model import TaskStatus
    from .store import Stored

RESYNC: Final = 30.0
"""Seconds after which a task is looked at again though there was no news: time alone may end a grace period."""
AT_LEAST: Final = 0.2
OVER: Final = frozenset({Phase.SUCCESS.title, Phase.PERMANENT_FAILURE.title, Phase.ABORTED.title})
"""Phases that a task ends in."""
ENDED: Final = OVER | {Phase.RETRYABLE_FAILURE.title}
"""Phases that an attempt ends in."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a step came to: the status to write, and in how many seconds the next one is due; None: on news alone."""

    status: TaskStatus
    again: float | None = RESYNC
    open: bool = True


class Stepper:
    """Makes steps. It keeps nothing between two of them."""

    def __init__(
        self,
        executor: Executor,
        store: str,
        config: Callable[[], K8sPluginConfig],
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        """``store`` is the id of the store, ``clock`` returns Unix time."""
        self._executor = executor
        self._store = store
        self._config = config
        self._clock = clock
        self._rng = rng

    async def step(self, task: Stored, needs: Mapping[str, TaskStatus | None]) -> Step:
        """Do the next thing for a task; ``needs`` has the status of each task that it needs, None for absent ones.

        Raises whatever the executor raises: then nothing has changed, and the same step is due again.
        """
        status = task.status
        if status.phase in ENDED:
            return await self._after(task)
        if task.abort:
            return await self._abort(task)
        if task.needs and status.attempt == 0 and status.plugin_state is None:
            found = verdict(task.needs, needs)
            if found.failed:
                return self._over(
                    failed_at_once(status, DEPENDENCY_FAILED, found.reason, self._clock(), ErrorKind.USER)
                )
            if not found.ready:
                return Step(moved(status, Phase.NOT_READY, found.reason, self._clock()), None)
        if self._waited_too_long(task):
            return await self._give_up(task)
        handled = await self._executor.handle(self.context(task), status.plugin_state)
        return self._reported(task, handled.info.phase, reported(status, handled.info, handled.state, self._clock()))

    def failed(self, task: Stored, said: str) -> Step:
        """Return the step of an attempt whose steps fail each time: it has failed, and not by its user's doing."""
        plugin = f"plugin {task.status.plugin}: " if task.status.plugin else ""
        error = TaskError(STEPS_FAILED, f"{plugin}{said}", ErrorKind.SYSTEM)
        now = self._clock()
        status = moved(task.status, Phase.RETRYABLE_FAILURE, error.message, now, error, wait=None, cleaned=False)
        return Step(judged(status, task.spec.get("retries", {}), now, self._rng), 0)

    async def _after(self, task: Stored) -> Step:
        """An attempt has ended: let its object go, then begin the next attempt when it is due."""
        status = task.status
        now = self._clock()
        if not status.cleaned:
            await self._executor.finalize(self.context(task), status.plugin_state)
            status = status.model_copy(update={"cleaned": True})
        if status.phase in OVER:
            return self._over(status)
        if task.abort:
            return self._over(moved(status, Phase.ABORTED, "aborted between two attempts", now))
        left = delay_left(status, now)
        if left > 0 or not task.status.cleaned:
            return Step(status, left)
        return Step(next_attempt(status, now), 0)

    async def _abort(self, task: Stored) -> Step:
        handled = await self._executor.abort(self.context(task), task.status.plugin_state)
        status = reported(task.status, handled.info, handled.state, self._clock())
        if handled.info.phase.is_failure:  # it was to end, and it has
            status = moved(status, Phase.ABORTED, f"aborted; {status.reason}", self._clock())
        return Step(status, 0 if handled.info.phase.is_terminal else 1.0)

    async def _give_up(self, task: Stored) -> Step:
        """Its time of waiting is over: end the attempt, and with it the task."""
        handled = await self._executor.abort(self.context(task), task.status.plugin_state)
        now = self._clock()
        if not handled.info.phase.is_terminal:  # the phase stays: it says since when it waits
            return Step(task.status.model_copy(update={"plugin_state": handled.state}), 1.0)
        status = reported(task.status, handled.info, handled.state, now)
        if handled.info.phase is not Phase.SUCCESS:
            reason = f"waited for quota for longer than its timeout of {task.spec['timeout']}: {task.status.reason}"
            status = failed_at_once(status, TIMED_OUT, reason, now, ErrorKind.USER)
        return Step(status, 0)

    def _waited_too_long(self, task: Stored) -> bool:
        timeout, since = task.spec.get("timeout"), waited_since(task.status)
        return bool(since) and timeout is not None and self._clock() - since > seconds_of(timeout)

    def _reported(self, task: Stored, phase: Phase, status: TaskStatus) -> Step:
        """Return the step after a report, with the time of the next one."""
        now = self._clock()
        if phase.is_terminal:
            return Step(judged(status, task.spec.get("retries", {}), now, self._rng), 0)
        again = RESYNC * self._rng.uniform(0.75, 1.25)
        if phase is Phase.WAITING_FOR_RESOURCES and task.spec.get("timeout"):
            again = min(again, max(AT_LEAST, waited_since(status) + seconds_of(task.spec["timeout"]) - now + AT_LEAST))
        return Step(status, again)

    def _over(self, status: TaskStatus) -> Step:
        return Step(ended(status, self._clock()), None, open=False)

    def context(self, task: Stored) -> TaskContext:
        """Return what the executor is told of a task."""
        return context_of(task, self._store, self._config())
