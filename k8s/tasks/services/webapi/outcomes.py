"""What an error of a service, or of its plugin, means for an attempt. Pure.

The service's answer decides whose failure it is. A network fault, an overloaded service and a 5xx are temporary: the
call is made again, and costs no retry. Whether a job may exist after that is another question, which only matters for a
create: ``sent`` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import aiohttp

from backoff_ctrl.k8s.kube.operators.phases import ErrorKind
from backoff_ctrl.k8s.tasks.plugins.phases import PLUGIN_FAILED, PhaseInfo, failed, flaw_of, system_failure
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginBugError, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.web_protocol import RemoteError, SecretError

from .pacing import OVERLOADED

GONE: Final = (404, 410)
CREATE_IN_DOUBT: Final = "CreateInDoubt"
REFRESH_FAILED: Final = "RefreshFailed"
NO_POOL: Final = "PoolNotFound"
BAD_TASK: Final = "BadTaskFormat"
NO_SECRET: Final = "SecretNotReadable"  # noqa: S105
TEMPORARY: Final = (408, 425, *OVERLOADED)
_BY_STATUS: Final[Mapping[int, tuple[str, ErrorKind, bool]]] = {
    401: ("Unauthenticated", ErrorKind.SYSTEM, True),
    403: ("PermissionDenied", ErrorKind.SYSTEM, True),
    404: ("NotFound", ErrorKind.USER, False),
    409: ("Conflict", ErrorKind.USER, False),
}
"""The code of an answer, who has to fix it, and whether another attempt may help. Any other 4xx is ``BadRequest``."""


class HostRefusedError(Exception):
    """A plugin wanted to reach a host that the settings do not allow."""


def is_network_fault(error: BaseException) -> bool:
    """Return whether the service could not be reached, or has not answered in time."""
    return isinstance(error, aiohttp.ClientError | OSError | TimeoutError)


@dataclass(frozen=True, slots=True)
class Judged:
    """What an error of a create means. ``failure``: the end of the attempt; None: the create is tried again.

    ``sent``: a job may exist all the same. ``reason`` is a sentence for people.
    """

    reason: str
    failure: PhaseInfo | None = None
    sent: bool = False


def judge_create(plugin: str, error: BaseException) -> Judged:
    """Return what an error of ``create`` or ``do`` means."""
    if isinstance(error, RemoteError):
        return _judge_answer(plugin, error)
    if isinstance(error, aiohttp.ClientConnectorError | ConnectionRefusedError):
        return Judged(f"the service of plugin {plugin} can't be reached: {error}")
    if is_network_fault(error):
        reason = str(error) or "it has not answered in time"
        return Judged(f"the service of plugin {plugin} can't be reached: {reason}", sent=True)
    if isinstance(error, TaskSpecError):
        return Judged(str(error), failed(BAD_TASK, str(error)))
    if isinstance(error, SecretError):
        return Judged(str(error), failed(NO_SECRET, str(error)))
    reason = str(error) if isinstance(error, PluginBugError) else str(PluginBugError(plugin, "create", error))
    return Judged(reason, system_failure(PLUGIN_FAILED, reason), sent=not isinstance(error.__cause__, HostRefusedError))


def _judge_answer(plugin: str, error: RemoteError) -> Judged:
    reason = f"the service of plugin {plugin} answered {error}"
    if error.status in TEMPORARY:
        return Judged(reason, sent=error.status == 408)
    if not 400 <= error.status < 500:
        return Judged(reason, sent=True)
    code, kind, retryable = _BY_STATUS.get(error.status, ("BadRequest", ErrorKind.USER, False))
    return Judged(reason, failed(code, reason, kind=kind, retryable=retryable))


def storable(info: PhaseInfo) -> PhaseInfo:
    """Return what is to be reported without halves of surrogate pairs: a service's JSON may have them, a store not."""
    error = info.error and replace(info.error, message=_characters(info.error.message))
    return replace(info, reason=_characters(info.reason), error=error)


def _characters(text: str) -> str:
    return text.encode(errors="replace").decode()


def flaw_of_answer(answer: object) -> str:
    """Return the flaw of the PhaseInfo that a plugin makes of its service's answer; empty if it is sound."""
    try:
        return flaw_of(answer)
    except Exception as wrong:  # noqa: BLE001 - a plugin may return any object
        return f"it returned a PhaseInfo that can't be read: {wrong}"


def in_doubt(plugin: str, reason: str, code: str = CREATE_IN_DOUBT) -> PhaseInfo:
    """Return the end of an attempt whose job may exist, at a service where a repeated create would make another."""
    text = (
        f"{reason}; whether its job exists is unknown, and plugin {plugin} can't look it up: look at the service, then "
        "run the task again"
    )
    return system_failure(code, text, retryable=False)
