"""Callers that hang up, or are told to come again: law 20, and never two objects for one request (law 16)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from backoff_ctrl.engine import Policy
from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings
from backoff_ctrl.k8s.sidecar.http.messages import Request, Response
from tests.proxying.holding.in_memory import (
    PODS,
    Proxied,
    answered,
    full,
    hang_up,
    header,
    name_of,
    pod,
    proxied,
    status_in,
    token,
)

FORBIDDEN = (
    b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"pods is '
    b'forbidden: User \\"ann\\" cannot get resource \\"pods\\" in API group \\"\\" in the namespace \\"team\\""}'
)


def seats(proxy: Proxied) -> int:
    return proxy.gate.ledger.snapshot().namespaces["team"].seats


# -- before it was sent ---------


async def test_who_hangs_up_keeps_its_place_but_is_not_admitted() -> None:
    """Room goes to those who are there; who comes again within seat_ttl stands before those who came later."""
    async with full(3) as proxy:
        names = proxy.others
        first = proxy.post(pod("first"))
        await asyncio.sleep(0.1)
        others = [proxy.post(pod(f"other-{number}")) for number in range(2)]
        await asyncio.sleep(0.1)
        await hang_up(first)
        assert seats(proxy) == 1
        await proxy.delete(names[0])
        assert name_of(await others[0]) == "other-0", "an empty seat is never admitted"

        first = proxy.post(pod("first"))
        await asyncio.sleep(0.1)
        await proxy.delete(names[1])
        assert name_of(await first) == "first"
        assert not others[1].done()
        assert (seats(proxy), "first" in proxy.server.pods()) == (0, True)
        await hang_up(others[1])


async def test_a_place_is_not_kept_for_ever() -> None:
    """After seat_ttl the caller stands at the end."""
    async with full(2, policy=Policy(seat_ttl=10)) as proxy:
        names = proxy.others
        first = proxy.post(pod("first"))
        await asyncio.sleep(0.1)
        await hang_up(first)
        await asyncio.sleep(10.1)
        other = proxy.post(pod("other"))
        await asyncio.sleep(0.1)
        first = proxy.post(pod("first"))
        await asyncio.sleep(0.1)
        await proxy.delete(names[0])
        assert name_of(await other) == "other"
        await hang_up(first)


async def test_who_was_told_to_come_again_keeps_its_place() -> None:
    """Three holds of one second, and others that came later: it is still the first."""
    async with full(2, HoldSettings(hold=1)) as proxy:
        names = proxy.others
        first = asyncio.get_running_loop().create_task(proxy.repeat(pod("first")))
        await asyncio.sleep(0.5)
        other = asyncio.get_running_loop().create_task(proxy.repeat(pod("other")))
        await asyncio.sleep(4.0)  # the first was put off at 1 s and 3 s; it came again at 2 s and 4 s
        await proxy.delete(names[0])
        assert name_of((await first)[-1]) == "first"
        await proxy.delete(names[1])
        assert name_of((await other)[-1]) == "other"


async def test_callers_count_as_waiting_in_the_pause_that_they_were_told_to_make() -> None:
    """At no moment of half a minute does a scrape see fewer than wait."""
    async with full(1) as proxy:
        loop = asyncio.get_running_loop()
        callers = [loop.create_task(proxy.repeat(pod(f"w-{number}"))) for number in range(5)]
        await asyncio.sleep(0.1)
        reasons = set()
        while loop.time() < 29:
            reasons |= {wait.reason for wait in proxy.gate.waiting_now()}
            snapshot = proxy.gate.ledger.snapshot().namespaces["team"]
            assert (len(proxy.gate.waiting_now()), snapshot.waiting, proxy.gate.counts.waiting) == (5, 5, 5)
            await asyncio.sleep(0.05)
        assert reasons == {"quota", "comes-back"}
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)


async def test_a_newcomer_does_not_overtake_those_who_pause() -> None:
    """Room comes while the first is away for the second that it was told: it is its own when it comes."""
    async with full(1, HoldSettings(hold=1)) as proxy:
        (name,) = proxy.others
        first = asyncio.get_running_loop().create_task(proxy.repeat(pod("first")))
        await asyncio.sleep(1.1)
        await proxy.delete(name)
        newcomer = asyncio.get_running_loop().create_task(proxy.repeat(pod("newcomer"), token="bob"))
        assert name_of((await first)[-1]) == "first"
        await proxy.delete("first")
        assert name_of((await newcomer)[-1]) == "newcomer"


async def test_room_goes_on_to_the_next_if_a_caller_stays_away() -> None:
    """It is idle for two seconds, once; and the create that nobody waits for is not made later."""
    async with full(1, HoldSettings(hold=1)) as proxy:
        (name,) = proxy.others
        assert (await proxy.post(pod("first"))).status == 429
        behind = asyncio.get_running_loop().create_task(proxy.repeat(pod("behind"), token="bob"))
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        await proxy.delete(name)
        assert name_of((await behind)[-1]) == "behind"
        assert 1.5 < asyncio.get_running_loop().time() - began < 2.1
        await proxy.delete("behind")
        await asyncio.sleep(20)
        assert (proxy.server.pods(), proxy.gate.waiting(), proxy.holding.held_bytes) == ([], [], 0)


async def test_each_caller_is_told_its_own_place() -> None:
    """All are told at about the same time; who is told last still is where it was."""
    async with full(1) as proxy:
        held = []
        for number in range(5):
            held.append(proxy.post(pod(f"w-{number}")))
            await asyncio.sleep(0.005)
        told = [status_in(await each)["details"]["causes"] for each in held]
        places = [cause["message"] for causes in told for cause in causes if cause["field"] == "place"]
        assert places == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    ("agent", "query", "held_for"),
    [
        (b"kubectl/v1.36.3 (linux/amd64) kubernetes/1234567", b"", 86_400.0),
        (b"creator/v0.0.0 (darwin/arm64) kubernetes/$Format", b"", 30.0),
        (b"OpenAPI-Generator/35.0.0/python", b"", 30.0),
        (b"kubectl/v1.36.3 (linux/amd64) kubernetes/1234567", b"?timeout=10s", 8.0),
        (b"fabric8-kubernetes-client/7.3.1", b"", 8.0),
        (b"", b"", 8.0),
    ],
)
async def test_who_is_known_to_wait_is_held_longer(agent: bytes, query: bytes, held_for: float) -> None:
    """Without a pause in which it is away; one that gives up by itself hears in time."""
    async with full(1) as proxy:
        began = asyncio.get_running_loop().time()
        await proxy.post(pod(), target=PODS + query, headers=[(b"User-Agent", agent)])
        assert 0.9 * held_for <= asyncio.get_running_loop().time() - began <= held_for + 0.01


async def test_kubectl_waits_until_there_is_room() -> None:
    """For ten minutes here: the first thing that a user tries."""
    async with full(1) as proxy:
        agent = (b"User-Agent", b"kubectl/v1.36.3 (linux/amd64) kubernetes/1234567")
        waiting = proxy.post(pod("step"), headers=[agent])
        await asyncio.sleep(600)
        assert not waiting.done()
        await proxy.delete(proxy.others[0])
        assert name_of(await waiting) == "step"


async def test_an_engine_that_fails_sends_nothing_whose_caller_is_away() -> None:
    """It is sent, ungated as all that wait then, when its caller comes again."""
    async with proxied(2, HoldSettings(hold=1)) as proxy:
        await proxy.fill(1)
        await proxy.fill(1)
        proxy.watch()
        assert (await proxy.post(pod("first"))).status == 429
        proxy.gate.ledger.engine.act(_fails)
        await asyncio.sleep(0.5)
        assert not proxy.server.posts()
        assert (await proxy.post(pod("first"))).status == 429, "a new engine knows what the watch reported"


def _fails(engine: object, now: float) -> None:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("again", "place"),
    [
        ({"token": token("ann", "renewed")}, "2"),
        ({"token": token("bob")}, "3"),
        ({"token": token("ann"), "manifest": pod("other-name")}, "2"),
        ({"token": token("ann"), "manifest": pod("x") | {"spec": {"containers": [{"name": "c", "resources": {
            "requests": {"cpu": "1"}}}]}}}, "3"),
        ({"token": "opaque"}, "3"),
        ({"token": token("ann"), "headers": [(b"Impersonate-User", b"root")]}, "3"),
    ],
    ids=["renewed token", "another account", "another name, same shape", "another shape", "another credential",
         "another user"],
)  # fmt: skip
async def test_a_caller_is_known_by_its_account_and_what_it_asks_for(again: dict[str, Any], place: str) -> None:
    """A renewed token is the same caller; one that draws a new name at each try gets the seat of its equal."""
    async with full(1, HoldSettings(hold=1)) as proxy:
        ahead = proxy.post(pod("ahead"), token="zoe", target=PODS + b"?timeout=0h")
        await asyncio.sleep(0.01)
        left = proxy.post(pod("mine"), token=token("ann"))
        await asyncio.sleep(0.01)
        behind = proxy.post(pod("behind"), token="yan")
        await asyncio.sleep(0.01)
        await hang_up(left)
        given = {"manifest": pod("mine"), **again}
        response = await proxy.post(given.pop("manifest"), target=PODS + b"?timeout=1s", **given)
        causes = {cause["field"]: cause["message"] for cause in status_in(response)["details"]["causes"]}
        assert causes["place"] == place
        await asyncio.wait({ahead, behind})


# -- after it was sent ---------


@pytest.mark.parametrize("manifest", [pod("web"), pod()], ids=["own name", "generateName"])
@pytest.mark.parametrize("back_after", [0.5, 5.0], ids=["still in flight", "answered meanwhile"])
async def test_who_hangs_up_after_it_was_sent_finds_its_object(manifest: Any, back_after: float) -> None:
    """The create goes on; the next identical request gets its answer, and makes no second object."""
    async with proxied(2) as proxy:
        proxy.server.latency = 2.0
        task = proxy.post(manifest)
        await asyncio.sleep(0.1)
        await hang_up(task)
        await asyncio.sleep(back_after)
        again = await proxy.post(manifest)
        assert [name_of(again)] == proxy.server.pods()
        assert header(again, b"audit-id") == b"a-1"
        assert len(proxy.server.posts()) == 1
        third = await proxy.post(pod())
        assert len(proxy.server.pods()) == 2, "it is found once: a further request is another create"
        assert third.status == 201


async def test_the_answer_is_for_the_very_same_credential_alone() -> None:
    """A token that claims the same subject proves nothing: its create is sent, and the server decides."""
    async with proxied(2) as proxy:
        proxy.server.latency = 2.0
        task = proxy.post(pod("web"), token=token("ann"))
        await asyncio.sleep(0.1)
        await hang_up(task)
        await asyncio.sleep(5)
        forged = await proxy.post(pod("web"), token=token("ann", "forged"))
        assert forged.status == 409
        assert proxy.server.posts()[-1].head.get(b"authorization") == f"Bearer {token('ann', 'forged')}".encode()
        assert (await proxy.post(pod("web"), token=token("ann"))).status == 201


async def test_a_create_that_was_sent_and_refused_after_its_caller_left_keeps_the_place() -> None:
    """Its refusal is learned, and nothing else is sent for it."""
    async with proxied(1) as proxy:
        (name,) = await proxy.fill(1)
        proxy.server.latency = 1.0
        first = proxy.post(pod("first"))
        await asyncio.sleep(0.1)
        await hang_up(first)
        await asyncio.sleep(1)
        assert (len(proxy.server.posts()), seats(proxy)) == (1, 1)
        proxy.server.latency = 0.002
        proxy.watch()
        other = proxy.post(pod("other"), token="bob")
        await asyncio.sleep(0.1)
        first = proxy.post(pod("first"))
        await asyncio.sleep(0.1)
        await proxy.delete(name)
        assert name_of(await first) == "first"
        await hang_up(other)


@pytest.mark.parametrize("may_look", [True, False], ids=["may get", "may not get"])
async def test_an_unknown_outcome_is_cleared_up_by_the_callers_repeat(may_look: bool) -> None:
    """The answer was lost and the caller gone: the repeat has the same name, so that there is one object."""
    async with proxied(2) as proxy:
        proxy.server.latency, proxy.server.lost = 2.0, 1
        if not may_look:
            forbidden = answered(403, FORBIDDEN, "application/json")
            proxy.server.refuse = lambda request: forbidden if request.head.method == b"GET" else None
        task = proxy.post(pod())
        await asyncio.sleep(0.1)
        await hang_up(task)
        await asyncio.sleep(3)
        again = await proxy.post(pod())
        assert [name_of(again)] == proxy.server.pods()
        assert len(proxy.server.posts()) == (1 if may_look else 2)
        if may_look:
            assert proxy.server.asked[-1].head.get(b"authorization") == b"Bearer ann"


async def test_an_outcome_that_stays_unknown_is_cleared_up_by_the_repeat() -> None:
    """The server lost the answer, and could not be asked while the caller waited."""
    async with proxied(5) as proxy:
        proxy.server.lost = 1
        broken = answered(500, b"{}", "application/json")
        proxy.server.refuse = lambda request: broken if request.head.method == b"GET" else None
        first = await proxy.post(pod(), target=PODS + b"?timeout=2s", headers=[(b"Impersonate-User", b"bob")])
        assert first.status in (429, 504)
        proxy.server.refuse = lambda _: None
        again = await proxy.post(pod(), target=PODS + b"?timeout=2s", headers=[(b"Impersonate-User", b"bob")])
        assert [name_of(again)] == proxy.server.pods()
        assert len(proxy.server.posts()) == 1
        assert proxy.server.asked[-1].head.get(b"impersonate-user") == b"bob"


async def test_refused_credentials_are_sent_once() -> None:
    """A proxy has no others."""
    async with proxied(5) as proxy:
        refused = answered(401, b'{"kind":"Status","code":401,"reason":"Unauthorized"}', "application/json")
        proxy.server.refuse = lambda request: refused if request.head.method == b"POST" else None
        assert (await proxy.post(pod())).status == 401
        assert len(proxy.server.posts()) == 1


async def test_an_api_server_that_is_away_costs_no_place() -> None:
    """It is waited for as room is; then the caller comes again, and stands where it stood."""
    async with proxied(2, HoldSettings(hold=300.0, hold_total=900.0)) as proxy:
        assert (await proxy.post(pod("met"))).status == 201
        proxy.server.down = True
        first = proxy.post(pod("first"))
        await asyncio.sleep(1)
        second = proxy.post(pod("second"))
        response = await first
        assert (response.status, header(response, b"retry-after")) == (429, b"1")
        again = proxy.post(pod("first"))
        await asyncio.sleep(0.1)
        proxy.server.down = False
        assert name_of(await again) == "first"
        assert (await second).status == 429
        assert proxy.server.pods() == ["first", "met"]


async def test_two_identical_requests_at_once_are_two_creates_unless_the_name_is_fixed() -> None:
    """Two workers may want two pods; of one name the server decides."""
    async with proxied(5) as proxy:
        both = await asyncio.gather(proxy.post(pod()), proxy.post(pod()))
        assert len({name_of(each) for each in both}) == 2
        both = await asyncio.gather(proxy.post(pod("web")), proxy.post(pod("web")))
        assert sorted(each.status for each in both) == [201, 409]
        assert len(proxy.server.pods()) == 3


async def test_a_repeat_after_the_proxy_was_killed_makes_no_second_object_of_a_fixed_name() -> None:
    """A new proxy knows nothing of the old one: the server's own 409 protects the name."""
    async with proxied(5) as before:
        before.server.latency = 2.0
        task = before.post(pod("web"))
        await asyncio.sleep(1.5)
        await hang_up(task)
        after = type(before)(before.server, type(before.gate)(), None)
        assert (await after.post(pod("web"))).status == 409
        assert before.server.pods() == ["web"]


