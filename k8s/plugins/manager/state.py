"""What the manager keeps of a task between two steps, as JSON that names its version. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from pydantic import ConfigDict, Field, StrictBool, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from backoff_ctrl.k8s.plugins.phases import Phase, PhaseInfo, TaskError

JSON = dict[str, Any]

VERSION: Final = 1
REASON_MAX: Final = 2_000
"""Characters of a reason that are kept: an admission webhook may write any length."""
_STORED: Final = ConfigDict(alias_generator=to_camel)
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0)]
_ADVICE: Final = "restore the store from a copy, or abort the task and run it again"


class StateError(ValueError):
    """A state that can't be read; the message says why, and what to do."""


class Stage(StrEnum):
    """The progress of an attempt. The words are Flyte's, and are stored, so they can't change."""

    NOT_STARTED = "NotStarted"
    ALLOCATION_TOKEN_ACQUIRED = "AllocationTokenAcquired"  # noqa: S105 - the gate let it through; it may be stored
    STARTED = "Started"


@dataclass(frozen=True, slots=True)
class Made:
    """The object of an attempt, as it was created."""

    __pydantic_config__ = _STORED

    api_version: str
    kind: str
    namespace: str
    name: Annotated[str, Field(min_length=1)]
    uid: str


@dataclass(frozen=True, slots=True)
class State:
    """One attempt. ``plugin`` is the id of the plugin that built its object; ``ended`` says how the attempt ended.

    ``phase``, ``phase_version``, ``reason`` and ``next_try`` were reported last. ``told`` has the reported events, by
    uid, each with its count. ``plugin_errors``: how often in a row the plugin failed to give the phase. ``doubt``: it
    was aborted while a create that was sent might still be stored.
    """

    __pydantic_config__ = _STORED

    stage: Stage = Stage.NOT_STARTED
    plugin: str = ""
    made: Annotated[Made | None, Field(alias="object")] = None
    phase: Phase = Phase.UNDEFINED
    phase_version: Count = 0
    reason: str = ""
    next_try: Annotated[float, Field(strict=True)] = 0.0
    ended: Annotated[TaskError | None, Field(alias="error")] = None
    cleanup: StrictBool = False
    told: Annotated[Mapping[str, Count], Field(alias="events")] = field(default_factory=dict)
    plugin_errors: Count = 0
    doubt: StrictBool = False

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

    def reporting(self, info: PhaseInfo) -> State:
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

    def json(self) -> JSON:
        """Return it in its stored form."""
        return {"version": VERSION, **_STATES.dump_python(self, mode="json", by_alias=True)}


_STATES: Final = TypeAdapter(State)


def read_state(stored: object) -> State:
    """Read a stored state; None is that of a new attempt. Raises ``StateError``."""
    if stored is None:
        return State()
    if not isinstance(stored, dict):
        raise StateError(f"the plugin state is {_shown(stored)} instead of an object: {_ADVICE}")
    version = stored.get("version")
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        advice = "it was written by a newer backoff-ctrl: run that one" if newer else _ADVICE
        raise StateError(f"the plugin state has version {_shown(version)}, this program reads version 1: {advice}")
    try:
        state = _STATES.validate_python(stored)
    except ValidationError as error:
        raise _damaged(str(error.errors()[0]["loc"][0]), stored) from error
    if state.stage is Stage.STARTED and state.made is None:
        raise _damaged("object", stored)
    return state


def _damaged(name: str, stored: Mapping[str, Any]) -> StateError:
    return StateError(f"the plugin state is damaged: its field {name} is {_shown(stored.get(name))}; {_ADVICE}")


def _shown(found: object) -> str:
    text = repr(found)
    return text if len(text) <= 80 else f"{text[:77]}..."
