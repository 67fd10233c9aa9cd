"""One loaded plugin with what belongs to its service: settings, session, pacing, the jobs that are followed.

All calls of a plugin go through here. Each has a time limit. An exception outside the plugin's protocol is a bug of
the plugin: it is counted, and logged with the plugin's name.
"""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar, cast

import aiohttp

from backoff_ctrl.k8s.gate.runtime.places import Path, Places, leaves_as_much
from backoff_ctrl.k8s.tasks.plugins.core import Key
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginBugError, PluginError, TaskContext, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from backoff_ctrl.k8s.tasks.plugins.web_protocol import (
    META_MAX,
    AsyncPlugin,
    CallContext,
    Closes,
    Created,
    HasOrigins,
    PluginConfig,
    PluginSetup,
    RemoteError,
    ResourceRequirements,
    SecretError,
    StatusContext,
    SyncPlugin,
)

from .hosts import Resolver, is_allowed
from .origins import Origin, Origins
from .outcomes import HostRefusedError, flaw_of_answer, is_network_fault
from .pools import PoolLimits
from .refreshing import Job
from .secrets import hidden
from .settings import SettingsError, WebApiSection, WebApiSettings, check_config, read_section, settings_of

log = logging.getLogger(__name__)

T = TypeVar("T")

_REDIRECTS: Final = range(300, 400)


class LoadError(PluginError):
    """A plugin can't be loaded; the message names it, and says why."""


@dataclass
class WebCounts:
    """Counters of all services, from the start of the manager on."""

    calls: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Calls by plugin, method and result: ``ok``, a status, ``network`` or ``bug``."""
    failures: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Attempts that failed, by plugin, phase and code."""
    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What plugins count themselves, by plugin and event."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A plugin's own counters."""

    plugin: str
    counts: WebCounts

    def count(self, event: str, times: int = 1) -> None:
        """Count an event of this plugin."""
        self.counts.events[self.plugin, event] += times


