"""What is watched where: quotas, or else pods, or nothing; changing permissions; all namespaces or some."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from typing import TYPE_CHECKING

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.tickets import Refusal, Ticket
from backoff_ctrl.k8s.kube.watching.status import EVERYWHERE, WatchState
from tests.kit.virtual_tests import in_virtual_time
from tests.kit.watch_script import ONE, ScriptedServer, elapse, observed

if TYPE_CHECKING:
    import pytest

LEARNS = "learning from refusals instead"
ASKED = [1.0, 4.0, 16.0, 64.0, 256.0] + [300.0] * 10
QUOTAS, PODS = "resourcequotas", "pods"


@in_virtual_time
async def test_where_quotas_are_forbidden_the_ends_of_pods_are_hints() -> None:
    """A pod that finishes or is deleted leaves the watch of live pods; one that is created or runs is no hint."""
    server = ScriptedServer()
    server.forbidden = {(QUOTAS, "team")}
    server.pod("old")
    async with observed(server) as seen:
        server.pod("new")
        server.pod("new")
        await elapse(1)
        assert "team: something ended" not in seen.ledger.news

        server.remove(PODS, "team", "old")
        server.remove(PODS, "team", "new")
        await elapse(1)

        assert seen.ledger.news.count("team: something ended") == 2
        status = seen.record.of("team")
        assert status is not None
        assert (status.state, status.why) == (WatchState.PODS, "403: may not list resourcequotas")


@in_virtual_time
async def test_a_watch_of_pods_that_broke_hints_once_when_it_is_back() -> None:
    """Pods may have ended meanwhile; which ones is unknown, since no pods are stored."""
    server = ScriptedServer()
    server.forbidden = {(QUOTAS, "team")}
    for number in range(100):
        server.pod(f"p{number}")
    async with observed(server) as seen:
        await elapse(30)
        server.cut(plural=PODS)
        for number in range(100):
            server.remove(PODS, "team", f"p{number}")
        await elapse(2)

        assert seen.ledger.news.count("team: something ended") == 1


@in_virtual_time
async def test_a_permission_that_is_granted_again_is_noticed() -> None:
    """It is tried again soon, then ever more rarely, up to every ``ask_again`` seconds, with jitter.

    Then quotas are watched; the ends of pods are reported as before.
    """
    server = ScriptedServer()
    server.quota(hard="3")
    server.forbidden = {(QUOTAS, "team")}
    async with observed(server, ask_again=300) as seen:
        assert seen.record.of("team").state is WatchState.PODS  # type: ignore[union-attr]
        await elapse(1000)
        asked = server.times("list")
        assert server.count("list", PODS) == 1
        server.forbidden.clear()
        await elapse(400)

        gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
        assert all(longest * 0.8 <= gap <= longest * 1.2 for gap, longest in zip(gaps, ASKED, strict=False))
        assert len(gaps) > 5
        assert len({round(gap / longest, 3) for gap, longest in zip(gaps, ASKED, strict=False)}) > 3
        assert seen.record.of("team").state is WatchState.QUOTAS  # type: ignore[union-attr]
        assert seen.ledger.left() == 3
        assert server.open_streams == {(QUOTAS, "team"): 1, (PODS, "team"): 1}


@in_virtual_time
async def test_when_a_permission_is_revoked_the_quotas_seen_with_it_are_dropped() -> None:
    """A quota may be edited meanwhile, so its old amounts must not count: it is learned from refusals."""
    server = ScriptedServer()
    server.quota(hard="3")
    async with observed(server) as seen:
        await elapse(60)
        assert seen.ledger.left() == 3
        server.forbidden = {(QUOTAS, "team"), (PODS, "team")}
        server.cut()
        server.cut(plural=PODS)
        await elapse(3)

        assert seen.ledger.left() is None
        assert not seen.ledger.observes()
        status = seen.record.of("team")
        assert status is not None
        assert status.state is WatchState.LEARNING
        assert status.why == "403: may not list resourcequotas; 403: may not list pods"
        assert seen.record.counts.forbidden == 4


@in_virtual_time
async def test_each_change_of_state_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Forbidden for hours, granted, revoked again: three lines, however often it was tried."""
    caplog.set_level(logging.INFO, logger="backoff_ctrl.k8s")
    server = ScriptedServer()
    server.forbidden = {(QUOTAS, "team"), (PODS, "team")}
    async with observed(server, ask_again=60):
        await elapse(7200)
        server.forbidden.remove((QUOTAS, "team"))
        await elapse(120)
        server.forbidden.clear()
        await elapse(120)
        server.forbidden = {(QUOTAS, "team")}
        server.cut()
        await elapse(3600)

    first, second, third = (record.getMessage() for record in caplog.records)
    assert first.endswith("(403: may not list resourcequotas; 403: may not list pods); " + LEARNS)
    assert second == "watching quotas of namespace team"
    assert third.endswith("(403: may not list resourcequotas); watching the ends of pods instead")


