"""What the manager of objects keeps of an attempt between two steps. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StrictBool

from backoff_ctrl.k8s.tasks.plugins.reported import STORED, Count, Reported, StateError, damaged

__all__ = ["Made", "Stage", "State", "StateError", "damaged", "read_state"]


class Stage(StrEnum):
    """The progress of an attempt. The words are Flyte's, and are stored, so they can't change."""

    NOT_STARTED = "NotStarted"
    ALLOCATION_TOKEN_ACQUIRED = "AllocationTokenAcquired"  # noqa: S105 - the gate let it through; it may be stored
    STARTED = "Started"


@dataclass(frozen=True, slots=True)
class Made:
    """The object of an attempt, as it was created."""

    __pydantic_config__ = STORED

    api_version: str
    kind: str
    namespace: str
    name: Annotated[str, Field(min_length=1)]
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Reported):
    """One attempt. ``plugin`` is the id of the plugin that built its object.

    ``told`` has the reported events, by uid, each with its count. ``plugin_errors``: how often in a row the plugin
    failed to give the phase. ``doubt``: it was aborted while a create that was sent might still be stored.
    """

    stage: Stage = Stage.NOT_STARTED
    plugin: str = ""
    made: Annotated[Made | None, Field(alias="object")] = None
    told: Annotated[Mapping[str, Count], Field(alias="events")] = field(default_factory=dict)
    plugin_errors: Count = 0
    doubt: StrictBool = False


def read_state(stored: object, namespace: str) -> State:
    """Read a stored state of a task in this namespace; None is that of a new attempt. Raises ``StateError``.

    A user who may write the status of a Task must not have an object of another namespace read for him.
    """
    state = State.of(stored)
    missing = state.stage is Stage.STARTED and state.made is None
    if missing or (state.made is not None and state.made.namespace != namespace):
        assert isinstance(stored, dict)
        raise damaged("object", stored)
    return state
