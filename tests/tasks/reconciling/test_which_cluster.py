"""Which cluster a store's tasks are in: another one is refused, and one that does not answer is no other one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kubernetes import client

from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.tasks.executing import cluster_of
from backoff_ctrl.k8s.tasks.managing import Manager
from backoff_ctrl.k8s.tasks.plugins.core import CorePlugin
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from backoff_ctrl.k8s.tasks.store import BrokenStoreError, StoreError
from tests.tasks.reconciling.running import CONFIG
from tests.tasks.reconciling.small_cluster import SmallCluster, SmallManager
from tests.tasks.tasks_written import until, wish


def manager(store: SqliteStore, *answers: str | StoreError) -> Manager:
    """A manager of a cluster that tells of itself in this way, the last one for good."""
    left = list(answers)

    async def cluster() -> str:
        said = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(said, StoreError):
            raise said
        return said

    @asynccontextmanager
    async def make(store: str, wake: object, may_create: object, unfinished: object) -> AsyncIterator[CorePlugin]:
        yield SmallManager(SmallCluster())

    return Manager(store, make, lambda: CONFIG, cluster=cluster)


@pytest.mark.long
async def test_a_cluster_that_does_not_answer_yet_is_waited_for(tmp_path: Path) -> None:
    """Its own tasks are no stranger's; those of another cluster are, once it says who it is."""
    async with SqliteStore(tmp_path / "t.db") as store:
        await store.create([wish()])

        async def begun() -> bool:
            return any(task.status.plugin_state is not None for task in await store.list())

        for answers in (("one",), (StoreError("no answer"), "one")):
            work = asyncio.create_task(manager(store, *answers).run())
            await until(begun)
            assert not work.done()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        with pytest.raises(BrokenStoreError, match=r"unfinished tasks in another cluster \(one, this is two\)"):
            await manager(store, StoreError("no answer"), "two").run()


async def test_who_it_is_is_asked_of_the_api_server() -> None:
    """The uid of kube-system, else the address; no answer is an error to wait out."""
    with running_sandbox() as sandbox:
        ask = cluster_of(client.Configuration(host=sandbox.url))
        known = await ask()
        assert known in (sandbox.url, await ask())
        gone = sandbox.url
    with pytest.raises(StoreError, match=rf"the API server at {gone} can't be reached: tasks wait until it can"):
        await cluster_of(client.Configuration(host=gone))()
