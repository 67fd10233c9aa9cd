"""One step of one task: it does at most one thing in the cluster, and then its result has to be written.

The order of writes makes a kill harmless. The number of an attempt is written before its object can be made; its result
is written before its object is released; and the release is written last. Work that began between two writes begins
again after a restart, with the same key.

The pure functions at the beginning of this module compute the status after a phase, a failure, a further attempt and
the end; ``Stepper`` calls the executor and these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.kube.answers.fields import mapping
from backoff_ctrl.k8s.kube.answers.printing import in_one_line
from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.core import CorePlugin
from backoff_ctrl.k8s.tasks.plugins.phases import SIGNAL_TIMED_OUT, TIMED_OUT, PhaseInfo, TaskError
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext
from backoff_ctrl.k8s.tasks.plugins.signal import TYPE as SIGNAL
from backoff_ctrl.k8s.tasks.plugins.signal import by_whom

from .executing import context_of
from .model import (
    JSON,
    Ending,
    Retried,
    TaskEvent,
    TaskLink,
    TaskObject,
    TaskStatus,
    TaskTold,
    TaskWait,
    Whose,
    seconds_of,
    shown,
    unix,
)
from .store import Stored

HISTORY_MAX: Final = 50
"""Phases that are kept of one task; the first stays."""
REASON_MAX: Final = 2_000
TOLD_MAX: Final = 20
RETRY_BASE: Final = 1.0
RETRY_CAP: Final = 60.0
DEPENDENCY_FAILED: Final = "DependencyFailed"
NOT_NEEDED: Final = "NotNeeded"
"""The code of a task that was to begin only after another end of a task that it needs. It is no failure."""
RAN_TOO_LONG: Final = "AttemptTimeout"
"""The code of an attempt that ran, or did not begin to run, for longer than ``spec.deadline``."""
STEPS_FAILED: Final = "StepsFailed"
RESYNC: Final = 30.0
"""Seconds after which a task is checked even without news: time alone may end a grace period."""
RESYNCS: Final = 20.0
"""Checks a second, at most, of tasks that wait for quota: those wait for news, and time alone ends no grace period."""
AT_LEAST: Final = 0.2
_TIMEOUTS: Final = {
    Phase.WAITING_FOR_RESOURCES.title: ("waited for quota", TIMED_OUT),
    Phase.PAUSED.title: ("was paused", SIGNAL_TIMED_OUT),
}
"""The phases that ``spec.timeout`` limits, with what the task does in them and the code with which it ends."""
_STARTING: Final = frozenset({Phase.QUEUED.title, Phase.INITIALIZING.title})
"""The phases between the create and the run."""
OVER: Final = frozenset({Phase.SUCCESS.title, Phase.PERMANENT_FAILURE.title, Phase.ABORTED.title})
"""Phases that a task ends in."""
ENDED: Final = OVER | {Phase.RETRYABLE_FAILURE.title}
"""Phases that an attempt ends in."""


def reason_in_one_line(text: str) -> str:
    """Return a reason as a status keeps it. A plugin's may have several lines, such as the end of a container's log.

    It may end with a colon: what it quotes, an error of Python, says nothing.
    """
    text = in_one_line(text).rstrip(" :;,")
    return text if len(text) <= REASON_MAX else text[: REASON_MAX - 3] + "..."


def _asked_for(task: Stored, reason: str) -> str:
    """Return the reason of an abort with who asked for it, and when."""
    asked = mapping(task.spec.get("aborted"))
    return joined(reason[: REASON_MAX // 2], by_whom("asked for", asked) if asked else "", by="; ")


def joined(*parts: str, by: str = ": ") -> str:
    """Join the parts of a sentence that are not empty: many plugins give no reason."""
    return by.join(filter(None, parts))


def moved(
    status: TaskStatus, phase: Phase, reason: str, now: float, error: TaskError | None = None, **more: Any
) -> TaskStatus:
    """Return the status in a phase. A new phase becomes an entry of the history."""
    reason = reason_in_one_line(reason)
    code = None if error is None else error.code
    kind: Whose | None = None if error is None else "SYSTEM" if error.kind is ErrorKind.SYSTEM else "USER"
    update: dict[str, Any] = {"phase": phase.title, "reason": reason, "code": code, "kind": kind, **more}
    at = shown(now)
    if phase is Phase.RUNNING and status.runs_since is None:
        update["runs_since"] = at
    if phase.title in _STARTING and status.queued_since is None:
        update["queued_since"] = at
    if phase.title != status.phase or not status.history:
        history = [*status.history, TaskEvent(phase.title, at, status.attempt, reason, code, kind)]
        left_out = len(history) - HISTORY_MAX
        if left_out > 0:
            del history[1 : 1 + left_out]
            update["history_left_out"] = status.history_left_out + left_out
        update |= {"history": history, "since": at}
    return status.model_copy(update=update)


def reported(status: TaskStatus, info: PhaseInfo, state: Mapping[str, Any] | None, now: float) -> TaskStatus:
    """Return the status after the plugin manager's report on the attempt."""
    state = state or {}
    made = state.get("object")
    return moved(
        status,
        info.phase,
        info.reason,
        now,
        info.error,
        version=info.version,
        wait=None if info.wait is None else wait_status(info.wait, now),
        plugin_state=dict(state),
        plugin=state.get("plugin") or status.plugin,
        object=_reference(made) if isinstance(made, dict) else status.object,
        logs=[TaskLink(log.name, log.uri) for log in info.logs] or status.logs,
        reasons=_told(status, info),
        custom=dict(info.custom),
        outputs=status.outputs if info.outputs is None else dict(info.outputs),
        cleaned=not info.phase.is_terminal,
    )


