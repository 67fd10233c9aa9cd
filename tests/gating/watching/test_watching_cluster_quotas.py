"""OpenShift's ClusterResourceQuotas, where the server has them: each is a quota of every namespace that it selects."""

from __future__ import annotations

from typing import Any

from backoff_ctrl.k8s.kube.watching.objects import CLUSTER_QUOTAS
from backoff_ctrl.k8s.kube.watching.status import WatchState
from tests.kit.virtual_tests import in_virtual_time
from tests.kit.watch_script import ScriptedServer, elapse, observed

OVER = CLUSTER_QUOTAS.plural


def over(hard: str, used: str, *namespaces: str) -> dict[str, Any]:
    """A ClusterResourceQuota of pods."""
    listed = [{"namespace": name, "status": {}} for name in namespaces]
    return {
        "spec": {"selector": {"labels": {"matchLabels": {"x": "y"}}}, "quota": {"hard": {"pods": hard}}},
        "status": {"total": {"hard": {"pods": hard}, "used": {"pods": used}}, "namespaces": listed},
    }


@in_virtual_time
async def test_where_there_are_no_cluster_quotas_they_are_asked_for_once() -> None:
    """In a day with a broken stream every hour there is one request."""
    server = ScriptedServer()
    async with observed(server) as seen:
        for _ in range(24):
            await elapse(3600)
            server.cut()

        assert [ask.what for ask in server.asked if ask.plural in {OVER, CLUSTER_QUOTAS.path}] == ["discover"]
        assert set(seen.record.status()) == {"team"}


@in_virtual_time
async def test_a_cluster_quota_counts_in_each_namespace_that_it_selects() -> None:
    """As it is created, changed, no longer selects a namespace, selects a new one, and is deleted."""
    server = ScriptedServer()
    server.served = {CLUSTER_QUOTAS.path}
    server.put(OVER, "", "big", over("10", "4", "team", "two", "other"))
    async with observed(server, ("team", "two")) as seen:
        await elapse(1)
        assert [seen.ledger.left("big", namespace=name) for name in ("team", "two", "other")] == [6, 6, None]

        server.put(OVER, "", "big", over("10", "9", "team"))
        await elapse(1)
        assert [seen.ledger.left("big", namespace=name) for name in ("team", "two")] == [1, None]

        seen.watch.add("late")
        server.put(OVER, "", "big", over("10", "9", "team", "late"))
        await elapse(1)
        assert seen.ledger.left("big", namespace="late") == 1

        server.remove(OVER, "", "big")
        await elapse(1)
        assert [seen.ledger.left("big", namespace=name) for name in ("team", "late")] == [None, None]


@in_virtual_time
async def test_a_namespace_that_comes_into_use_gets_the_existing_cluster_quotas() -> None:
    """They were listed before the namespace was used."""
    server = ScriptedServer()
    server.served = {CLUSTER_QUOTAS.path}
    server.put(OVER, "", "big", over("10", "4", "late"))
    async with observed(server, ()) as seen:
        await elapse(1)
        assert seen.ledger.left("big", namespace="late") is None
        seen.watch.add("late")

        assert seen.ledger.left("big", namespace="late") == 6


@in_virtual_time
async def test_cluster_quotas_that_can_no_longer_be_watched_are_learned() -> None:
    """The namespace's own watch is healthy, but the engine must not wait for updates of them that never come."""
    server = ScriptedServer()
    server.served = {CLUSTER_QUOTAS.path}
    server.put(OVER, "", "big", over("10", "4", "team"))
    async with observed(server, ask_again=100) as seen:
        await elapse(30)
        server.forbidden = {(OVER, None)}
        server.cut()
        await elapse(2)
        assert seen.ledger.observes()
        assert seen.ledger.left("big") is None
        assert seen.record.status()[OVER].state is WatchState.LEARNING

        server.forbidden.clear()
        await elapse(200)
        assert seen.ledger.left("big") == 6


@in_virtual_time
async def test_a_namespaces_own_quota_is_not_overwritten_by_a_cluster_quota_of_its_name() -> None:
    """Refusals give only the name. The namespace's own quota is kept, the other is counted as ignored."""
    server = ScriptedServer()
    server.served = {CLUSTER_QUOTAS.path}
    server.quota("same", hard="3")
    async with observed(server) as seen:
        server.put(OVER, "", "same", over("10", "4", "team"))
        await elapse(1)
        assert seen.ledger.left("same") == 3
        server.remove(OVER, "", "same")
        await elapse(1)

        assert seen.ledger.left("same") == 3
        assert seen.record.counts.ignored == {"name-taken": 1}


@in_virtual_time
async def test_a_name_that_is_taken_in_one_namespace_is_free_in_others() -> None:
    """The list that has both is complete: the cluster quota is not dropped where its name is its own."""
    server = ScriptedServer()
    server.served = {CLUSTER_QUOTAS.path}
    server.quota("same", hard="3")
    server.put(OVER, "", "same", over("10", "4", "team", "other"))
    async with observed(server, ("team", "other")) as seen:
        await elapse(1)
        server.cut(plural=OVER)  # list again, when the namespace's own quota is known
        await elapse(5)
        assert (seen.ledger.left("same"), seen.ledger.left("same", namespace="other")) == (3, 6)
        assert seen.record.counts.ignored == {"name-taken": 1}


@in_virtual_time
async def test_the_api_group_is_asked_for_until_the_server_answers() -> None:
    """An unreachable server has not said that the group is absent."""
    server = ScriptedServer()
    server.served = {CLUSTER_QUOTAS.path}
    server.put(OVER, "", "big", over("10", "4", "team"))
    server.down = True
    async with observed(server, longest_pause=5) as seen:
        await elapse(60)
        server.down = False
        await elapse(10)

        assert seen.ledger.left("big") == 6


@in_virtual_time
async def test_a_first_404_of_a_kind_that_existed_is_not_final() -> None:
    """A server that has just started may answer 404. Only if that continues are the quotas no longer asked for."""
    server = ScriptedServer()
    server.served = {CLUSTER_QUOTAS.path}
    server.put(OVER, "", "big", over("10", "4", "team"))
    async with observed(server) as seen:
        assert seen.ledger.left("big") == 6

        server.absent = {OVER}
        server.cut()
        await elapse(0.5)
        assert seen.ledger.left("big") is None
        server.absent.clear()
        await elapse(10)
        assert seen.ledger.left("big") == 6

        server.absent = {OVER}
        server.cut()
        await elapse(3600)
        asked = len(server.asked)
        await elapse(24 * 3600)
        assert len([ask for ask in server.asked[asked:] if ask.plural == OVER]) == 0
        assert OVER not in seen.record.status()
