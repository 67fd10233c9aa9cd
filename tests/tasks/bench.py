"""A plugin manager under test: steps until something holds, plain requests beside it, and restarts."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import aiohttp
from kubernetes import client

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.kube.cluster.kinds import JSON, Kind
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.plugins.core import Handled
from backoff_ctrl.k8s.tasks.plugins.manager.manager import PluginManager
from backoff_ctrl.k8s.tasks.plugins.marks import Key
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginEntry, TaskContext
from backoff_ctrl.k8s.tasks.plugins.registry import Registry
from tests.tasks.small_plugins import JOB, JobPlugin, PodPlugin, entry

WITHIN = 30.0


class Bench:
    """A manager with its callers. What it stored last of each task is in ``states``."""

    def __init__(
        self,
        url: str,
        *entries: PluginEntry,
        shared: bool = False,
        store: str = "s1",
        token: str = "",
        tls: ssl.SSLContext | None = None,
        authority: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        policy: Policy | None = None,
    ) -> None:
        """``entries``: the plugins, by default one of pods (``container``) and one of Jobs (``job``).

        ``shared``: with the ledger that the process shares for the server; else with one that learns from refusals.
        """
        self.url = url
        self.entries = entries or (entry(PodPlugin(), "container"), entry(JobPlugin(), "job", kind=JOB))
        self.states: dict[Key, JSON | None] = {}
        self.seen: list[PhaseInfo] = []
        self.woken: list[Key] = []
        self._listening: set[asyncio.Event] = set()  # one for each that waits: they must not clear each other's
        self._shared = shared
        self._store = store
        self._token = token
        self._tls = tls
        self._authority = authority
        self._now = now
        self._policy = policy
        self.manager = self._made()

    def _made(self) -> PluginManager:
        configuration = client.Configuration(host=self.url)
        if self._token:
            configuration.api_key = {"authorization": self._token}
            configuration.api_key_prefix = {"authorization": "Bearer"}
        if self._authority:
            configuration.ssl_ca_cert = self._authority
        return PluginManager(
            Registry(self.entries),
            configuration,
            store=self._store,
            wake=self._wake,
            gate=None if self._shared else AsyncGate(policy=self._policy),
            now=self._now,
        )

    def _wake(self, key: Key) -> None:
        self.woken.append(key)
        for each in self._listening:
            each.set()

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        connector = aiohttp.TCPConnector(ssl=self._tls or True)
        self._http = aiohttp.ClientSession(self.url, headers=headers, connector=connector)
        await self.manager.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.manager.__aexit__(None, None, None)
        await self._http.close()

    def use_kind(self, task_type: str, api_version: str, kind: str, plural: str) -> None:
        """Serve one more task type, whose objects are written in its tasks."""
        more = entry(JobPlugin(), task_type, kind=Kind(api_version, kind, plural))
        self.manager.registry = Registry((*self.entries, more))

    async def restart(self, url: str = "") -> None:
        """Start another manager, which knows only what was stored; at another ``url`` it has another ledger, too."""
        await self.manager.__aexit__(None, None, None)
        self.url = url or self.url
        self.manager = self._made()
        await self.manager.__aenter__()

    # -- steps ---------

    async def step(self, task: TaskContext) -> PhaseInfo:
        key = task.metadata.uid, task.metadata.attempt
        return self._stored(key, await self.manager.handle(task, self.states.get(key)))

    async def abort(self, task: TaskContext) -> PhaseInfo:
        key = task.metadata.uid, task.metadata.attempt
        return self._stored(key, await self.manager.abort(task, self.states.get(key)))

    async def finalize(self, task: TaskContext) -> None:
        await self.manager.finalize(task, self.states.get((task.metadata.uid, task.metadata.attempt)))

    async def until(self, task: TaskContext, *phases: Phase, holds: Callable[[PhaseInfo], Any] = bool) -> PhaseInfo:
        """Step whenever there is news, until the phase is one of these and ``holds``."""
        news = asyncio.Event()
        self._listening.add(news)
        try:
            async with asyncio.timeout(WITHIN):
                while True:
                    news.clear()
                    info = await self.step(task)
                    if info.phase in phases and holds(info):
                        return info
                    assert not info.phase.is_terminal, info
                    await news.wait()
        except TimeoutError as error:
            raise AssertionError(f"still {self.seen[-1]} after {WITHIN:g} s") from error
        finally:
            self._listening.discard(news)

    async def tick(self) -> None:
        """Let others go on for a moment; used where nothing tells when something has happened."""
        await self.call("GET", "/version")

    def _stored(self, key: Key, handled: Handled) -> PhaseInfo:
        self.states[key] = handled.state
        self.seen.append(handled.info)
        return handled.info

    # -- plain requests ---------

    async def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> JSON:
        """One request; the answer's object, with its status as ``http``."""
        async with self._http.request(method, path, json=body, headers={"Content-Type": content_type}) as answer:
            found: JSON = await answer.json()
            return {**found, "http": answer.status}

    async def pod(self, name: str, namespace: str = "team") -> JSON:
        return await self.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    async def set_phase(self, name: str, phase: str, namespace: str = "team") -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        done = await self.call("PATCH", path, {"status": {"phase": phase}}, "application/merge-patch+json")
        assert done["http"] == 200, done

    async def pods(self, namespace: str = "team") -> list[str]:
        return [
            each["metadata"]["name"]
            for each in (await self.call("GET", f"/api/v1/namespaces/{namespace}/pods"))["items"]
        ]
