"""What a manager of plugins keeps of an attempt between two steps, as JSON that names its version. Pure.

``Reported`` has what was reported last; each manager adds what it has to know of its own work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Generic, Self, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, StrictBool, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from backoff_ctrl.k8s.kube.operators.phases import Phase

from .phases import PhaseInfo, TaskError

JSON = dict[str, Any]

VERSION: Final = 1
REASON_MAX: Final = 2_000
"""Characters of a reason that are kept: an admission webhook, or a service, may write any length."""
STORED: Final = ConfigDict(alias_generator=to_camel)
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0)]
_ADVICE: Final = "restore the store from a copy, or abort the task and run it again"

S = TypeVar("S", bound="Reported")


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


class StoredState(Generic[S]):
    """How states of one type are stored and read."""

    def __init__(self, type_: type[S]) -> None:
        self._new = type_
        self._adapter: TypeAdapter[S] = TypeAdapter(type_)

    def json(self, state: S) -> JSON:
        """Return a state in its stored form."""
        return {"version": VERSION, **self._adapter.dump_python(state, mode="json", by_alias=True)}

    def read(self, stored: object) -> S:
        """Read a stored state; None is that of a new attempt. Raises ``StateError``."""
        if stored is None:
            return self._new()
        if not isinstance(stored, dict):
            raise StateError(f"the plugin state is {_shown(stored)} instead of an object: {_ADVICE}")
        version = stored.get("version")
        if version != VERSION:
            newer = isinstance(version, int) and version > VERSION
            advice = "it was written by a newer backoff-ctrl: run that one" if newer else _ADVICE
            raise StateError(f"the plugin state has version {_shown(version)}, this program reads version 1: {advice}")
        try:
            return self._adapter.validate_python(stored)
        except ValidationError as error:
            raise damaged(str(error.errors()[0]["loc"][0]), stored) from error


def damaged(name: str, stored: Mapping[str, Any]) -> StateError:
    """Return the error about a field that can't be right."""
    return StateError(f"the plugin state is damaged: its field {name} is {_shown(stored.get(name))}; {_ADVICE}")


def _shown(found: object) -> str:
    text = repr(found)
    return text if len(text) <= 80 else f"{text[:77]}..."