def _reference(made: Mapping[str, Any]) -> TaskObject:
    return TaskObject(api_version=made["apiVersion"], kind=made["kind"], name=made["name"], uid=made.get("uid") or "")


def _told(status: TaskStatus, info: PhaseInfo) -> list[TaskTold]:
    if not info.reasons:
        return status.reasons
    fresh = [TaskTold(reason_in_one_line(each.text), shown(each.occurred_at.timestamp())) for each in info.reasons]
    return [*status.reasons, *(each for each in fresh if each not in status.reasons)][-TOLD_MAX:]


def wait_status(wait: Wait, now: float) -> TaskWait:
    """Return what a create waits for, with absolute times in place of seconds from now.

    Times are in whole seconds, so that reports without news are equal.
    """

    def at(seconds: float | None) -> str | None:
        return None if seconds is None else shown(round(now + seconds))

    return TaskWait(
        reason=wait.reason,
        quota=wait.quota,
        resource=wait.resource,
        asked=wait.asked,
        left=wait.left,
        limited=wait.limited,
        place=wait.place,
        next_probe_at=at(wait.next_probe),
        estimated_at=at(wait.estimate),
    )


def judged(status: TaskStatus, retries: JSON, now: float, rng: random.Random) -> TaskStatus:
    """Return the status after an attempt has failed: another attempt is due, or the task has failed.

    ``retries`` is that of the spec. The delay before the next attempt is stored, so that a restart neither skips nor
    repeats it. After failures of the platform the delays grow, with jitter, so that tasks which failed together do not
    come back together. After a failure of the user there is no delay: waiting would not help.
    """
    if status.phase != Phase.RETRYABLE_FAILURE.title:
        return status
    system = status.kind == ErrorKind.SYSTEM
    taken = status.retried.system if system else status.retried.user
    budget = retries.get("system", 3) if system else retries.get("user", 0)
    if taken >= budget:
        told = joined(status.reason, _used_up(budget, "platform" if system else "user"), by="; ")
        error = TaskError(status.code or "Unknown", told, ErrorKind.SYSTEM if system else ErrorKind.USER)
        return moved(status, Phase.PERMANENT_FAILURE, told, now, error)
    delay = rng.uniform(0, min(RETRY_CAP, RETRY_BASE * 2 ** min(taken, 30))) if system else 0.0
    retried = Retried(user=status.retried.user + (not system), system=status.retried.system + system)
    return status.model_copy(update={"retried": retried, "next_attempt_at": shown(now + delay)})


