"""Servers that tasks name are their tenants': no namespace keeps another out, and the platform's own has its half."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.k8s.gate.runtime.places import Path, Places
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo, success
from backoff_ctrl.k8s.tasks.plugins.web_protocol import Created, PluginConfig, RemoteError
from backoff_ctrl.k8s.tasks.services.webapi.origins import BEYOND, IDLE_MAX, OF_NAMESPACE, Origin, Origins, has_room
from backoff_ctrl.k8s.tasks.services.webapi.pacing import NAMED, OWN, Kind
from backoff_ctrl.k8s.tasks.services.webapi.settings import read_section, settings_of
from tests.kit.virtual_tests import in_virtual_time
from tests.tasks.webapi.web_bench import WebBench, context, web_bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext
    from backoff_ctrl.k8s.tasks.plugins.web_protocol import CallContext, StatusContext

SLOW = 59.0
"""Seconds: a little less than a call may take."""
QPS, BURST = 20, 200
"""The limits of writes, if nothing else is set."""


class NamedPlugin:
    """A plugin whose tasks name their server in ``spec.custom``; all calls of one take as long as its name says."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def get_config(self) -> PluginConfig:
        return PluginConfig()

    def resource_requirements(self, task: TaskContext) -> None:
        """Need no token."""

    def origin(self, task: TaskContext, meta: Any = None) -> str:
        return str(task.spec["custom"].get("server", ""))

    async def _call(self, context: CallContext, slow: str) -> None:
        self.calls[self.origin(context.task)] += 1
        await asyncio.sleep(SLOW if context.task.spec["custom"].get("slow") == slow else 0.01)

    async def create(self, context: CallContext) -> Created:
        await self._call(context, "create")
        return Created({"id": context.key})

    async def get(self, context: CallContext, meta: Any) -> None:
        await self._call(context, "get")

    async def delete(self, context: CallContext, meta: Any, reason: str) -> None:
        await self._call(context, "delete")

    def status(self, context: StatusContext, resource: None) -> PhaseInfo:
        return success()


@asynccontextmanager
async def managed(section: dict[str, Any] | None = None) -> AsyncIterator[WebBench]:
    async with web_bench("", loader=lambda _: NamedPlugin(), section=section) as bench:
        yield bench


@pytest.mark.parametrize("slow", ["create", "get"])
@in_virtual_time
async def test_a_namespace_with_many_slow_ports_keeps_no_other_waiting(slow: str) -> None:
    """It had the whole half that named servers share: the task of another waited as long as those ports pleased."""
    async with managed() as bench:
        standing = [
            asyncio.create_task(
                bench.end(context(f"slow-{port}", custom={"server": f"https://h:{port}", "slow": slow}), 1e6)
            )
            for port in range(100)
        ]
        await asyncio.sleep(120)
        for number in range(5):
            began = asyncio.get_running_loop().time()
            one = context(f"quick-{number}", namespace="other", custom={"server": "https://quick"})
            assert (await bench.end(one)).info.phase.title == "Success"
            assert asyncio.get_running_loop().time() - began < 1
        assert sum(each.done() for each in standing) < len(standing) / 2
        assert [(await each).info.phase.title for each in standing] == ["Success"] * len(standing)


@pytest.mark.parametrize("slow", ["create", "get"])
@in_virtual_time
async def test_a_single_place_is_the_platforms_own(slow: str) -> None:
    """The server that a task names had it for as long as a call may take, and the platform's service stood."""
    single = {"createsInFlight": 1, "caching": {"workers": 1}}
    async with managed(single) as bench:
        named = [
            context(f"slow-{port}", custom={"server": f"https://h:{port}", "slow": slow}) for port in range(20)
        ]  # fmt: skip
        standing = [asyncio.create_task(bench.end(each, 1e6)) for each in named]
        await asyncio.sleep(30)
        for number in range(20):
            began = asyncio.get_running_loop().time()
            await bench.end(context(f"own-{number}"))
            assert asyncio.get_running_loop().time() - began < 1
        done = [await each for each in standing]  # and each of them has its turn
        assert [each.info.phase.title for each in done] == ["Success"] * len(standing)


@in_virtual_time
async def test_where_slow_namespaces_are_more_than_places_they_take_turns() -> None:
    """A task's create and its read wait for one slow call each, not for all calls that came before."""
    async with managed() as bench:
        standing = [
            asyncio.create_task(
                bench.end(
                    context(
                        f"slow-{tenant}-{port}", namespace=f"t{tenant}",
                        custom={"server": f"https://h{tenant}:{port}", "slow": "create"},
                    ),
                    1e6,
                )
            )
            for port in range(20)
            for tenant in range(8)
        ]  # fmt: skip
        await asyncio.sleep(120)
        began = asyncio.get_running_loop().time()
        one = context("quick", namespace="other", custom={"server": "https://quick"})
        await bench.end(one)
        assert asyncio.get_running_loop().time() - began < 2 * 60  # behind one of each of the eight, five at a time
        for each in standing:
            each.cancel()
        await asyncio.gather(*standing, return_exceptions=True)


