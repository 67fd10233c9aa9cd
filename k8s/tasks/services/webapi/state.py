"""What the web manager keeps of an attempt between two steps, and the table of its stages. Pure.

Each stage is stored before the next one begins. ``CREATE_REQUESTED`` is stored right before the create is sent: an
attempt found in this stage after a kill may or may not have a job at its service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field, StrictBool

from backoff_ctrl.k8s.tasks.plugins.reported import Reported, StateError, damaged

__all__ = ["NEXT", "Stage", "StateError", "WebState", "read_state"]


class Stage(StrEnum):
    """The progress of an attempt. The words are Flyte's but for one of ours; they are stored, so they can't change."""

    NOT_STARTED = "NotStarted"
    ALLOCATION_TOKEN_ACQUIRED = "AllocationTokenAcquired"  # noqa: S105 - of a pool
    CREATE_REQUESTED = "CreateRequested"
    RESOURCES_CREATED = "ResourcesCreated"
    SUCCEEDED = "Succeeded"
    USER_FAILURE = "UserFailure"
    SYSTEM_FAILURE = "SystemFailure"


NEXT: Final[Mapping[Stage, Mapping[str, Stage]]] = {
    Stage.NOT_STARTED: {
        "token granted": Stage.ALLOCATION_TOKEN_ACQUIRED,
        "no token needed": Stage.ALLOCATION_TOKEN_ACQUIRED,
        "task refused": Stage.USER_FAILURE,
        "plugin fails": Stage.SYSTEM_FAILURE,
    },
    Stage.ALLOCATION_TOKEN_ACQUIRED: {
        "may be sent": Stage.CREATE_REQUESTED,
        "plugin fails": Stage.SYSTEM_FAILURE,
    },
    Stage.CREATE_REQUESTED: {
        "created": Stage.RESOURCES_CREATED,
        "found": Stage.RESOURCES_CREATED,
        "succeeded at once": Stage.SUCCEEDED,
        "request refused": Stage.USER_FAILURE,
        "create in doubt": Stage.SYSTEM_FAILURE,
        "plugin fails": Stage.SYSTEM_FAILURE,
    },
    Stage.RESOURCES_CREATED: {
        "succeeded": Stage.SUCCEEDED,
        "failed by the user": Stage.USER_FAILURE,
        "failed by the platform": Stage.SYSTEM_FAILURE,
        "reads fail": Stage.SYSTEM_FAILURE,
    },
    Stage.SUCCEEDED: {},
    Stage.USER_FAILURE: {},
    Stage.SYSTEM_FAILURE: {},
}
"""The stage that each event leads to. An abort ends the attempt in the stage that it is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebState(Reported):
    """One attempt. ``plugin`` is the id of the plugin that runs it, ``pool`` the pool of its token, or empty.

    ``meta`` identifies the job at its service, if one is known.
    """

    stage: Stage = Stage.NOT_STARTED
    plugin: str = ""
    pool: str = ""
    meta: Any = None
    doubt: StrictBool = False
    """It was aborted while a create might still be carried out."""
    ending: Annotated[float, Field(strict=True)] = 0.0
    """When the end of its job was first asked for, in Unix time; 0: not yet."""

    @property
    def holds_token(self) -> bool:
        """Whether the attempt has its token: from the grant until its job has ended, or is deleted."""
        begun = self.stage in (Stage.ALLOCATION_TOKEN_ACQUIRED, Stage.CREATE_REQUESTED, Stage.RESOURCES_CREATED)
        return bool(self.pool) and (self.cleanup if self.over else begun)


def read_state(stored: object) -> WebState:
    """Read a stored state; None is that of a new attempt. Raises ``StateError``."""
    state = WebState.of(stored)
    if state.stage is Stage.RESOURCES_CREATED and state.meta is None:
        assert isinstance(stored, dict)
        raise damaged("meta", stored)
    return state
