"""What the manager keeps of a task between two steps, as JSON that names its version. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from backoff_ctrl.k8s.plugins.phases import ErrorKind, Phase, PhaseInfo, TaskError

JSON = dict[str, Any]

VERSION: Final = 1
REASON_MAX: Final = 2_000
"""Letters of a reason that are kept: an admission webhook may say anything."""


class StateError(ValueError):
    """A state that can't be read; the message says why, and what to do."""


class Stage(StrEnum):
    """How far an attempt is. The words are those of Flyte's users, and stored: they stay."""

    NOT_STARTED = "NotStarted"
    ALLOCATION_TOKEN_ACQUIRED = "AllocationTokenAcquired"  # noqa: S105 - the gate let it through; it may be stored
    STARTED = "Started"


@dataclass(frozen=True, slots=True)
class Made:
    """The object of an attempt, as it was created."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class State:
    """One attempt. ``plugin`` is the id of the plugin that built its object; ``ended`` says how the attempt ended.

    ``phase``, ``phase_version`` and ``reason`` are what was reported last, ``next_try`` too. ``told`` are the events
    that were reported, by uid, each with the times that it had occurred. ``plugin_errors``: how often in a row the
    plugin failed to say the phase. ``doubt``: it was aborted while a create that was sent might still be stored.
    """

    stage: Stage = Stage.NOT_STARTED
    plugin: str = ""
    made: Made | None = None
    phase: Phase = Phase.UNDEFINED
    phase_version: int = 0
    reason: str = ""
    next_try: float = 0.0
    ended: TaskError | None = None
    cleanup: bool = False
    told: Mapping[str, int] = field(default_factory=dict)
    plugin_errors: int = 0
    doubt: bool = False

    @property
    def over(self) -> bool:
        """Whether the attempt has ended."""
        return self.phase.is_terminal

    def info(self) -> PhaseInfo:
        """Return what was reported last."""
        return PhaseInfo(self.phase, self.phase_version, self.reason, self.ended, cleanup_on_failure=self.cleanup)

    def holding(self, reason: str) -> PhaseInfo:
        """Return the present phase with another reason: what keeps the attempt from going on passes by itself."""
        phase = Phase.NOT_READY if self.phase is Phase.UNDEFINED or self.over else self.phase
        return PhaseInfo(phase, self.phase_version, reason)

    def versioned(self, info: PhaseInfo) -> PhaseInfo:
        """Return a phase with a version above the last one if it says anything new within its phase."""
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
            ended=info.error,
            cleanup=info.cleanup_on_failure,
        )

    def json(self) -> JSON:
        """Return it as it is stored."""
        made, ended = self.made, self.ended
        return {
            "version": VERSION,
            "stage": str(self.stage),
            "plugin": self.plugin,
            "object": None
            if made is None
            else {
                "apiVersion": made.api_version,
                "kind": made.kind,
                "namespace": made.namespace,
                "name": made.name,
                "uid": made.uid,
            },
            "phase": int(self.phase),
            "phaseVersion": self.phase_version,
            "reason": self.reason,
            "nextTry": self.next_try,
            "error": None
            if ended is None
            else {"code": ended.code, "message": ended.message[:REASON_MAX], "kind": str(ended.kind)},
            "cleanup": self.cleanup,
            "events": dict(self.told),
            "pluginErrors": self.plugin_errors,
            "doubt": self.doubt,
        }


def read_state(stored: object) -> State:
    """Read a stored state; None is that of an attempt that nothing was done for. Raises ``StateError``."""
    if stored is None:
        return State()
    if not isinstance(stored, dict):
        raise StateError(f"the plugin state is {_shown(stored)} instead of an object: {_ADVICE}")
    version = stored.get("version")
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        advice = "it was written by a newer backoff-ctrl: run that one" if newer else _ADVICE
        raise StateError(f"the plugin state has version {_shown(version)}, this program reads version 1: {advice}")
    return _State(stored).read()


_ADVICE: Final = "restore the store from a copy, or abort the task and run it again"


class _State:
    """Reads the fields of a state, and names the first one that is damaged."""

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._stored = stored

    def read(self) -> State:
        stage = self._one("stage", Stage, Stage.NOT_STARTED)
        made = self._made()
        if stage is Stage.STARTED and made is None:
            raise self._damaged("object", None)
        return State(
            stage,
            self._one("plugin", _text, ""),
            made,
            self._one("phase", Phase, Phase.UNDEFINED),
            self._one("phaseVersion", _count, 0),
            self._one("reason", _text, ""),
            self._one("nextTry", _number, 0.0),
            self._error(),
            self._one("cleanup", _flag, False),
            self._one("events", _counts, {}),
            self._one("pluginErrors", _count, 0),
            self._one("doubt", _flag, False),
        )

    def _made(self) -> Made | None:
        found = self._stored.get("object")
        if found is None:
            return None
        try:
            fields = [found[name] for name in ("apiVersion", "kind", "namespace", "name", "uid")]
        except (TypeError, KeyError) as error:
            raise self._damaged("object", found) from error
        if not all(isinstance(each, str) for each in fields) or not fields[3]:
            raise self._damaged("object", found)
        return Made(*fields)

    def _error(self) -> TaskError | None:
        found = self._stored.get("error")
        if found is None:
            return None
        try:
            return TaskError(_text(found["code"]), _text(found["message"]), ErrorKind(found["kind"]))
        except (TypeError, KeyError, ValueError) as error:
            raise self._damaged("error", found) from error

    def _one(self, name: str, read: Callable[[Any], Any], default: object) -> Any:
        found = self._stored.get(name, default)
        try:
            return read(found)
        except (TypeError, ValueError) as error:
            raise self._damaged(name, found) from error

    @staticmethod
    def _damaged(name: str, found: object) -> StateError:
        return StateError(f"the plugin state is damaged: its field {name} is {_shown(found)}; {_ADVICE}")


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError
    return found


def _count(found: Any) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise TypeError
    return found


def _number(found: Any) -> float:
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise TypeError
    return float(found)


def _flag(found: Any) -> bool:
    if not isinstance(found, bool):
        raise TypeError
    return found


def _counts(found: Any) -> dict[str, int]:
    if not isinstance(found, dict):
        raise TypeError
    return {_text(name): _count(count) for name, count in found.items()}


def _shown(found: object) -> str:
    text = repr(found)
    return text if len(text) <= 80 else f"{text[:77]}..."
