"""Injected faults, and the counters of the server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from backoff_ctrl.k8s.lab.sandbox import FaultError, Sandbox, running_sandbox
from tests.sandbox.talking import PODS, ask, create, events, pod, refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from backoff_ctrl.k8s.lab.sandbox.faults import CreateCounts
    from tests.sandbox.talking import JSON


async def test_a_conflict_on_quotas_can_be_made(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """409; its details name the quota, not the pod."""
    sandbox.create_quota("team", "q", {"pods": "5"})
    sandbox.faults.quota_conflict_share = 1
    code, answer = await ask(session, "POST", PODS, pod("x"))

    assert (code, answer["reason"]) == (409, "Conflict")
    assert answer["message"] == (
        'Operation cannot be fulfilled on resourcequotas "q": the object has been modified; please apply your changes '
        "to the latest version and try again"
    )
    assert answer["details"] == {"name": "q", "kind": "resourcequotas"}


async def test_a_conflict_leaves_what_was_charged_before_it(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """With several quotas, those before the conflict are charged already."""
    sandbox.create_quota("team", "a", {"pods": "5"})
    sandbox.create_quota("team", "b", {"pods": "5"})
    sandbox.faults.quota_conflict_share = 1
    await ask(session, "POST", PODS, pod("x"))

    assert (sandbox.used("team", "a"), sandbox.used("team", "b")) == ({"pods": "1"}, {"pods": "0"})
    sandbox.recount()
    assert sandbox.used("team", "a") == {"pods": "0"}


async def test_an_overload_is_plain_text(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """429 with Retry-After, no Status; nothing is stored."""
    sandbox.faults.overload_share = 1
    sandbox.faults.retry_after_s = 2
    async with session.post(PODS, json=pod("x")) as answer:
        assert answer.status == 429
        assert answer.content_type == "text/plain"
        assert answer.headers["Retry-After"] == "2"
        assert await answer.text() == "Too many requests, please try again later.\n"

    assert (await ask(session, "GET", PODS))[1]["items"] == []
    assert sandbox.counters.creates.overloaded == 1


async def test_an_evaluation_can_time_out(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """500 with the admission plugin's message."""
    sandbox.create_quota("team", "q", {"pods": "5"})
    sandbox.faults.quota_timeout_share = 1
    code, answer = await ask(session, "POST", PODS, pod("x"))

    assert (code, answer["reason"]) == (500, "InternalError")
    assert answer["message"] == "Internal error occurred: resource quota evaluation timed out"