def _used_up(budget: int, whose: str) -> str:
    if not budget:
        return f"it has no retries after failures of the {whose}"
    retries, are = ("its one retry", "is") if budget == 1 else (f"its {budget} retries", "are")
    return f"{retries} after failures of the {whose} {are} used up"


def next_attempt(status: TaskStatus, now: float) -> TaskStatus:
    """Return the status at the beginning of another attempt."""
    made = {"earlier_object": status.object, "earlier_attempt": status.attempt} if status.object else {}
    begun = status.model_copy(
        update={"attempt": status.attempt + 1, "plugin_state": None, "object": None, "next_attempt_at": None,
                "runs_since": None, "queued_since": None, "version": 0, "logs": [], "custom": {}, "outputs": None,
                **made}
    )  # fmt: skip
    return moved(begun, Phase.NOT_READY, f"attempt {begun.attempt + 1} begins", now, wait=None)


def once_more(status: TaskStatus, again: int, now: float) -> TaskStatus:
    """Return the status of a task that has ended and runs again: with another attempt, and all its retries."""
    fresh = {"retried": Retried(), "again": again, "ended_at": None}
    return next_attempt(status.model_copy(update=fresh), now)


def delay_left(status: TaskStatus, now: float) -> float:
    """Return the seconds until the next attempt is due, at most the longest delay even if the clock was set back."""
    left = unix(status.next_attempt_at or "") - now
    return left if 0 < left <= RETRY_CAP else 0.0


def left_behind(status: TaskStatus, left: str, now: float) -> TaskStatus:
    """Return the status of an ended attempt of which something may still run. Another attempt would double it."""
    reason = f"{status.reason[: REASON_MAX // 2]}; {left}"
    if status.phase != Phase.RETRYABLE_FAILURE.title:
        return status.model_copy(update={"reason": reason[:REASON_MAX]})
    error = TaskError(status.code or "Unknown", reason, ErrorKind(status.kind or ErrorKind.SYSTEM))
    return moved(status, Phase.PERMANENT_FAILURE, reason, now, error, next_attempt_at=None)


def ended(status: TaskStatus, now: float) -> TaskStatus:
    """Return the status of a task that has ended, with its object released."""
    return status.model_copy(update={"ended_at": status.ended_at or shown(now), "cleaned": True, "wait": None})


def waited_since(status: TaskStatus) -> float:
    """Return when this attempt began to wait without a break for quota, or its signal; 0: it does not wait.

    In Unix time.
    """
    return unix(status.since) if status.phase in _TIMEOUTS else 0.0


def failed_at_once(status: TaskStatus, code: str, reason: str, now: float, kind: ErrorKind) -> TaskStatus:
    """Return the status of a task that can't continue."""
    return moved(status, Phase.PERMANENT_FAILURE, reason, now, TaskError(code, reason, kind), wait=None)


def has_begun(status: TaskStatus) -> bool:
    """Return whether a task has begun: from then on it needs no other one."""
    return bool(status.attempt) or status.plugin_state is not None


