"""The input of the executor that carries attempts out: a core plugin, made for the time of one lease.

It gets a task as a ``TaskContext``, and keeps no more than the state that it returns: after a restart it is called
again with that state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import aiohttp

from backoff_ctrl.k8s.kube.answers.bounded_json import read_json
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.core import CorePlugin, Key, Unfinished
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginError, TaskContext, TaskMetadata, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.registry import Entry, Registry
from backoff_ctrl.k8s.tasks.plugins.signal import TYPE as SIGNAL

from .model import NOTED_WITH
from .store import Stored, StoreError, Wish

_WAITS = "the API server at {} can't be reached: tasks wait until it can"
IDENTITY_SECONDS = 10.0
"""The limit for the request that identifies the cluster."""


class MakeExecutor(Protocol):
    """Makes an executor for the time of one lease."""

    def __call__(
        self,
        store: str,
        wake: Callable[[Key], object],
        may_create: Callable[[], bool],
        unfinished: Callable[[], AsyncIterator[Unfinished]],
    ) -> AbstractAsyncContextManager[CorePlugin]:
        """Take what ``CoreSetup`` describes."""


def context_of(task: Stored, store: str, config: K8sPluginConfig) -> TaskContext:
    """Return the plugin manager's input for a task's present attempt."""
    spec: Mapping[str, Any] = task.spec
    attempt = task.status.attempt
    metadata = TaskMetadata(
        namespace=task.namespace,
        name=task.name,
        uid=task.uid,
        attempt=attempt,
        generated_name=f"{task.name}-{task.uid[:8]}-{attempt}",
        store=store,
        labels=task.metadata.get("labels", {}),
        annotations=task.metadata.get("annotations", {}),
        service_account=spec.get("serviceAccount", ""),
        interruptible=spec.get("interruptible", False),
        project=spec.get("project", ""),
        domain=spec.get("domain", ""),
        priority=spec.get("priority", 0),
    )
    return TaskContext(metadata, spec["type"], spec, config)


def check(wish: Wish, registry: Registry, config: K8sPluginConfig) -> Entry:
    """Return the plugin of a task, after it has checked the task. Raises ``TaskSpecError``: the user is still there.

    A plugin of objects tries to build the object, which is not kept.
    """
    try:
        entry = registry.resolve(wish.spec["type"])
    except PluginError as error:
        raise TaskSpecError("spec.type", str(error)) from None
    if "signal" in wish.spec and wish.spec["type"] != SIGNAL:
        raise TaskSpecError("spec.signal", f"only tasks of the type {SIGNAL} take one: leave it out")
    for asked, note in NOTED_WITH.items():
        if note in wish.spec and not (wish.abort if asked == "abort" else asked in wish.spec):
            raise TaskSpecError(f"spec.{note}", f"it is written with spec.{asked}: leave it out")
    nobody = "00000000-0000-0000-0000-000000000000"
    metadata = TaskMetadata(wish.namespace, wish.name, nobody, 0, f"{wish.name}-00000000-0")
    entry.check(TaskContext(metadata, wish.spec["type"], wish.spec, config))
    return entry


def cluster_of(configuration: Any) -> Callable[[], Awaitable[str]]:
    """Return the identity of a cluster: the uid of kube-system if that may be read, else the address.

    Raises ``StoreError`` if the API server does not answer: mistaken for another cluster, it would be refused its own
    tasks.
    """

    async def ask() -> str:
        try:
            async with ClusterSession(configuration) as session:
                answer = await session.request("GET", "/api/v1/namespaces/kube-system", timeout=IDENTITY_SECONDS)
                async with answer:
                    status, body = answer.status, await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise StoreError(f"{_WAITS.format(configuration.host)} ({str(error) or type(error).__name__})") from None
        if status == 429 or status >= 500:
            raise StoreError(f"{_WAITS.format(configuration.host)} (it answers {status})")
        try:
            return f"kube-system {read_json(body)['metadata']['uid']}"
        except (ValueError, KeyError, TypeError):  # this account may not read it, or it does not exist
            return str(configuration.host)

    return ask