async def test_a_timeout_may_come_after_storing(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """504, and the object exists."""
    sandbox.faults.unknown_outcome_share = 1
    code, answer = await ask(session, "POST", PODS, pod("x"))

    assert (code, answer["reason"]) == (504, "Timeout")
    assert answer["message"] == "Timeout: request did not complete within requested timeout - context deadline exceeded"
    assert (await ask(session, "GET", f"{PODS}/x"))[0] == 200


async def test_a_connection_may_be_reset_after_storing(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """No answer at all, and the object exists."""
    sandbox.faults.reset_share = 1
    with pytest.raises(aiohttp.ClientConnectionError):
        await ask(session, "POST", PODS, pod("x"))

    assert (await ask(session, "GET", f"{PODS}/x"))[0] == 200


DELAYS = (0.3, 2, 10)
"""Seconds, tried in turn until all creates of a test arrive within the delay."""


async def test_answers_can_be_delayed_and_creates_in_flight_are_counted(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    """Twenty creates at once; none is answered before the delay is over."""
    counts = await all_at_once(sandbox, 20, lambda: create(session, pod()))

    assert (counts.seen, counts.created, counts.max_in_flight, counts.in_flight) == (20, 20, 20, 0)


async def test_refusals_are_delayed_too(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """A refusal waits as long as a 201."""
    sandbox.create_quota("team", "q", {"pods": "0"})
    counts = await all_at_once(sandbox, 8, lambda: refused(session, pod()))

    assert (counts.refused, counts.max_in_flight) == (8, 8)


async def all_at_once(sandbox: Sandbox, creates: int, send: Callable[[], Awaitable[object]]) -> CreateCounts:
    """Send ``creates`` requests, until all of them arrive within the delay; none may be answered earlier."""
    counts = sandbox.counters.of("team")
    for delay in DELAYS:
        sandbox.counters.reset()
        sandbox.faults.answer_delay_s = delay
        started = asyncio.get_running_loop().time()
        await asyncio.gather(*(send() for _ in range(creates)))
        assert asyncio.get_running_loop().time() - started >= delay
        if counts.max_in_flight == creates:
            break
    return counts


async def test_admission_can_trail_the_watch(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """A create sent immediately on the quota's event is decided by the old amounts; a moment later it is admitted."""
    sandbox.create_quota("team", "q", {"pods": "1"})
    await create(session, pod("x"))
    sandbox.faults.stale_admission_share, sandbox.faults.stale_admission_s = 1, 30
    await ask(session, "DELETE", f"{PODS}/x")
    await sandbox.until(lambda: sandbox.used("team", "q") == {"pods": "0"})

    assert "used: pods=1, limited: pods=1" in await refused(session, pod("y"))
    later = sandbox._core.clock() + 31
    sandbox._core.quota._clock = lambda: later
    await create(session, pod("y"))


async def test_a_watch_can_break(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """It ends after an event, without an error."""
    sandbox.faults.watch_break_share = 1
    watching = asyncio.create_task(_collect(session, f"{PODS}?watch=1&resourceVersion=1"))
    await create(session, pod("x"))
    assert [each["type"] for each in await watching] == ["ADDED"]


async def _collect(session: aiohttp.ClientSession, path: str) -> list[JSON]:
    return [each async for each in events(session, path)]


async def test_the_same_seed_gives_the_same_faults() -> None:
    """Drawn names and faults follow from the seed."""

    async def story(seed: int) -> list[tuple[int, str]]:
        async with Sandbox(seed=seed) as sandbox, aiohttp.ClientSession(sandbox.url) as session:
            sandbox.create_namespace("team")
            sandbox.faults.unknown_outcome_share = 0.5
            answers = [await ask(session, "POST", PODS, pod()) for _ in range(20)]
            return [(code, answer.get("metadata", {}).get("name", "")) for code, answer in answers]

    first = await story(1)
    assert first == await story(1)
    assert first != await story(2)
    assert {code for code, _ in first} == {201, 504}


async def test_faults_can_be_set_over_http(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Counters can be read there too; an unknown fault or a wrong value is refused with a message."""
    code, told = await ask(session, "POST", "/sandbox/faults", {"overload_share": 0.5})
    assert (code, told["overload_share"], sandbox.faults.overload_share) == (200, 0.5, 0.5)
    for wrong, sentence in (({"overload_share": 2}, "must be a number from 0 to 1"), ({"x": 1}, "there is no fault x"),
                            ([], "is no object"), ({"late_release_s": True}, "must be a number")):  # fmt: skip
        code, answer = await ask(session, "POST", "/sandbox/faults", wrong)
        assert code == 400
        assert sentence in answer["message"]
    _, told = await ask(session, "DELETE", "/sandbox/faults")
    assert told["overload_share"] == 0
    await create(session, pod("x"))
    _, counted = await ask(session, "GET", "/sandbox/counters")
    assert counted["by_namespace"]["team"]["created"] == 1
    await ask(session, "DELETE", "/sandbox/counters")
    assert sandbox.counters.of("team").created == 0
    assert (await ask(session, "POST", "/sandbox/recount"))[1] == {"done": "recount"}
    assert (await ask(session, "POST", "/sandbox/compact"))[1] == {"done": "compact"}


def test_faults_are_checked_all_or_none() -> None:
    """If one name is wrong, none is set."""
    with running_sandbox() as running:
        with pytest.raises(FaultError, match="the faults are"):
            running.faults.change({"overload_share": 1, "none": 1})
        assert running.faults.overload_share == 0


async def test_a_port_in_use_is_an_error() -> None:
    """``OSError``, for the asynchronous and for the background sandbox."""
    async with Sandbox() as first:
        port = int(first.url.rpartition(":")[2])
        with pytest.raises(OSError, match="address already in use"):
            await Sandbox(port=port).start()
        with pytest.raises(OSError, match="address already in use"), running_sandbox(port=port):
            pass


async def test_stopping_ends_watches_and_can_be_repeated() -> None:
    """No watch and no stop hangs."""
    sandbox = Sandbox()
    await sandbox.start()
    async with aiohttp.ClientSession(sandbox.url) as session, session.get("/api/v1/pods?watch=1") as answer:
        assert answer.status == 200
        await sandbox.stop()
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    await sandbox.stop()