@in_virtual_time
async def test_if_watching_all_namespaces_is_forbidden_each_one_in_use_is_watched() -> None:
    """The fallback starts with the namespaces known so far and adds each that comes into use."""
    server = ScriptedServer()
    server.quota(namespace="a")
    server.quota(namespace="b")
    server.forbidden = {(QUOTAS, None)}
    async with observed(server, None) as seen:
        seen.watch.add("a")
        await elapse(1)
        assert server.open_streams == {(QUOTAS, "a"): 1, (PODS, "a"): 1}
        seen.watch.add("b")
        await elapse(1000)

        assert server.open_streams == {(kind, name): 1 for kind in (QUOTAS, PODS) for name in "ab"}
        assert seen.ledger.left(namespace="a") == seen.ledger.left(namespace="b") == 2
        assert seen.record.of("a").state is WatchState.QUOTAS  # type: ignore[union-attr]
        assert seen.record.status()[EVERYWHERE].state is WatchState.LEARNING


@in_virtual_time
async def test_when_all_namespaces_may_be_watched_again_one_stream_takes_over() -> None:
    """The ledger keeps the quotas, except those deleted in between; the separate streams end."""
    server = ScriptedServer()
    for name in ("kept", "gone"):
        server.quota(name, namespace="a")
    server.forbidden = {(QUOTAS, None)}
    async with observed(server, None, ask_again=100) as seen:
        seen.watch.add("a")
        await elapse(30)
        server.down = True
        server.cut()
        server.remove(QUOTAS, "a", "gone")
        await elapse(1)
        server.down = False
        server.forbidden.clear()
        await elapse(200)

        assert server.open_streams == {(QUOTAS, None): 1, (PODS, "a"): 1}
        assert seen.ledger.ends_told_of == {"a": True}
        assert seen.ledger.left("kept", namespace="a") == 2
        assert seen.ledger.left("gone", namespace="a") is None
        assert seen.ledger.observes("a")
        assert set(seen.record.status()) == {EVERYWHERE}
        server.quota("kept", hard="9", namespace="a")
        await elapse(1)
        assert seen.ledger.left("kept", namespace="a") == 9
        server.cut(plural=PODS)
        await elapse(10)
        assert set(seen.record.status()) == {EVERYWHERE}


@in_virtual_time
async def test_with_all_namespaces_watched_only_pods_are_watched_separately() -> None:
    """There is one stream of quotas however many namespaces are in use, and the status does not mention pods."""
    server = ScriptedServer()
    server.quota(namespace="a")
    async with observed(server, None) as seen:
        seen.watch.add("a")
        seen.watch.add("b")
        await elapse(10)

        assert server.open_streams == {(QUOTAS, None): 1, (PODS, "a"): 1, (PODS, "b"): 1}
        assert set(seen.record.status()) == {EVERYWHERE}
        assert seen.record.of("b").state is WatchState.QUOTAS  # type: ignore[union-attr]


@in_virtual_time
async def test_the_namespaces_watched_separately_are_bounded() -> None:
    """Of 300, the 256 used last are watched; of the others nothing is kept, and their limits are learned."""
    server = ScriptedServer()
    for number in range(300):
        server.quota(namespace=f"n{number}")
    async with observed(server, ()) as seen:
        for number in range(300):
            seen.watch.add(f"n{number}")
            if number >= 44:
                seen.watch.add("n0")  # in constant use
            await elapse(0.01)

        assert Counter(kind for kind, _ in server.open_streams) == {QUOTAS: 256, PODS: 256}
        assert server.open_streams[QUOTAS, "n0"] == 1
        assert server.open_streams[QUOTAS, "n1"] == server.open_streams[PODS, "n1"] == 0
        assert not seen.ledger.ends_told_of["n1"]
        assert seen.ledger.left(namespace="n1") is None
        assert not seen.ledger.observes("n1")
        assert len(seen.record.status()) == 256


@in_virtual_time
async def test_the_namespaces_whose_pods_are_watched_beside_all_quotas_are_bounded() -> None:
    """The least recently used one is dropped, and the ledger no longer counts on its ends being reported."""
    server = ScriptedServer()
    async with observed(server, None) as seen:
        for number in range(257):
            seen.watch.add(f"n{number}")
            await elapse(0.01)
        await elapse(1)

        assert Counter(kind for kind, _ in server.open_streams) == {QUOTAS: 1, PODS: 256}
        assert [name for name, told in seen.ledger.ends_told_of.items() if not told] == ["n0"]


@in_virtual_time
async def test_a_quota_edited_counts_at_once_for_the_verdict_and_for_room() -> None:
    """With the event: ``spec.hard`` decides what never fits, ``status`` what fits now."""
    server = ScriptedServer()
    server.quota(hard="2", used="2")
    async with observed(server) as seen:
        await elapse(1)
        three, two = (seen.ledger.join(Demand({"pods": count * ONE})).turn for count in (3, 2))
        assert three is not None
        assert two is not None
        await elapse(0.1)
        assert isinstance(three.value, Refusal)
        assert (three.value.reason, two.value) == ("never-fits", None)

        server.quota(hard="5", used="2")
        await elapse(0.1)
        assert isinstance(two.value, Ticket)
