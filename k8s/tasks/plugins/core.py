"""What carries attempts out: a core plugin, and what it is made of for the time of one lease.

A *core plugin* takes an attempt through its life: ``handle``, ``abort``, ``sweep``, ``finalize``, each a function of
the task and of the state that the step before has returned. The caller stores that state, so a step may be repeated,
and after a crash another process goes on with it. The manager of Kubernetes objects is one core plugin, the manager of
web API plugins is another; ``sleep`` is a third, as small as they get.

Most plugins are none. A ``PluginEntry`` is run by the manager of objects, a ``WebPluginEntry`` by the web manager. A
``CoreEntry`` offers a core plugin of its own for its task types. The names are those of Flyte's ``core.Plugin``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.cluster.rights import Right

from .phases import PhaseInfo
from .protocol import PluginError, TaskContext, check_names, rights_on_tasks

WEB: Final = "webapi"
"""What the states of web API plugins' attempts call the core plugin that runs them."""
Key: TypeAlias = tuple[str, int]
"""A task's uid and the number of the attempt."""


@dataclass(frozen=True, slots=True)
class Handled:
    """The phase of an attempt, and what to store until the next step.

    ``state`` is JSON that only the core plugin reads: store it unchanged, and give it back. An unreadable state is
    returned as it came. ``left`` is a sentence about what may still run although the attempt has
    ended, and why; empty: all of it has ended.
    """

    info: PhaseInfo
    state: JSON | None
    left: str = ""


class CorePlugin(Protocol):
    """Carries attempts out. A step is quick and never waits for room; it may be repeated with the same state."""

    async def handle(self, task: TaskContext, state: JSON | None) -> Handled:
        """Take the next step of an attempt; ``state`` is None at the first. The step after may change the world."""

    async def abort(self, task: TaskContext, state: JSON | None) -> Handled:
        """End an attempt for its user. A phase other than a final one means that it is not done: call it again."""

    async def sweep(self, task: TaskContext, state: JSON | None) -> None:
        """End what has appeared after the abort of an attempt; ``state`` is what the abort returned."""

    async def finalize(self, task: TaskContext, state: JSON | None) -> str | None:
        """Release what an ended attempt still holds. Raises while that is not done: call it again.

        Return a sentence about what may still run, since it could not be ended, if there is such a thing.
        """


@runtime_checkable
class Settles(Protocol):
    """A core plugin that has answers under way which would be lost if its steps ended now."""

    async def settle(self, seconds: float) -> None:
        """Begin no more work that can't be repeated, and wait until its outcomes are stored, at most so long."""


class Unfinished(NamedTuple):
    """An attempt that an earlier manager of the store left: it runs, or it ended and still holds something."""

    task: TaskContext
    state: JSON


@dataclass(frozen=True, slots=True)
class CoreSetup:
    """What a core plugin is made with, for the time of one lease of a store.

    ``store`` is the store's id. ``wake`` is called on the event loop with the key of an attempt that has news.
    ``may_create`` is asked right before anything is created: False while another process may manage the store.
    ``unfinished`` yields what earlier managers left in the store. ``configuration`` is the cluster's, one of any
    official client. ``settings`` returns a plugin's present section ``plugins.ID``, as it was written.
    """

    store: str
    wake: Callable[[Key], object]
    may_create: Callable[[], bool]
    unfinished: Callable[[], AsyncIterator[Unfinished]]
    configuration: Any
    settings: Callable[[str], Mapping[str, Any]] = lambda _: {}


def accept_any(_: TaskContext) -> None:
    """Accept any task."""


@dataclass(frozen=True, slots=True)
class CoreEntry:
    """A core plugin in the registry.

    ``load`` opens it at the first task of its types; it is closed at the end of the lease. ``check`` raises
    ``TaskSpecError`` for a task that it could not run, before the task is stored. ``is_default``: it serves the task
    types that no other plugin serves. ``owns``: its attempts may leave something that has to be ended, so a Task in the
    cluster gets a finalizer.
    """

    id: str
    registered_task_types: tuple[str, ...]
    load: Callable[[CoreSetup], AbstractAsyncContextManager[CorePlugin]]
    is_default: bool = False
    check: Callable[[TaskContext], None] = accept_any
    owns: bool = True

    def __post_init__(self) -> None:
        """Raise ``PluginError`` for an invalid entry."""
        check_names(self.id, self.registered_task_types)
        if self.id == WEB:
            raise PluginError(f"plugin {self.id} has the name of the manager of web APIs: give it another id")

    def rights(self, verb: str, spec: Mapping[str, Any]) -> tuple[Right, ...]:
        """Return the rights that a caller over HTTP needs to ``create``, ``get`` or ``delete`` such a task."""
        return rights_on_tasks(verb, spec)
