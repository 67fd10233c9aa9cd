"""The interface of a web API plugin: it creates, gets and deletes a job of one service, and says what its state means.

Names and meanings follow Flyte's ``webapi.AsyncPlugin`` and ``webapi.SyncPlugin``. Calls of the service are
coroutines; ``status`` and ``resource_requirements`` are pure. A plugin keeps nothing between two calls: what it has to
know of a job is in ``meta``, JSON which the manager stores.

What a plugin raises decides what happens. ``RemoteError`` is the service's own answer: a wrong request is the user's
failure, 429 and 503 slow the manager down, other 5xx are tried again. An ``aiohttp.ClientError``, an ``OSError`` or a
``TimeoutError`` is a network fault: it is tried again and costs no retry. ``TaskSpecError`` is a task that can't be
run. Anything else is a bug of the plugin.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import aiohttp

from backoff_ctrl.k8s.kube.cluster.kinds import JSON

from .phases import PhaseInfo
from .protocol import TaskContext

Meta: TypeAlias = Any
"""What identifies a job at its service: small JSON, which is stored."""
Resource: TypeAlias = Any
"""A job as the service has it: JSON, or whatever the plugin's ``status`` reads. It is kept in memory only."""
META_MAX: Final = 16 * 1024
"""The most bytes of a ``meta`` as JSON."""


RETRY_AFTER_MAX: Final = 60.0
"""Seconds that a service may ask to wait at most: longer than that its word stops nothing."""


class RemoteError(Exception):
    """The service has answered with an error. ``status`` is that of HTTP, or what it would be there.

    ``retry_after``: the seconds that the service asks to wait, if it does; a minute at most, and nothing else than a
    number counts.
    """

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.retry_after = _seconds(retry_after)


def _seconds(asked: object) -> float | None:
    """Return a Retry-After that can be kept, at most a minute: else one answer would stop all calls."""
    if isinstance(asked, int | float) and not isinstance(asked, bool) and math.isfinite(asked) and asked >= 0:
        return min(float(asked), RETRY_AFTER_MAX)
    return None


class SecretError(Exception):
    """A secret that a task names can't be read; the message says why, never what is in it."""


@runtime_checkable
class HasOrigins(Protocol):
    """A plugin whose tasks may choose the server."""

    def origin(self, task: TaskContext, meta: Any = None) -> str:
        """Return the scheme, host and port that a task, or the job that ``meta`` names, is sent to.

        Empty: it is the platform's own service. Servers are paced each by itself.
        """


class MetricsScope(Protocol):
    """A plugin's own counters, ``backoff_ctrl_webapi_plugin_events_total{plugin, event}``."""

    def count(self, event: str, times: int = 1) -> None:
        """Count an event of this plugin. Use few names: each is a time series."""


@dataclass(frozen=True, slots=True)
class PluginSetup:
    """What a plugin is loaded with.

    ``settings`` returns the present section ``plugins.ID``, as it was written. ``session`` is for all its requests: it
    reaches the allowed hosts alone, follows no redirects, and is closed by the manager.
    """

    id: str
    metrics: MetricsScope
    settings: Callable[[], Mapping[str, Any]]
    session: aiohttp.ClientSession


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Requests a second, and how many may follow each other at once."""

    qps: float
    burst: int


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """A plugin's own defaults; the platform's settings below ``plugins.ID`` go over them (see ``settings``).

    ``resource_quotas`` has the tokens of each pool; empty: jobs need no token. ``project`` and ``namespace`` are the
    most tokens of a pool that one project, and one namespace, may have; None: no limit. ``idempotent``: a create that
    is sent twice with one ``key`` makes one job; False: after a kill that leaves it open whether a job exists, the
    attempt fails as ``CreateInDoubt``, unless the plugin can ``find`` it.
    """

    read_rate_limiter: RateLimit = RateLimit(30, 300)
    write_rate_limiter: RateLimit = RateLimit(20, 200)
    resource_quotas: Mapping[str, int] | None = None
    project: int | None = None
    namespace: int | None = None
    idempotent: bool = True


@dataclass(frozen=True, slots=True)
class ResourceRequirements:
    """The pool in which a task needs a token."""

    pool: str = "default"


@dataclass(frozen=True, slots=True)
class CallContext:
    """What every call of a service gets.

    ``key`` is the same for each call about one attempt, in every process: the id to give to the service where it can
    recognise a repeated create. ``secret(NAME)`` reads what ``spec.secrets.NAME`` of the task names, in the task's
    namespace, anew at each use; it raises ``SecretError``.
    """

    task: TaskContext
    key: str
    secret: Callable[[str], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Created:
    """A job that the service has accepted; ``resource``: its state, if the answer shows it."""

    meta: Meta
    resource: Resource | None = None


@dataclass(frozen=True, slots=True)
class StatusContext:
    """The input of ``status``, beside the job: ``now`` is the present time, in UTC."""

    task: TaskContext
    meta: Meta
    now: datetime


class AsyncPlugin(Protocol):
    """A service that accepts a job, and says later what became of it."""

    def get_config(self) -> PluginConfig:
        """Return the plugin's own defaults."""

    def resource_requirements(self, task: TaskContext) -> ResourceRequirements | None:
        """Return the pool in which the task needs a token; None: it needs none. Pure."""

    async def create(self, context: CallContext) -> Created:
        """Create the job. After a kill it may be called again with the same ``key``."""

    async def get(self, context: CallContext, meta: Meta) -> Resource:
        """Return the job's present state; in the background, so it may take its time."""

    async def delete(self, context: CallContext, meta: Meta, reason: str) -> None:
        """End the job. It may be called again; a job that is gone is no error."""

    def status(self, context: StatusContext, resource: Resource) -> PhaseInfo:
        """Return what the state means for the task. Pure."""


class SyncPlugin(Protocol):
    """A service whose answer is the result."""

    def get_config(self) -> PluginConfig:
        """Return the plugin's own defaults."""

    async def do(self, context: CallContext) -> PhaseInfo:
        """Do the task's work, and return its final phase. After a kill it may be called again with the same ``key``."""


@runtime_checkable
class Finds(Protocol):
    """A plugin that can tell after a kill whether a job exists."""

    async def find(self, context: CallContext) -> Created | None:
        """Return the job of this ``key``; None: it does not exist, and will not appear."""


@runtime_checkable
class Closes(Protocol):
    """A plugin that holds something open."""

    async def aclose(self) -> None:
        """Close it, at the end of the manager's lease; an exception is logged."""


__all__ = [
    "JSON",
    "META_MAX",
    "AsyncPlugin",
    "CallContext",
    "Closes",
    "Created",
    "Finds",
    "Meta",
    "MetricsScope",
    "PluginConfig",
    "PluginSetup",
    "RateLimit",
    "RemoteError",
    "Resource",
    "ResourceRequirements",
    "SecretError",
    "StatusContext",
    "SyncPlugin",
]
