"""Tasks that wait for people: ``Paused`` until somebody signals them, with a value that becomes their output.

The value is ``spec.signal``, which may be there before the task begins to wait. No object is created, and none is
watched: the write of the signal wakes the task. The reconciler heeds its ``spec.timeout``. Flyte
calls it a condition, or a gate node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import mapping, text
from backoff_ctrl.k8s.kube.cluster.kinds import JSON

from .core import CoreEntry, CoreSetup, Handled
from .kept import flaw_of_kept
from .phases import aborted, failed, paused, success
from .protocol import TaskContext, TaskSpecError, refuse_custom, refuse_unread

TYPE: Final = "signal"
"""The task type, and the id of the plugin."""
OUTPUT: Final = "value"
"""The output that the value becomes."""


def flaw_of_signal(value: Any) -> str:
    """Return what is wrong with the value of a signal, with what to do; empty: it can be used."""
    if value is None:
        return "null is no signal: give a value, such as true"
    flaw = flaw_of_kept({OUTPUT: value})
    return f"it can't be kept ({flaw}): store it elsewhere, and give its address" if flaw else ""


def _check(task: TaskContext) -> None:
    """Raise ``TaskSpecError`` for a signal that can't be used; a task usually has no signal yet."""
    refuse_custom(task)
    refuse_unread(task)
    value = task.spec.get("signal")
    if value is not None and (flaw := flaw_of_signal(value)):
        raise TaskSpecError("spec.signal", flaw)


def by_whom(what: str, asked: Mapping[str, Any]) -> str:
    """Return what was asked of a task, by whom and when, as far as that is known."""
    by, at = text(asked.get("by")), text(asked.get("at"))
    return " ".join(filter(None, (what, f"by {by}" if by else "", f"at {at}" if at else "")))


class SignalPlugin:
    """The core plugin. It has no state but that it has begun."""

    async def handle(self, task: TaskContext, state: JSON | None) -> Handled:
        """Succeed with the signal, or wait for it."""
        begun = state or {"stage": "Paused"}
        value = task.spec.get("signal")
        if value is None:
            name = task.metadata.name
            return Handled(paused(f"waits for its signal: backoff-ctrl task signal {name} --value JSON"), begun)
        if flaw := flaw_of_signal(value):
            return Handled(failed("BadTaskFormat", f"spec.signal: {flaw}"), begun)
        return Handled(
            success(by_whom("it was signalled", mapping(task.spec.get("signalled"))), outputs={OUTPUT: value}), begun
        )

    async def abort(self, task: TaskContext, state: JSON | None) -> Handled:  # noqa: ARG002
        """Wait no longer."""
        return Handled(aborted("aborted: its signal is no longer waited for"), state)

    async def sweep(self, task: TaskContext, state: JSON | None) -> None:
        """Sweep no object: the task has no object."""

    async def finalize(self, task: TaskContext, state: JSON | None) -> None:
        """Release no object: the task has no object."""


@asynccontextmanager
async def load(setup: CoreSetup) -> AsyncIterator[SignalPlugin]:  # noqa: ARG001
    """Open the core plugin."""
    yield SignalPlugin()


entry = CoreEntry(TYPE, (TYPE,), load, check=_check, owns=False)