def not_before(needs: Mapping[str, Ending], found: Mapping[str, TaskStatus | None]) -> tuple[str, str]:
    """Return why a task may not begin, and the code with which it ends if it never may; ``""``: it may begin.

    ``found`` has the status of each task that it needs, None for one that does not exist. Of several ends that forbid
    it, one that makes it not needed counts: nothing has gone wrong then.
    """
    waiting, broken = "", ""
    for name, wanted in needs.items():
        status = found.get(name)
        if status is None:
            waiting = waiting or f"needs task {name}, which does not exist yet"
        elif status.phase not in OVER:
            how = "" if wanted == "Success" else f", to end {'as Failure' if wanted == 'Failure' else 'in any way'}"
            waiting = waiting or f"needs task {name}, which is {status.phase}{how}"
        elif wanted == "Any":
            continue
        elif status.code == NOT_NEEDED:
            return f"not needed: task {name}, which it needs, was not needed either", NOT_NEEDED
        elif wanted == "Failure" and status.phase == Phase.SUCCESS.title:
            return f"not needed: it is for a failure of task {name}, which has succeeded", NOT_NEEDED
        elif wanted == "Success" and status.phase != Phase.SUCCESS.title:
            code = f" ({status.code})" if status.code else ""
            broken = broken or f"task {name}, which it needs, ended as {status.phase}{code}"
    return (broken, DEPENDENCY_FAILED) if broken else (waiting, "")


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a step: the status to write, and the seconds until the next one; None: only on news."""

    status: TaskStatus
    again: float | None = RESYNC
    open: bool = True


class Stepper:
    """Makes steps. It is stateless."""

    def __init__(
        self,
        executor: CorePlugin,
        store: str,
        config: Callable[[], K8sPluginConfig],
        clock: Callable[[], float],
        rng: random.Random,
        crowd: Callable[[], int] = lambda: 1,
    ) -> None:
        """``store`` is the id of the store, ``clock`` returns Unix time, ``crowd`` the number of unfinished tasks."""
        self._executor = executor
        self._store = store
        self._config = config
        self._clock = clock
        self._rng = rng
        self._crowd = crowd

    async def step(self, task: Stored, needs: Mapping[str, TaskStatus | None]) -> Step:
        """Take the next step of a task; ``needs`` has the status of each task that it needs, None for absent ones.

        Raises the executor's exceptions: then nothing has changed, and the same step is due again.
        """
        status = task.status
        if status.phase in ENDED:
            return await self._after(task)
        if task.abort:
            return await self._abort(task)
        if task.needs and not has_begun(status) and (step := self._before(task, needs)) is not None:
            return step
        if self._waited_too_long(task):
            what, code = _TIMEOUTS[status.phase]
            what = "waited for its signal" if task.spec["type"] == SIGNAL else what
            reason = joined(f"{what} for longer than its timeout of {task.spec['timeout']}", status.reason)
            return await self._give_up(task, code, reason, retryable=False)
        if self._left_to_run(task, status) <= 0:
            what = "did not begin to run within" if status.runs_since is None else "ran for longer than"
            reason = joined(f"{what} its deadline of {task.spec['deadline']}", status.reason)
            return await self._give_up(task, RAN_TOO_LONG, reason, retryable=True)
        handled = await self._executor.handle(self.context(task), status.plugin_state)
        return self._reported(task, handled.info.phase, reported(status, handled.info, handled.state, self._clock()))

    def _before(self, task: Stored, needs: Mapping[str, TaskStatus | None]) -> Step | None:
        """Return the step of a task that may not begin, now or ever; None: it may."""
        reason, code = not_before(task.needs, needs)
        now = self._clock()
        if code == NOT_NEEDED:
            return self._over(moved(task.status, Phase.ABORTED, reason, now).model_copy(update={"code": code}))
        if code:
            return self._over(failed_at_once(task.status, code, reason, now, ErrorKind.USER))
        return Step(moved(task.status, Phase.NOT_READY, reason, now), None) if reason else None

    def failed(self, task: Stored, said: str) -> Step:
        """Return the step of an attempt whose steps keep failing: it has failed, because of the platform."""
        plugin = f"plugin {task.status.plugin}: " if task.status.plugin else ""
        error = TaskError(STEPS_FAILED, f"{plugin}{said}", ErrorKind.SYSTEM)
        now = self._clock()
        status = moved(task.status, Phase.RETRYABLE_FAILURE, error.message, now, error, wait=None, cleaned=False)
        return Step(judged(status, task.spec.get("retries", {}), now, self._rng), 0)

    async def _after(self, task: Stored) -> Step:
        """Release the object of an ended attempt, then begin the next attempt when it is due."""
        status = task.status
        now = self._clock()
        if not status.cleaned:
            running = await self._executor.finalize(self.context(task), status.plugin_state)
            status = status.model_copy(update={"cleaned": True})
            status = left_behind(status, running, now) if running else status
        if status.phase in OVER:
            return Step(once_more(status, task.again, now), 0) if task.is_asked_again else self._over(status)
        if task.abort:
            return self._over(moved(status, Phase.ABORTED, _asked_for(task, "aborted between two attempts"), now))
        left = delay_left(status, now)
        if left > 0 or not task.status.cleaned:
            return Step(status, left)
        return Step(next_attempt(status, now), 0)

    async def _abort(self, task: Stored) -> Step:
        handled = await self._executor.abort(self.context(task), task.status.plugin_state)
        info = handled.info
        if info.phase is Phase.ABORTED:
            info = replace(info, reason=_asked_for(task, info.reason))
        status = reported(task.status, info, handled.state, self._clock())
        if info.phase.is_failure:  # the abort's own end
            reason = _asked_for(task, joined("aborted", status.reason, by="; "))
            status = moved(status, Phase.ABORTED, reason, self._clock())
        return Step(status, 0 if info.phase.is_terminal else 1.0)

    async def _give_up(self, task: Stored, code: str, reason: str, *, retryable: bool) -> Step:
        """End an attempt whose time limit has passed, and with it the task unless another attempt may help."""
        handled = await self._executor.abort(self.context(task), task.status.plugin_state)
        now = self._clock()
        if not handled.info.phase.is_terminal:  # the phase stays: its time is the beginning of the wait
            return Step(task.status.model_copy(update={"plugin_state": handled.state}), 1.0)
        status = reported(task.status, handled.info, handled.state, now)
        if handled.info.phase is Phase.SUCCESS:
            return Step(status, 0)
        if handled.left:
            reason, retryable = f"{reason[: REASON_MAX // 2]}; {handled.left}", False  # another would double it
        error = TaskError(code, reason, ErrorKind.USER)
        phase = Phase.RETRYABLE_FAILURE if retryable else Phase.PERMANENT_FAILURE
        # the abort's own end is no phase of the task: it does not enter the history
        status = status.model_copy(update={"phase": task.status.phase, "history": task.status.history})
        status = moved(status, phase, reason, now, error, wait=None)
        return Step(judged(status, task.spec.get("retries", {}), now, self._rng), 0)

    def _waited_too_long(self, task: Stored) -> bool:
        timeout, since = task.spec.get("timeout"), waited_since(task.status)
        if "signal" in task.spec:  # it has come, perhaps while no manager was there to see it in time
            return False
        return bool(since) and timeout is not None and self._clock() - since > seconds_of(timeout)

    def _left_to_run(self, task: Stored, status: TaskStatus) -> float:
        """Return the seconds until an attempt has run, or not begun to run, for too long; infinity: it may for ever."""
        deadline, since = task.spec.get("deadline"), status.runs_since
        if since is None and status.phase in _STARTING:
            since = status.queued_since
        if deadline is None or since is None:
            return inf
        return unix(since) + seconds_of(deadline) - self._clock()

    def _reported(self, task: Stored, phase: Phase, status: TaskStatus) -> Step:
        """Return the step after a report, with the time until the next one."""
        now = self._clock()
        if phase.is_terminal:
            return Step(judged(status, task.spec.get("retries", {}), now, self._rng), 0)
        again = RESYNC * self._rng.uniform(0.75, 1.25)
        again = min(again, max(AT_LEAST, self._left_to_run(task, status) + AT_LEAST))
        if phase is Phase.WAITING_FOR_RESOURCES:
            again = max(again, self._crowd() / RESYNCS * self._rng.uniform(0.75, 1.25))
        if task.spec.get("timeout") and status.phase in _TIMEOUTS:
            again = min(again, max(AT_LEAST, waited_since(status) + seconds_of(task.spec["timeout"]) - now + AT_LEAST))
        return Step(status, again)

    def _over(self, status: TaskStatus) -> Step:
        return Step(ended(status, self._clock()), None, open=False)

    def context(self, task: Stored) -> TaskContext:
        """Return the executor's input for a task."""
        return context_of(task, self._store, self._config())