class Service:
    """A loaded plugin with its service. On one event loop."""

    def __init__(
        self,
        entry: WebPluginEntry,
        section: Callable[[], Mapping[str, Any]],
        counts: WebCounts,
        wake: Callable[[Key], object],
    ) -> None:
        """Prepare. ``section`` returns the plugin's present settings, as they were written.

        Raises ``LoadError`` for settings out of range.
        """
        self.id = entry.id
        self._entry = entry
        self._section = section
        self._counts = counts
        self._written: Mapping[str, Any] | None = None
        self.own = PluginConfig()
        self.settings: WebApiSettings
        """What is in force now."""
        self._trouble = ""
        self._replaced: list[Closes] = []  # calls may be under way through them: they are closed at the end
        self._adopt()
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, resolver=Resolver()),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
            middlewares=(self._guard,),
        )
        self.plugin: AsyncPlugin | SyncPlugin | None = None
        self.origins = Origins(lambda: self.settings, wake)
        self._followed: dict[Key, Origin] = {}
        self._room = Places(self._has_room)

    def load(self) -> None:
        """Load the plugin. Raises ``LoadError``."""
        self._make()
        self.origins.begin()

    def follow_entry(self, entry: WebPluginEntry) -> None:
        """Load the plugin anew if its source has changed. If that fails, the old one goes on."""
        before, self._entry = self._entry, entry
        if entry.made_of == before.made_of:
            return
        try:
            self._make()
        except LoadError:  # it is logged
            return
        self._change()

    def _make(self) -> None:
        setup = PluginSetup(self.id, Scope(self.id, self._counts), self._section, self.session)
        try:
            plugin = self._entry.loader(setup)
            own = plugin.get_config()
            if not isinstance(own, PluginConfig):
                raise TypeError(f"get_config returned {type(own).__name__} instead of a PluginConfig")  # noqa: TRY301
            check_config(own)
        except Exception as error:
            log.exception("plugin %s can't be loaded", self.id)
            raise LoadError(f"plugin {self.id} can't be loaded: {type(error).__name__}: {error}") from error
        if isinstance(self.plugin, Closes):
            self._replaced.append(self.plugin)
        self.plugin, self.own = plugin, own
        self.settings = settings_of(self._known, own)

    async def aclose(self) -> None:
        """End reads, and close the plugin and its session."""
        await self.origins.aclose()
        for plugin in (*self._replaced, self.plugin):
            if isinstance(plugin, Closes):
                try:
                    await plugin.aclose()
                except Exception:
                    log.exception("plugin %s failed in aclose", self.id)
        await self.session.close()

    # -- jobs ---------

    def origin(self, task: TaskContext, meta: Any = None) -> Origin:
        """Return the server that a task is sent to, or where its job is; by default the platform's own."""
        plugin = self.plugin
        if not isinstance(plugin, HasOrigins):
            return self.origins.own
        try:
            return self.origins.at(task.metadata.namespace, plugin.origin(task, meta))
        except Exception:  # noqa: BLE001 - the call itself says what is wrong
            return self.origins.own

    @property
    def followed(self) -> int:
        """The number of jobs that are followed."""
        return len(self._followed)

    def follow(
        self, key: Key, task: TaskContext, meta: Any, read: Callable[[], Awaitable[PhaseInfo]], info: PhaseInfo | None
    ) -> Job:
        """Follow a job where it is."""
        origin = self._followed.get(key) or self.origin(task, meta)
        self._followed[key] = origin
        self.adopt_room(key, task.metadata.namespace)
        return origin.refresher.follow(key, read, info)

    async def take_seat(self, key: Key, origin: Origin) -> None:
        """Wait until one more create may be in doubt."""
        await self.origins.seats.take(key, *origin.path)

    def free_seat(self, key: Key) -> None:
        """Free the seat of a create whose outcome is stored. A second call is ignored."""
        self.origins.seats.free(key)

    def seated_beside(self, keys: Container[Key]) -> bool:
        """Return whether other keys than these have a seat: the outcome of such a create is not stored yet."""
        return self.origins.seats.taken_beside(keys)

    def take_room_now(self, key: Key, namespace: str) -> bool:
        """Return whether this job may be followed now; then it has its room."""
        return self._room.take_now(key, namespace)

    async def take_room(self, key: Key, namespace: str) -> None:
        """Wait until one more job of a namespace may be followed. Namespaces take turns."""
        await self._room.take(key, namespace)

    def adopt_room(self, key: Key, namespace: str) -> None:
        """Count a job that exists, or may exist. It is followed even above the limit."""
        self._room.adopt(key, namespace)

    def _has_room(self, places: Places, path: Path) -> bool:
        free = self.settings.caching.size - places.taken[()]
        return leaves_as_much(places, path, free) if path else free > 0

    def forget(self, key: Key) -> None:
        """Follow the job of an attempt no longer; another has its room."""
        origin = self._followed.pop(key, None)
        if origin is not None:
            origin.refresher.forget(key)
        self._room.free(key)

    # -- settings ---------

    def follow_settings(self) -> bool:
        """Adopt changed settings; return whether there were any.

        Wrong settings are logged once, and the old ones stay in force.
        """
        if self._section() == self._written:
            return False
        try:
            self._adopt()
        except LoadError as error:
            if str(error) != self._trouble:
                log.error("%s; the settings stay as they were", error)  # noqa: TRY400 - a sentence for people
            self._trouble = str(error)
            return False
        self._change()
        return True

    def _change(self) -> None:
        self.origins.change()
        self._room.look()

    def _adopt(self) -> None:
        self._written = self._section()
        try:
            self._known: WebApiSection = read_section(self.id, self._written, self._entry.own_keys)
        except SettingsError as error:
            raise LoadError(str(error)) from None
        self.settings = settings_of(self._known, self.own)

    # -- calls ---------

    @property
    def is_sync(self) -> bool:
        return not hasattr(self.plugin, "status")

    @property
    def asynchronous(self) -> AsyncPlugin:
        """The plugin, where it is one that creates jobs."""
        return cast(AsyncPlugin, self.plugin)

    @property
    def synchronous(self) -> SyncPlugin:
        """The plugin, where its answer is the result."""
        return cast(SyncPlugin, self.plugin)

    async def call(
        self, method: str, make: Callable[[], Awaitable[T]], context: CallContext, limit: float | None = None
    ) -> T:
        """Make one call of the service, with this context.

        Raises ``RemoteError``, network faults, ``TaskSpecError`` and ``SecretError`` as they are; anything else as a
        ``PluginBugError``. A secret that the call has read is in no text of an error.
        """
        result, hide = "bug", partial(hidden, context)
        try:
            async with asyncio.timeout(limit):
                value = await make()
            result = "ok"
        except RemoteError as error:
            result = str(error.status)
            raise RemoteError(error.status, hide(error.message), error.retry_after) from error
        except TaskSpecError as error:
            result = "task"
            raise TaskSpecError("", hide(str(error))) from error
        except SecretError:
            result = "task"
            raise
        except asyncio.CancelledError as error:
            result = "cancelled"
            caller = asyncio.current_task()
            if caller is None or caller.cancelling():
                raise
            raise ConnectionAbortedError(f"the call of {method} was cancelled") from error  # by what the plugin uses
        except Exception as error:
            if is_network_fault(error):
                result = "network"
                if hide(str(error)) == str(error):
                    raise
                raise aiohttp.ClientError(hide(str(error))) from error
            trace = hide("".join(traceback.format_exception(error)))
            log.error("plugin %s failed in %s\n%s", self.id, method, trace)  # noqa: TRY400 - without secrets
            raise PluginBugError(self.id, method, error, hide) from error
        finally:
            self._counts.calls[self.id, method, result] += 1
        return value

    def status(self, context: StatusContext, resource: object) -> PhaseInfo:
        """Return what a job's state means. Raises ``PluginBugError``."""
        said = self._pure("status", self.asynchronous.status, context, resource)
        if flaw := flaw_of_answer(said):
            raise PluginBugError(self.id, "status", TypeError(flaw))
        return said

    def limits(self, pool: str) -> PoolLimits:
        """Return the present limits of one of its pools."""
        return PoolLimits(self.settings.pools[pool], self.settings.project, self.settings.namespace)

    def requirements(self, task: TaskContext) -> ResourceRequirements | None:
        """Return the pool in which a task needs a token; None: no token needed. Raises ``PluginBugError``."""
        ask = getattr(self.plugin, "resource_requirements", None)
        if ask is None or not self.settings.pools:
            return None
        found = self._pure("resource_requirements", ask, task)
        if found is not None and not isinstance(found, ResourceRequirements):
            wrong = TypeError(f"it returned {type(found).__name__} instead of ResourceRequirements")
            raise PluginBugError(self.id, "resource_requirements", wrong)
        return found

    def _pure(self, method: str, do: Callable[..., T], *given: Any) -> T:
        try:
            return do(*given)
        except TaskSpecError:
            raise
        except Exception as error:
            self._counts.calls[self.id, method, "bug"] += 1
            log.exception("plugin %s failed in %s", self.id, method)
            raise PluginBugError(self.id, method, error) from error

    def checked(self, method: str, created: object) -> Created:
        """Return what ``create`` or ``find`` returned. Raises ``PluginBugError`` if it can't be stored."""
        wrong = ""
        if not isinstance(created, Created):
            wrong = f"it returned {type(created).__name__} instead of Created"
        elif created.meta is None:
            wrong = "it returned no meta, which identifies the job"
        else:
            try:
                size = len(json.dumps(created.meta, allow_nan=False, ensure_ascii=False).encode())
            except (TypeError, ValueError, RecursionError) as error:
                wrong = f"its meta can't be stored as JSON: {error}"
            else:
                wrong = f"its meta has {size} bytes as JSON, and may have {META_MAX}" if size > META_MAX else ""
        if wrong or not isinstance(created, Created):
            raise PluginBugError(self.id, method, TypeError(wrong))
        return created

    async def _guard(
        self,
        request: aiohttp.ClientRequest,
        handler: Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]],
    ) -> aiohttp.ClientResponse:
        """Reach the allowed hosts alone, and follow no redirect: it would lead elsewhere with the same credentials."""
        allowed = self.settings.allowed_hosts
        host = request.url.host or ""
        if not is_allowed(allowed, host, request.url.port):
            raise HostRefusedError(
                f"{host} is not in plugins.{self.id}.allowedHosts "
                f"({', '.join(allowed) or 'any but link-local addresses'}): add it, or use another host"
            )
        answer = await handler(request)
        if answer.status in _REDIRECTS and "Location" in answer.headers:
            where = answer.headers["Location"][:200]
            answer.release()
            raise RemoteError(
                answer.status, f"it redirects to {where!r}, which is not followed: configure that address"
            )
        return answer
