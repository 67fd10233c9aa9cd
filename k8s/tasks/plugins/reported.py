"""What the managers of plugins share: the way of a step, and what they keep of an attempt, as JSON with a version.

``Manager`` takes a step; six methods are each manager's own. ``Reported`` has what was reported last; each manager adds
what it has to know of its own work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Annotated, Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, StrictBool, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from backoff_ctrl.k8s.kube.operators.phases import Phase

from .core import Handled
from .phases import CORRUPTED_STATE, PhaseInfo, TaskError, system_failure
from .protocol import PluginBugError, PluginError, TaskContext, TaskSpecError

JSON = dict[str, Any]

VERSION: Final = 1
REASON_MAX: Final = 2_000
"""Characters of a reason that are kept: an admission webhook, or a service, may write any length."""
STORED: Final = ConfigDict(alias_generator=to_camel)
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0)]
_ADVICE: Final = "restore the store from a copy, or abort the task and run it again"

S = TypeVar("S", bound="Reported")
W = TypeVar("W", bound="Worker")


class StateError(ValueError):
    """A state that can't be read; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What was reported last; ``ended`` says how the attempt ended, ``cleanup`` that it then still held something."""

    __pydantic_config__ = STORED

    phase: Phase = Phase.UNDEFINED
    phase_version: Count = 0
    reason: str = ""
    next_try: Annotated[float, Field(strict=True)] = 0.0
    ended: Annotated[TaskError | None, Field(alias="error")] = None
    cleanup: StrictBool = False

    def json(self) -> JSON:
        """Return it in its stored form."""
        return {"version": VERSION, **_ADAPTERS[type(self)].dump_python(self, mode="json", by_alias=True)}

    @classmethod
    def of(cls, stored: object) -> Self:
        """Read a stored state; None is that of a new attempt. Raises ``StateError``."""
        if stored is None:
            return cls()
        if not isinstance(stored, dict):
            raise StateError(f"the plugin state is {_shown(stored)} instead of an object: {_ADVICE}")
        version = stored.get("version")
        if version != VERSION:
            newer = isinstance(version, int) and version > VERSION
            advice = "it was written by a newer backoff-ctrl: run that one" if newer else _ADVICE
            raise StateError(f"the plugin state has version {_shown(version)}, this program reads version 1: {advice}")
        try:
            read: Self = _ADAPTERS[cls].validate_python(stored)
        except ValidationError as error:
            raise damaged(str(error.errors()[0]["loc"][0]), stored) from error
        return read

    @property
    def over(self) -> bool:
        """Whether the attempt has ended."""
        return self.phase.is_terminal

    def info(self) -> PhaseInfo:
        """Return what was reported last."""
        return PhaseInfo(self.phase, self.phase_version, self.reason, self.ended, cleanup_on_failure=self.cleanup)

    def holding(self, reason: str) -> PhaseInfo:
        """Return the present phase with another reason: a temporary problem holds the attempt up."""
        phase = Phase.NOT_READY if self.phase is Phase.UNDEFINED or self.over else self.phase
        return PhaseInfo(phase, self.phase_version, reason)

    def versioned(self, info: PhaseInfo) -> PhaseInfo:
        """Return a phase with a version above the last one if there is news within the same phase."""
        if info.phase is not self.phase:
            return info
        next_try = 0.0 if info.next_try_at is None else info.next_try_at.timestamp()
        news = info.reason[:REASON_MAX] != self.reason or info.reasons or abs(next_try - self.next_try) >= 1.0
        return info.with_version(max(info.version, self.phase_version + 1 if news else self.phase_version))

    def reporting(self, info: PhaseInfo) -> Self:
        """Return the state after this was reported."""
        return replace(
            self,
            phase=info.phase,
            phase_version=info.version,
            reason=info.reason[:REASON_MAX],
            next_try=info.next_try_at.timestamp() if info.next_try_at is not None else 0.0,
            ended=info.error and replace(info.error, message=info.error.message[:REASON_MAX]),
            cleanup=info.cleanup_on_failure,
        )


class _Adapters(dict[type, TypeAdapter[Any]]):
    def __missing__(self, type_: type) -> TypeAdapter[Any]:
        return self.setdefault(type_, TypeAdapter(type_))


_ADAPTERS: Final = _Adapters()


def damaged(name: str, stored: Mapping[str, Any]) -> StateError:
    """Return the error about a field that can't be right."""
    return StateError(f"the plugin state is damaged: its field {name} is {_shown(stored.get(name))}; {_ADVICE}")


def _shown(found: object) -> str:
    text = repr(found)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Worker(Protocol):
    """Does the work of attempts: a plugin's calls, or its service."""

    id: str


class Manager(ABC, Generic[S, W]):
    """Takes attempts through their steps. ``S`` is what it keeps of one, ``W`` does the work."""

    _failures: Counter[tuple[str, str, str]]
    """Attempts that failed, by plugin, phase and code."""

    @abstractmethod
    async def _open(self) -> None:
        """Begin; what is to be closed goes onto ``_stack``."""

    @abstractmethod
    def _read(self, task: TaskContext, state: JSON | None) -> S:
        """Read a stored state; None is that of a new attempt. Raises ``StateError``."""

    @abstractmethod
    async def _worker(self, task: TaskContext, known: S) -> W:
        """Return what does the work. Raises ``PluginError``."""

    @abstractmethod
    async def _step(self, task: TaskContext, worker: W, known: S) -> tuple[S, PhaseInfo]:
        """Take the next step; return what to store and to report. Raises ``PluginBugError`` and ``TaskSpecError``."""

    @abstractmethod
    def _meaning(self, known: S, error: Exception) -> PhaseInfo:
        """Return what an error of the two means for the attempt."""

    @abstractmethod
    def _ended(self, task: TaskContext, known: S, info: PhaseInfo) -> S:
        """Release what an attempt that ends with this phase no longer holds."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as self._stack:  # an error closes what was opened
            await self._open()
            opened = self._stack.pop_all()
        self._stack = opened
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the answers to sent creates, and close. What waits is requested by the next manager."""
        await self._stack.aclose()

    async def handle(self, task: TaskContext, state: JSON | None) -> Handled:
        """Take the next step of an attempt. Never waits for room; never raises for errors of tasks or of plugins."""
        try:
            known = self._read(task, state)
        except StateError as error:
            return Handled(system_failure(CORRUPTED_STATE, str(error), retryable=False), state)
        if known.phase.is_terminal:
            return Handled(known.info(), state)
        try:
            worker = await self._worker(task, known)
        except PluginError as error:
            return self._said(task, known, self._meaning(known, error))
        try:
            known, info = await self._step(task, worker, known)
        except (PluginBugError, TaskSpecError) as error:
            info = self._meaning(known, error)
        return self._said(task, known, info, worker.id)

    def _read_anyway(self, task: TaskContext, state: JSON | None) -> S:
        """Read a stored state; one that can't be read is that of a new attempt: the task itself leads to its work."""
        try:
            return self._read(task, state)
        except StateError:
            return self._read(task, None)

    def _said(self, task: TaskContext, known: S, info: PhaseInfo, plugin: str = "") -> Handled:
        """Give the phase a version that is new if it is news, and store it in the state."""
        info = known.versioned(info)
        if info.phase.is_terminal:
            known = self._ended(task, known, info)
        if info.error is not None and known.ended is None:
            self._failures[plugin, info.phase.title, info.error.code] += 1
        return Handled(info, known.reporting(info).json())
