"""The settings of quota in the sandbox: delays of releases and new quotas, a limit on writes, the order of quotas."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from backoff_ctrl.k8s.lab.sandbox import Sandbox
from tests.sandbox.talking import MERGE, PODS, QUOTAS, STRATEGIC, ask, create, pod, quota, refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SUCCEEDED = {"status": {"phase": "Succeeded"}}


@pytest.fixture
async def slow() -> AsyncIterator[tuple[Sandbox, aiohttp.ClientSession]]:
    """A server whose quota controller reacts an hour late to releases and new quotas; ``recount`` acts at once."""
    async with Sandbox(release_delay=3600, fill_delay=3600, late_events=0) as sandbox:
        sandbox.create_namespace("team")
        async with aiohttp.ClientSession(sandbox.url) as session:
            yield sandbox, session


def hard(sandbox: Sandbox) -> Any:
    """``status.hard`` of the quota."""
    return sandbox.get(sandbox.kind("resourcequotas"), "team", "q")["status"]["hard"]


async def test_the_resync_corrects_a_leak(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """The periodic recount does, even without any release."""
    sandbox.create_quota("team", "q", {"pods": "5"})
    await create(session, pod("x"))
    await ask(session, "POST", PODS, pod("x"))

    sandbox.recount()

    assert sandbox.used("team", "q") == {"pods": "1"}


async def test_a_finished_pod_is_given_back_a_moment_later(slow: tuple[Sandbox, aiohttp.ClientSession]) -> None:
    """A create sent right after the answer to the status patch is still refused."""
    sandbox, session = slow
    sandbox.create_quota("team", "q", {"pods": "1", "count/pods": "2"})
    await create(session, pod("x"))
    code, _ = await ask(session, "PATCH", f"{PODS}/x/status", SUCCEEDED, content_type=STRATEGIC)

    assert code == 200
    assert "exceeded quota" in await refused(session, pod("y"))
    sandbox.recount()
    await create(session, pod("y"))
    assert sandbox.used("team", "q") == {"pods": "1", "count/pods": "2"}


async def test_a_deleted_pod_is_given_back_a_moment_later(slow: tuple[Sandbox, aiohttp.ClientSession]) -> None:
    """Also its ``count/pods``, which a finished pod still holds."""
    sandbox, session = slow
    sandbox.create_quota("team", "q", {"pods": "1", "count/pods": "1"})
    await create(session, pod("x"))
    await ask(session, "DELETE", f"{PODS}/x")

    assert sandbox.used("team", "q") == {"pods": "1", "count/pods": "1"}
    sandbox.recount()
    assert sandbox.used("team", "q") == {"pods": "0", "count/pods": "0"}


async def test_a_late_controller_acts_by_itself() -> None:
    """It fills in a new quota, gives back what a pod held, and applies a raised limit."""
    async with (
        Sandbox(release_delay=0.2, fill_delay=0.2, late_events=0) as sandbox,
        aiohttp.ClientSession(sandbox.url) as session,
    ):
        sandbox.create_namespace("team")
        await create(session, quota("q", {"pods": "1"}), QUOTAS)
        await create(session, pod("x"))
        await sandbox.until(lambda: sandbox.used("team", "q") == {"pods": "1"})
        await ask(session, "DELETE", f"{PODS}/x")
        await sandbox.until(lambda: sandbox.used("team", "q") == {"pods": "0"})
        await ask(session, "PATCH", f"{QUOTAS}/q", {"spec": {"hard": {"pods": "2"}}}, content_type=MERGE)
        await sandbox.until(lambda: hard(sandbox) == {"pods": "2"})


async def test_a_late_release_can_be_injected(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """The fault adds to the delay of the controller."""
    sandbox.faults.late_release_s = 0.3
    sandbox.create_quota("team", "q", {"pods": "1"})
    await create(session, pod("x"))
    started = asyncio.get_running_loop().time()
    await ask(session, "DELETE", f"{PODS}/x")
    await sandbox.until(lambda: sandbox.used("team", "q") == {"pods": "0"})

    assert asyncio.get_running_loop().time() - started >= 0.3


@pytest.mark.long
async def test_releases_wait_for_their_turn_under_a_limit_on_writes() -> None:
    """As with ``--kube-api-qps``: ten namespaces at 20 writes a second need at least 0.4 s."""
    async with Sandbox(writes_per_second=20, late_events=0) as sandbox, aiohttp.ClientSession(sandbox.url) as session:
        names = [f"n{number}" for number in range(10)]
        for name in names:
            sandbox.create_namespace(name)
            sandbox.create_quota(name, "q", {"pods": "1"})
            sandbox.create(sandbox.kind("pods"), name, pod("x"))
        started = asyncio.get_running_loop().time()
        for name in names:
            await ask(session, "DELETE", f"/api/v1/namespaces/{name}/pods/x")
        await sandbox.until(lambda: all(sandbox.used(name, "q") == {"pods": "0"} for name in names))

        assert asyncio.get_running_loop().time() - started >= 0.4


async def test_a_new_quota_is_not_enforced_until_its_status_is_filled(
    slow: tuple[Sandbox, aiohttp.ClientSession],
) -> None:
    """Pods created meanwhile are counted when it is filled."""
    sandbox, session = slow
    await create(session, quota("q", {"pods": "1"}), QUOTAS)
    await create(session, pod("a"))
    await create(session, pod("b"))
    sandbox.recount()
    assert sandbox.used("team", "q") == {"pods": "2"}

    assert (await refused(session, pod("c"))).endswith("requested: pods=1, used: pods=2, limited: pods=1")


async def test_a_raised_quota_counts_once_its_status_says_so(slow: tuple[Sandbox, aiohttp.ClientSession]) -> None:
    """``status.hard`` trails ``spec.hard``."""
    sandbox, session = slow
    sandbox.create_quota("team", "q", {"pods": "0"})
    await ask(session, "PATCH", f"{QUOTAS}/q", {"spec": {"hard": {"pods": "1"}}}, content_type=MERGE)

    assert "limited: pods=0" in await refused(session, pod("x"))
    state = sandbox.get(sandbox.kind("resourcequotas"), "team", "q")
    assert (state["spec"]["hard"], state["status"]["hard"]) == ({"pods": "1"}, {"pods": "0"})
    sandbox.recount()
    assert hard(sandbox) == {"pods": "1"}
    await create(session, pod("x"))


async def test_concurrent_creates_never_exceed_the_quota(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Fifty creates at once into room for seven."""
    sandbox.create_quota("team", "q", {"requests.cpu": "3500m"})
    answers = await asyncio.gather(*(ask(session, "POST", PODS, pod(requests={"cpu": "500m"})) for _ in range(50)))

    codes = [code for code, _ in answers]
    assert (codes.count(201), codes.count(403)) == (7, 43)
    assert sandbox.used("team", "q") == {"requests.cpu": "3500m"}
    assert sandbox.counters.of("team").refused == 43


async def test_only_the_first_exceeded_quota_is_named(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Quotas are checked in the order of their names."""
    sandbox.create_quota("team", "b", {"pods": "0"})
    sandbox.create_quota("team", "a", {"pods": "5", "count/pods": "0"})

    assert await refused(session, pod("x")) == (
        'pods "x" is forbidden: exceeded quota: a, requested: count/pods=1, used: count/pods=0, limited: count/pods=0'
    )


async def test_quotas_can_be_checked_in_any_order() -> None:
    """As on a real server, where any of them may be named first; here the seed decides."""

    async def first_named(seed: int) -> list[str]:
        async with (
            Sandbox(seed=seed, shuffled_quotas=True) as sandbox,
            aiohttp.ClientSession(sandbox.url) as session,
        ):
            sandbox.create_namespace("team")
            for name in "abc":
                sandbox.create_quota("team", name, {"pods": "0"})
            return [(await refused(session, pod("x"))).split("quota: ")[1][0] for _ in range(30)]

    named = await first_named(1)
    assert set(named) == {"a", "b", "c"}
    assert named == await first_named(1)
