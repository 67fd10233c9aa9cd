"""The store in an API server keeps the contract of all stores, and what only such a store can meet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.tasks.cluster.objects import is_held
from backoff_ctrl.k8s.tasks.cluster.requests import Requests
from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore
from backoff_ctrl.k8s.tasks.store import ConflictError, FullError, Store, StoreError
from tests.cluster.objects import made
from tests.cluster.talking import MERGE, Api
from tests.cluster.tasks.custom_resources.conftest import configured, path
from tests.tasks.store_contract import CONTRACT, DONE, RUNS, within

Stores = tuple[ClusterStore, ClusterStore]


@pytest.mark.parametrize("promise", CONTRACT, ids=lambda each: each.__name__)
async def test_the_cluster_keeps(
    stores: Stores, namespace: str, promise: Callable[[Store, Store, str], Awaitable[None]]
) -> None:
    """With two processes at the same server."""
    await promise(*stores, namespace)


async def test_who_labels_a_task_spoils_no_write(kind: Api, stores: Stores, namespace: str) -> None:
    """The version is that of the status; of the object it grows with each label and finalizer."""
    here, _ = stores
    ((task, _new),) = await here.create([within(namespace)()])
    assert await here.hold(task.uid)
    made(await kind.patch(path(namespace, "train"), {"metadata": {"labels": {"team": "vision"}}}, MERGE))
    version = await here.set_status(task.uid, task.version, RUNS, open_=True)
    assert (await here.get(namespace, "train")).version == version


async def test_a_status_that_was_edited_is_not_overwritten_unread(kind: Api, stores: Stores, namespace: str) -> None:
    """Who reads it again finds what was written. What no status can be, the server refuses itself."""
    here, _ = stores
    ((task, _new),) = await here.create([within(namespace)()])
    version = await here.set_status(task.uid, task.version, RUNS, open_=True)
    edit = {"status": {"pluginState": None, "reason": "me", "attempt": 3}}
    made(await kind.patch(path(namespace, "train") + "/status", edit, MERGE))
    with pytest.raises(StoreError):
        await here.set_status(task.uid, version, RUNS, open_=True)
    found = await here.get(namespace, "train")
    assert (found.status.reason, found.status.attempt, found.open) == ("me", 3, True)
    wrong = await kind.patch(path(namespace, "train") + "/status", {"status": {"attempt": "many"}}, MERGE)
    assert (wrong.status, "status.attempt" in wrong.text) == (422, True)


async def test_who_asks_for_another_run_meanwhile_keeps_the_task(kind: Api, namespace: str) -> None:
    """The collector of old tasks deletes only the version that it has read."""
    configuration = configured(kind.server)
    async with ClusterStore(configuration, [namespace]) as here, ClusterSession(configuration) as session:
        ((task, _new),) = await here.create([within(namespace)()])
        await here.set_status(task.uid, task.version, DONE, open_=False)
        requests = Requests(session, str(configuration.host))
        read = await requests.get(namespace, "train")
        made(await kind.patch(path(namespace, "train"), {"spec": {"again": 1}}, MERGE))
        assert not await requests.delete(read)
        with pytest.raises(ConflictError, match="has not ended"):
            await here.delete(namespace, "train")
    assert (await kind.get(path(namespace, "train"))).json["spec"]["again"] == 1


async def test_who_asks_for_another_run_meanwhile_keeps_the_finalizer(
    kind: Api, stores: Stores, namespace: str
) -> None:
    """Else the object of the new run would have no owner."""
    here, _ = stores
    ((task, _new),) = await here.create([within(namespace)()])
    assert await here.hold(task.uid)
    made(await kind.patch(path(namespace, "train"), {"spec": {"again": 1}}, MERGE))
    await here.set_status(task.uid, task.version, DONE, open_=False)
    assert is_held((await kind.get(path(namespace, "train"))).json)


async def test_a_full_namespace_refuses_with_its_own_quota_of_objects(
    kind: Api, stores: Stores, namespace: str
) -> None:
    """By Kubernetes' own quota of objects."""
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {"count/tasks.backoff-ctrl.dev": "1"}
    made(await kind.post(quotas, {"metadata": {"name": "few"}, "spec": {"hard": hard}}))
    for number in range(60):  # its controller discovers new kinds every 30 s, and counts them when the quota is edited
        status = made(await kind.get(f"{quotas}/few")).get("status") or {}
        if "count/tasks.backoff-ctrl.dev" in status.get("used", {}):
            break
        await asyncio.sleep(1)
        made(await kind.patch(f"{quotas}/few", {"spec": {"hard": {f"requests.example.com/try-{number}": "1"}}}, MERGE))
    here, _ = stores
    await here.create([within(namespace)("a")])
    with pytest.raises(FullError, match=r"may have no further task .*exceeded quota.*kubectl delete task"):
        await here.create([within(namespace)("b")])


async def test_a_circle_that_was_applied_ends(kind: Api, stores: Stores, namespace: str) -> None:
    """The server can't see it: the task that closes it has failed, with the way round; a wrong spec likewise."""
    here, _ = stores
    await here.ready()
    for name, spec in (("a", {"needs": ["b"]}), ("b", {"needs": ["a"]}), ("c", {"needs": ["d", "d"]})):
        body = {"apiVersion": "backoff-ctrl.dev/v1alpha1", "kind": "Task", "metadata": {"name": name}}
        made(await kind.post(path(namespace), {**body, "spec": {"type": "sleep", **spec}}))
    for name, code, said in (("b", "NeedsInACircle", "b -> a -> b"), ("c", "InvalidSpec", "d is named twice")):
        found = await here.get(namespace, name)
        assert (found.status.phase, found.status.code, found.open) == ("PermanentFailure", code, True)
        assert said in found.status.reason
    assert (await here.get(namespace, "a")).status.phase == "NotReady"


@pytest.mark.only_kubernetes("the sandbox lets everybody do everything")
async def test_an_account_without_rights_is_told_which(kind: Api) -> None:
    async with ClusterStore(configured(kind.server, "nobody")) as store:
        with pytest.raises(StoreError, match=r"can't be listed .*allow list and watch on tasks\.backoff-ctrl\.dev"):
            await store.list()
        with pytest.raises(StoreError, match="may not get the namespace kube-system"):
            await store.identity()
