"""A Task beyond the share of its namespace says why it waits, and is carried out once others have gone."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from backoff_ctrl.k8s.tasks.cluster import store as storing
from backoff_ctrl.k8s.tasks.cluster.bounds import TaskShares
from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore
from tests.cluster.objects import made, of_core
from tests.cluster.talking import Api
from tests.cluster.tasks.custom_resources.conftest import configured, path, task

pytestmark = pytest.mark.long

ONE: Final = 500 << 10
"""Bytes that a Task of these takes, at most. Two take more than that."""
ARGUMENTS: Final = [f"argument-{each}" for each in range(4_000)]


def large(name: str) -> dict[str, Any]:
    return task(name, container={"image": "busybox", "args": ARGUMENTS})


async def test_a_task_waits_until_others_of_its_namespace_have_gone(
    kind: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storing, "ROOM_AGAIN", 0.1)
    shares = TaskShares(of_namespace=ONE, of_spec=ONE)
    async with ClusterStore(configured(kind.server), [namespace], shares=shares) as store:
        await store.ready()
        since = await store.revision()
        looking = asyncio.create_task(store.take_in_again())
        try:
            for name in ("first", "second"):
                made(await kind.post(path(namespace), large(name)))
            (told,) = (await kind.until(of_core(namespace, "events"), lambda found: len(found["items"]) == 1))["items"]
            assert (told["involvedObject"]["name"], told["reason"]) == ("second", "TooLarge")
            assert "it begins once others have ended" in told["message"]
            assert [each.name for each in await store.list()] == ["first"]
            (sentence,) = store.left_out()
            assert sentence.startswith(f"Task {namespace}/second: ")
            assert (await store.get(namespace, "second")).open, "who asks for it by its name reads it"
            made(await kind.delete(path(namespace, "first")))
            async for changes in store.watch(since, wishes=True):
                if [change.task.name for change in changes if change.task is not None] == ["second"]:
                    break
                since = changes[-1].revision
            assert store.left_out() == []
        finally:
            looking.cancel()
            await asyncio.wait({looking})