async def test_nothing_of_callers_that_went_away_is_left() -> None:
    """Seats, kept creates and the count of held bytes end by themselves."""
    async with full(1) as proxy:
        tasks = [proxy.post(pod(f"w-{number}")) for number in range(200)]
        await asyncio.sleep(0.1)
        assert proxy.gate.counts.waiting == 200
        for task in tasks:
            await hang_up(task)
        assert (proxy.gate.counts.waiting, seats(proxy), proxy.holding.held_bytes) == (0, 200, 0)
        await asyncio.sleep(11)
        assert (seats(proxy), len(proxy.holding._shared.kept), proxy.gate.waiting()) == (0, 0, [])
        assert json.loads((await proxy.post(pod())).body)["code"] == 429


# -- a server that has just started ---------


async def test_a_create_that_stood_in_line_outlasts_a_server_that_denies_everything_at_first() -> None:
    """Though it is the first that is sent there."""
    async with full(1) as proxy:
        names = proxy.others
        waits = asyncio.get_running_loop().create_task(proxy.repeat(pod()))
        await asyncio.sleep(0.1)
        started = asyncio.get_running_loop().time() + 2

        def denies(request: Request) -> Response | None:
            early = request.head.method == b"POST" and asyncio.get_running_loop().time() < started
            return answered(403, FORBIDDEN, "application/json") if early else None

        proxy.server.refuse = denies
        await proxy.delete(names[0])
        assert name_of((await waits)[-1]) in proxy.server.pods()
        assert len(proxy.server.posts()) > 1, "it was denied before"
