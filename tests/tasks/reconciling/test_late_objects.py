"""Objects that appear behind the abort of their task: their creates were sent, and nobody has heard the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from kubernetes import client

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.managing import Manager
from backoff_ctrl.k8s.tasks.plugins.marks import marks_of
from backoff_ctrl.k8s.tasks.reconciler import SWEPT_FOR
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import Stored
from backoff_ctrl.k8s.tasks.through_plugins import through_plugins
from tests.tasks.reconciling.running import CONFIG, all_over
from tests.tasks.tasks_written import NAMESPACE, until, wish

pytestmark = pytest.mark.long


@asynccontextmanager
async def managed(store: SqliteStore, url: str) -> AsyncIterator[None]:
    """A manager of its own, until the end of the block."""
    manager = Manager(store, through_plugins(registry(), client.Configuration(host=url)), lambda: CONFIG)
    work = asyncio.create_task(manager.run())
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def ask(url: str, method: str = "GET", body: Any = None) -> int:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data, {"Content-Type": "application/json"}, method=method)) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def pod_of(task: Stored, store: str, name: str = "") -> dict[str, Any]:
    """The object of a task's first attempt, as a create of it would have been stored."""
    metadata = {"name": name or f"{task.name}-{task.uid[:8]}-0", "labels": marks_of((task.uid, 0), store)}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def test_what_a_killed_manager_has_sent_is_ended_when_it_appears(tmp_path: Path) -> None:
    """By the manager that aborted it, and by the one after it; what is not the object of that task stays."""
    with running_sandbox() as sandbox:
        sandbox.create_namespace(NAMESPACE)
        sandbox.create_quota(NAMESPACE, "q", {"pods": "0"})
        pods = f"{sandbox.url}/api/v1/namespaces/{NAMESPACE}/pods"
        async with SqliteStore(tmp_path / "t.db") as store:
            await store.create([wish("late")])
            identity = await store.identity()

            async def waits() -> bool:
                return (await store.get(NAMESPACE, "late")).status.phase == "WaitingForResources"

            async with managed(store, sandbox.url):
                await until(waits)
            task = await store.request_abort(NAMESPACE, "late")
            pod = pod_of(task, identity)

            async def gone() -> bool:
                return ask(f"{pods}/{pod['metadata']['name']}") == 404

            async with managed(store, sandbox.url):
                assert [each.status.phase for each in await all_over(store)] == ["Aborted"]
                assert ask(f"{sandbox.url}/api/v1/namespaces/{NAMESPACE}/resourcequotas/q", "DELETE") == 200
                assert ask(pods, "POST", pod_of(task, identity, "of-another-name")) == 201
                assert ask(pods, "POST", pod) == 201
                await until(gone)
            assert ask(pods, "POST", pod) == 201
            async with managed(store, sandbox.url):
                await until(gone)
            assert ask(f"{pods}/of-another-name") == 200
            (aborted,) = await store.aborted(0.0)
            assert aborted.uid == task.uid
            assert await store.aborted(aborted.created_at + SWEPT_FOR) == []


async def test_what_was_aborted_in_the_line_of_the_same_manager_leaves_no_doubt(tmp_path: Path) -> None:
    """Then nothing was sent: nobody has to look for it."""
    with running_sandbox() as sandbox:
        sandbox.create_namespace(NAMESPACE)
        sandbox.create_quota(NAMESPACE, "q", {"pods": "0"})
        async with SqliteStore(tmp_path / "t.db") as store, managed(store, sandbox.url):
            await store.create([wish("early")])

            async def waits() -> bool:
                return (await store.get(NAMESPACE, "early")).status.phase == "WaitingForResources"

            await until(waits)
            await store.request_abort(NAMESPACE, "early")
            (task,) = await all_over(store)
    assert task.status.phase == "Aborted"
    assert (task.status.plugin_state or {})["doubt"] is False