@asynccontextmanager
async def servers(**section: Any) -> AsyncIterator[Origins]:
    settings = settings_of(read_section("jobs", section, frozenset()), PluginConfig())
    origins = Origins(lambda: settings, lambda _: None)
    try:
        yield origins
    finally:
        await origins.aclose()


@asynccontextmanager
async def busy(*callers: Origin) -> AsyncIterator[Counter[Path]]:
    """Have each of these servers asked again and again; yield how often each was."""
    calls: Counter[Path] = Counter()

    async def ask(origin: Origin) -> None:
        while True:
            slot = await origin.pacer.enter(Kind.WRITE)
            calls[origin.path] += 1
            slot.end()

    tasks = [asyncio.create_task(ask(each)) for each in callers]
    try:
        yield calls
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@in_virtual_time
async def test_the_platforms_own_service_has_its_half_beside_200_busy_servers() -> None:
    """And they have theirs. It had 47 of 599 calls: all drew from one bucket, and each server in its turn."""
    async with servers() as origins:
        named = [origins.at(f"ns{number % 4}", f"https://s{number}") for number in range(200)]
        async with busy(origins.own, *named) as calls:
            await asyncio.sleep(10)
        most = BURST + QPS * 10
        assert calls.total() <= most + 1
        assert calls[OWN] >= most / 2 - 2
        assert calls.total() - calls[OWN] >= QPS * 10 / 2 - 2  # what may be sent at once had been taken
        async with busy(*named):
            await asyncio.sleep(60)
            began = asyncio.get_running_loop().time()
            for _ in range(BURST // 2):
                (await origins.own.pacer.enter(Kind.WRITE)).end()
            assert asyncio.get_running_loop().time() == began


@in_virtual_time
async def test_namespaces_have_turns_whatever_number_of_servers_they_name() -> None:
    """So one with fifty servers is asked no oftener than one with one."""
    async with servers(writeRateLimiter={"qps": 20, "burst": 8}) as origins:
        many = [origins.at("many", f"https://s{number}") for number in range(50)]
        async with busy(origins.at("one", "https://one"), *many) as calls:
            await asyncio.sleep(100)
        assert calls[*NAMED, "one", "https://one"] >= 100 * QPS / 4 - 5
        assert sum(calls[each.path] for each in many) >= 100 * QPS / 4 - 5
        assert max(calls[each.path] for each in many) <= 100 * QPS / 4 / 50 + 5  # and so have its servers


@in_virtual_time
async def test_a_server_has_one_share_whatever_number_of_namespaces_names_it() -> None:
    """They divide it; and what it answers to one of them stops no other."""
    async with servers(writeRateLimiter={"qps": 20, "burst": 8}) as origins:
        both = [origins.at(namespace, "https://shared") for namespace in ("a", "b")]
        async with busy(*both) as calls:
            await asyncio.sleep(100)
        assert calls.total() <= 2 + 100 * QPS / 4 + 1
        assert [calls[each.path] for each in both] == pytest.approx([100 * QPS / 8] * 2, abs=3)
        (await both[0].pacer.enter(Kind.WRITE)).end(RemoteError(429, "", 60))
        async with busy(*both) as calls:
            await asyncio.sleep(50)
        assert calls[both[0].path] == 0
        assert calls[both[1].path] == pytest.approx(50 * QPS / 4, abs=3)


@pytest.mark.parametrize(
    ("most", "asked", "had"),
    [
        (10, {"a": ["x"]}, {"a": 2}),  # a server: a quarter
        (10, {"a": ["x", "y", "z"]}, {"a": 3}),  # a namespace: no more than it leaves free
        (10, {"a": ["x", "y", "z"], "b": ["v"]}, {"a": 3, "b": 1}),
        (10, {"a": ["x", "y", "z"], "b": ["v"], "c": ["w"]}, {"a": 3, "b": 1, "c": 1}),
        (10, {"a": ["x"], "b": ["x"], "c": ["x"]}, {"a": 1, "b": 1, "c": 0}),  # one server, whoever names it
        (40, {"a": ["x", "y", "z"], "b": ["x", "v", "w"]}, {"a": 7, "b": 7}),
        (4, {"a": ["x", "y"], "b": ["x", "y"]}, {"a": 1, "b": 1}),
        (2, {"a": ["x", "y"], "b": ["x", "y"]}, {"a": 1, "b": 0}),
        (1, {"a": ["x", "y"], "b": ["x", "y"]}, {"a": 1, "b": 0}),  # beside the platform's own
        (1, {"a": []}, {"a": 0}),
    ],
)
@in_virtual_time
async def test_the_places_of_namespaces(most: int, asked: dict[str, list[str]], had: dict[str, int]) -> None:
    """Each namespace wants more than there are, at servers that never answer; the platform's own has the rest."""
    places = Places(lambda places, path: has_room(places, path, most))
    paths = [(*NAMED, namespace, server) for _ in range(most) for server in "xyzvw" for namespace in "abc"]
    paths = [path for path in paths if path[2] in asked.get(path[1], ())]
    tasks = [asyncio.create_task(places.take(object(), *path)) for path in paths]
    tasks += [asyncio.create_task(places.take(object(), *OWN)) for _ in range(most)]
    await asyncio.sleep(1)
    assert {name: places.taken[*NAMED, name] for name in asked} == had
    assert places.taken[OWN] == max(1, most - sum(had.values()))
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@in_virtual_time
async def test_servers_of_a_namespace_without_bound_are_paced_as_one_and_leave_others_theirs() -> None:
    async with servers() as origins:
        for number in range(OF_NAMESPACE):
            (await origins.at("many", f"https://{number}").pacer.enter(Kind.READ)).end(RemoteError(503, "", 60))
        for number in range(3 * OF_NAMESPACE):
            origins.at("many", f"https://{number}")
        beyond = (*NAMED, "many", BEYOND + "many")
        assert len(list(origins)) == OF_NAMESPACE + 2
        assert origins.at("many", "https://further").path == beyond
        assert origins.at("other", "https://further").path == (*NAMED, "other", "https://further")
        await asyncio.sleep(100)
        assert origins.at("many", "https://further").path != beyond  # those that are idle make room


@in_virtual_time
async def test_servers_that_nobody_uses_are_forgotten() -> None:
    async with servers() as origins:
        kept = origins.at("team", "https://kept")
        slot = await kept.pacer.enter(Kind.READ)
        for number in range(3 * IDLE_MAX):
            origins.at(f"ns-{number}", "https://one")
        assert len(list(origins)) <= 2 * IDLE_MAX
        assert origins.at("team", "https://kept") is kept
        slot.end()


@in_virtual_time
async def test_a_server_that_a_caller_is_about_to_ask_is_not_forgotten() -> None:
    """It asked to be left alone for a while; at the end of that others named many, and the caller met a KeyError."""
    async with servers() as origins:
        kept = origins.at("team", "https://kept")
        (await kept.pacer.enter(Kind.WRITE)).end(RemoteError(503, "", 60))

        async def ask() -> None:
            await kept.pacer.opened()
            (await kept.pacer.enter(Kind.WRITE)).end()

        asking = asyncio.create_task(ask())
        await asyncio.sleep(1)
        loop = asyncio.get_running_loop()
        waited = loop.create_future()

        def name_many() -> None:
            for number in range(OF_NAMESPACE):
                origins.at("team", f"https://{number}")
            waited.set_result(not asking.done())

        loop.call_at(loop.time() + kept.pacer.window().closed_for, name_many)
        assert await waited
        await asking
        assert origins.at("team", "https://kept") is kept
        assert kept.pacer.window().in_flight == 0


@in_virtual_time
async def test_who_hangs_up_as_he_is_let_in_takes_nothing_with_him() -> None:
    places = Places(lambda places, _: not places.taken[()])
    await places.take("first", "a")
    hangs_up, waits = (asyncio.create_task(places.take(key, "a")) for key in ("hangs up", "waits"))
    await asyncio.sleep(1)
    places.free("first")
    hangs_up.cancel()
    async with asyncio.timeout(1):
        await waits
    async with servers() as origins:
        slots = [await origins.own.pacer.enter(Kind.WRITE) for _ in range(16)]
        hangs_up_too = asyncio.create_task(origins.own.pacer.enter(Kind.WRITE))
        await asyncio.sleep(1)
        slots[0].end()
        hangs_up_too.cancel()
        await asyncio.gather(hangs_up_too, return_exceptions=True)
        assert origins.own.pacer.window().in_flight == 15
        slots += [await origins.own.pacer.enter(Kind.WRITE)]
        next_one = asyncio.create_task(origins.own.pacer.enter(Kind.WRITE))
        await asyncio.sleep(1)
        slots[1].end()
        async with asyncio.timeout(1):
            (await next_one).end()
        for each in slots:
            each.end()


@pytest.mark.parametrize("seed", range(5))
@in_virtual_time
async def test_any_use_of_places_keeps_all_limits_and_serves_all(seed: int) -> None:
    """With callers that come, stay, hang up while they wait, and hang up at the moment in which they are let in."""
    rng, most = random.Random(seed), 12
    places = Places(lambda places, path: has_room(places, path, most))
    has: Counter[object] = Counter()
    served, left = 0, 0

    async def use(path: Path) -> None:
        nonlocal served
        key = object()
        await places.take(key, *path)
        names = [path[:end] for end in range(len(path) + 1)] + [path[-1]]
        has.update(names)
        assert has[()] <= most
        assert has[NAMED] <= most // 2
        assert len(path) == 1 or has[path[-1]] <= most // 4
        try:
            await asyncio.sleep(rng.expovariate(1))
            served += 1
        finally:
            has.subtract(names)
            places.free(key)

    tasks = []
    for _ in range(2000):
        named = (*NAMED, rng.choice("abcd"), rng.choice("xyzvw"))
        tasks.append(asyncio.create_task(use(rng.choice([OWN, named, named]))))
        if rng.random() < 0.5:
            await asyncio.sleep(rng.expovariate(4))
        if rng.random() < 0.2:
            left += rng.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert served >= len(tasks) - left
    assert not any(isinstance(each.exception(), AssertionError) for each in tasks if not each.cancelled())
    assert not places.are_used()
    assert not places.taken
