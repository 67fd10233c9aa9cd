"""Creates through the sidecar: held, sent in order, put off, handed back. Virtual time, the sandbox's admission."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.creates.creation import OptionError
from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID
from backoff_ctrl.k8s.sidecar.holding.callers import KeptCreates
from backoff_ctrl.k8s.sidecar.holding.create_request import PutOff
from backoff_ctrl.k8s.sidecar.holding.holding import Holding
from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings
from backoff_ctrl.k8s.sidecar.http.messages import Request, Response
from tests.proxying.holding.in_memory import (
    PODS,
    MemoryServer,
    Proxied,
    answered,
    full,
    hang_up,
    header,
    held,
    name_of,
    now,
    pod,
    proxied,
    status_in,
)


async def test_a_create_that_fits_is_answered_as_the_server_answers() -> None:
    """Status, headers, body and content type are the server's; the name and the create id were added."""
    async with proxied(1) as proxy:
        response = await proxy.post(pod())
        stored = json.loads(response.body)
        assert (response.status, header(response, b"audit-id")) == (201, b"a-1")
        assert stored["metadata"]["name"] in proxy.server.pods()
        assert stored["metadata"]["annotations"][CREATE_ID]
        assert len(stored["metadata"]["name"]) == len("web-") + 10
        (sent,) = proxy.server.posts()
        assert sent.head.get(b"content-length") is None, "it is another length now, which its sender knows"


async def test_creates_wait_and_are_sent_in_order_when_room_comes() -> None:
    """One pod goes, one waiting create gets in: the first in line, and none is refused."""
    async with full(3) as proxy:
        names = proxy.others
        waiting = []
        for number in range(3):
            waiting.append(proxy.post(pod(f"w-{number}")))
            await asyncio.sleep(0.01)
        await held(proxy, *waiting)
        for number, name in enumerate(names):
            await proxy.delete(name)
            assert name_of(await waiting[number]) == f"w-{number}"
            assert not any(task.done() for task in waiting[number + 1 :])
        assert len(proxy.server.posts()) == 3


async def test_a_create_is_held_for_hold_seconds_then_told_what_it_waits_for() -> None:
    """429 with an integer Retry-After, and a Status that names quota, resource, asked, left and place."""
    async with full(1) as proxy:
        began = now()
        response = await proxy.post(pod())
        assert 7.2 <= now() - began <= 8.01, "ends of holds are spread"
        status = status_in(response)
        assert (response.status, header(response, b"retry-after")) == (429, b"1")
        assert (status["reason"], status["code"], status["details"]["retryAfterSeconds"]) == ("TooManyRequests", 429, 1)
        causes = {cause["field"]: cause["message"] for cause in status["details"]["causes"]}
        assert causes == {"quota": "q", "resource": "pods", "asked": "1", "left": "0", "place": "1"}
        assert "quota q" in status["message"]
        assert not proxy.server.posts()


async def test_all_holds_of_one_call_end_with_hold_total() -> None:
    """Pauses count; the last 429 has no Retry-After, so that client-go returns it. The next call begins anew."""
    async with full(1) as proxy:
        for _ in range(2):
            began = now()
            responses = await proxy.repeat(pod())
            assert [header(each, b"retry-after") for each in responses] == [b"1", b"1", b"1", None]
            assert now() - began == pytest.approx(30, abs=0.1)
            assert status_in(responses[-1])["details"]["retryAfterSeconds"] == 1


@pytest.mark.parametrize(("limit", "held_for"), [("4s", 2.0), ("1s", 0.5), ("1m30s", 8.0), ("nonsense", 8.0)])
async def test_the_callers_own_time_out_shortens_the_hold(limit: str, held_for: float) -> None:
    """It must hear of the wait before it gives up by itself."""
    async with full(1) as proxy:
        began = now()
        response = await proxy.post(pod(), target=PODS + f"?fieldManager=x&timeout={limit}".encode())
        assert 0.9 * held_for <= now() - began <= held_for + 0.01
        assert response.status == 429


@pytest.mark.parametrize("answer", ["error", "quota"])
async def test_other_answers_leave_the_retry_to_the_caller(answer: Any) -> None:
    """``error``: 429 without the header. ``quota``: the refusal of the full quota, as without the proxy."""
    async with full(1, HoldSettings(answer=answer)) as proxy:
        response = await proxy.post(pod("web"))
        status = status_in(response)
        assert header(response, b"retry-after") is None
        if answer == "error":
            assert (response.status, status["details"]["retryAfterSeconds"]) == (429, 1)
        else:
            text = 'pods "web" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
            assert (response.status, status["message"]) == (403, text)


async def test_with_quota_as_the_answer_the_servers_own_refusal_is_given() -> None:
    """It was sent, since nothing was known: the caller gets the very bytes of the server."""
    async with proxied(1, HoldSettings(answer="quota")) as proxy:
        await proxy.fill(1)
        response = await proxy.post(pod("web"))
        assert (response.status, header(response, b"audit-id")) == (403, b"a-1")


async def test_what_can_never_fit_is_refused_at_once() -> None:
    """403, not held; whether the quota is observed, or only its refusal is known."""
    huge = pod("huge")
    huge["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "9"}}
    async with proxied(None) as proxy:
        proxy.server.sandbox.create_quota("team", "q", {"requests.cpu": "4"})
        proxy.watch()
        response = await proxy.post(huge)
        assert (response.status, now() < 1, proxy.server.posts()) == (403, True, [])
        assert "exceeded quota: q, requested: requests.cpu=9, used: requests.cpu=0" in status_in(response)["message"]


async def test_the_first_create_of_a_namespace_lists_its_quotas_as_the_creator() -> None:
    """With the creator's credentials: so not even the first create is refused."""
    async with proxied(1) as proxy:
        ledger = proxy.gate.ledger
        ledger.line.list_quotas_first(100.0)
        await proxy.fill(1)
        assert (await proxy.post(pod(), token="t-1")).status == 429
        first, *others = proxy.server.asked
        assert (first.head.method, first.head.target) == (b"GET", b"/api/v1/namespaces/team/resourcequotas")
        assert first.head.get(b"authorization") == b"Bearer t-1"
        assert all(request.head.method == b"POST" for request in others), "but for probes, nothing else"


async def test_a_refusal_that_the_list_did_not_foresee_rejoins_the_line() -> None:
    """Learned from the refusal alone; a hint of room (a DELETE that passed) lets it probe, and it gets in."""
    async with proxied(1) as proxy:
        (name,) = await proxy.fill(1)
        waiting = proxy.post(pod())
        await asyncio.sleep(3)
        assert not waiting.done()
        await proxy.delete(name)
        gone = now()
        head = type(proxy.server.asked[-1].head)(b"DELETE", PODS + b"/" + name.encode(), [])
        proxy.holding.passed(head, 200, [], b"")
        assert name_of(await waiting) in proxy.server.pods()
        assert now() - gone < 0.1, "by its timer alone it would probe after 1.8 s and more"


async def test_nothing_is_marked_where_that_is_turned_off() -> None:
    """The body arrives byte for byte, and the server draws the name. The create waits all the same."""
    async with full(1, HoldSettings(mark=False)) as proxy:
        (name,) = proxy.others
        waiting = proxy.post(json.dumps(pod(), indent=3).encode())
        await held(proxy, waiting)
        await proxy.delete(name)
        stored = json.loads((await waiting).body)
        assert [request.body for request in proxy.server.posts()] == [json.dumps(pod(), indent=3).encode()]
        assert "annotations" not in stored["metadata"]
        assert len(stored["metadata"]["name"]) == len("web-") + 5


@pytest.mark.parametrize(("mode", "status", "sent"), [("shadow", 403, 1), ("enforce", 429, 0)])
async def test_the_mode_of_a_namespace_holds(mode: Any, status: int, sent: int) -> None:
    """Shadow decides and counts, but sends the creator's own bytes."""
    async with full(1, mode={"team": mode}) as proxy:
        assert (await proxy.post(pod())).status == status
        assert [request.body for request in proxy.server.posts()] == [json.dumps(pod()).encode()] * sent
        assert proxy.gate.counts.shadow_waits == sent


async def test_an_error_of_ours_lets_the_create_through_as_it_came() -> None:
    """Law 18: it is counted, and the caller gets the server's answer."""
    async with proxied(1) as proxy:
        object.__setattr__(proxy.holding._shared, "reviews", None)  # a bug
        response = await proxy.post(pod())
        assert response.status == 201
        assert [request.body for request in proxy.server.posts()] == [json.dumps(pod()).encode()]
        assert proxy.gate.counts.failed_open == 1


async def test_an_error_of_ours_after_it_was_sent_does_not_send_it_twice() -> None:
    """The caller gets the server's word; if there is none, it hears that the object may be stored."""
    async with proxied(1, HoldSettings(mark=False)) as proxy:
        await proxy.fill(1)
        object.__setattr__(proxy.holding._shared, "put_off", Failing(1.0))
        response = await proxy.post(pod(), target=PODS + b"?timeout=400ms")
        assert (response.status, header(response, b"audit-id"), len(proxy.server.posts())) == (403, b"a-1", 1)
    async with proxied(1, HoldSettings(mark=False)) as proxy:
        object.__setattr__(proxy.holding._shared, "kept", FailingToKeep(1.0, now))
        proxy.server.lost = 1
        response = await proxy.post(pod())
        assert (response.status, len(proxy.server.posts()), proxy.gate.counts.failed_open) == (504, 1, 1)


async def test_a_server_that_is_gone_is_a_503_and_one_that_does_not_answer_a_504() -> None:
    """In the API server's form; without the gate's knowledge of a name, nothing is sent a second time."""
    async with proxied(1, HoldSettings(mark=False)) as proxy:
        proxy.server.lost = 1
        response = await proxy.post(pod())
        assert (response.status, status_in(response)["reason"]) == (504, "Timeout")
        assert len(proxy.server.pods()) == 1
    async with proxied(1) as proxy:
        proxy.server.down = True
        response = await proxy.post(pod())
        assert (response.status, status_in(response)["reason"]) == (503, "ServiceUnavailable")
        assert header(response, b"retry-after") == b"1", "nothing was sent: it may be sent again"


async def test_a_server_that_restarts_is_waited_for() -> None:
    """It was reached before: what comes meanwhile is held, and sent when it is back, up to the longest pause later."""
    async with proxied(2, HoldSettings(hold=30.0)) as proxy:
        assert (await proxy.post(pod())).status == 201
        proxy.server.down = True
        waiting = proxy.post(pod("w"))
        await asyncio.sleep(1)
        proxy.server.down = False
        assert name_of(await waiting) == "w"


@pytest.mark.parametrize("wrong", [{"hold": -1}, {"hold": float("nan")}, {"hold_total": 1e9}, {"answer": "later"}])
def test_wrong_settings_are_refused_with_a_sentence(wrong: Any) -> None:
    """Before anything is served."""
    with pytest.raises(OptionError, match="--"):
        HoldSettings(**wrong)


async def test_quotas_are_listed_with_the_proxys_own_account_where_it_may() -> None:
    """Else as the creator; and whoever may not list learns from the refusal."""
    async with proxied(1) as proxy:
        await proxy.fill(1)
        own = Own(proxy.server)
        for may, asked in ((True, [None]), (False, [None, b"Bearer ann"])):
            own.may = may
            gate = AsyncGate()
            gate.ledger.line.list_quotas_first(100.0)
            proxy.server.asked.clear()
            again = Proxied(proxy.server, gate, HoldSettings(hold=0.2))
            again.holding = Holding(proxy.server.ask, gate, "http://sandbox", HoldSettings(hold=0.2), own.ask)
            assert (await again.post(pod())).status == 429
            lists = [each.head for each in proxy.server.asked if each.head.target.endswith(b"/resourcequotas")]
            assert [head.get(b"authorization") for head in lists] == asked
            assert not proxy.server.posts()


async def test_a_list_of_quotas_that_hangs_is_not_waited_for() -> None:
    """2 s, then the create is sent without it."""
    async with proxied(1) as proxy:
        ledger = proxy.gate.ledger
        ledger.line.list_quotas_first(100.0)
        hanging = Hanging(proxy.server)
        proxy.holding = Holding(hanging.ask, proxy.gate, "http://sandbox")
        began = now()
        assert (await proxy.post(pod())).status == 201
        assert now() - began == pytest.approx(2.0, abs=0.1)


class Failing(PutOff):
    """Fails once a hold is over."""

    def keep(self, call: object, request: object) -> None:
        raise RuntimeError("a bug")


class FailingToKeep(KeptCreates):
    """Fails where a create is to be kept."""

    def keep(self, call: object, kept: object, note: object) -> None:
        raise RuntimeError("a bug")


class Own:
    """The proxy's own account."""

    def __init__(self, server: MemoryServer) -> None:
        self.may = True
        self._server = server

    async def ask(self, request: Request, limit: int = 0) -> Response:
        response = await self._server.ask(request)
        return response if self.may else answered(403, b"{}", "application/json")


class Hanging:
    """A server that never answers lists."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server

    async def ask(self, request: Request, limit: int = 0) -> Response:
        if request.head.method == b"GET":
            await asyncio.sleep(1000)
        return await self._server.ask(request)


async def test_short_time_outs_meet_no_more_refusals_than_long_ones() -> None:
    """Law 20: with its place kept, a caller that gives up after 2 s gets in when one that stays would."""
    async with full(4, HoldSettings(hold=8)) as proxy:
        names = proxy.others
        got_in = list[str]()

        async def creator(name: str, patience: float) -> None:
            await persistent(proxy, name, patience)
            got_in.append(name)

        tasks = []
        for number in range(4):
            name = f"{'short' if number % 2 else 'long'}-{number}"
            tasks.append(asyncio.create_task(creator(name, 2.0 - number % 2)))
            await asyncio.sleep(0.05)
        for name in names:
            await asyncio.sleep(7.5)
            await proxy.delete(name)
        await asyncio.wait(tasks)
        assert got_in == ["long-0", "short-1", "long-2", "short-3"]
        assert len(proxy.server.posts()) == 4, "and none was refused"


async def test_short_time_outs_ask_the_server_no_more_often_where_only_refusals_teach() -> None:
    """Four creators and a quota of one pod that is free every 5 s: who comes again each second probes no more."""
    sent = []
    for patience in (1.0, 100.0):
        async with proxied(1, HoldSettings(hold=100, hold_total=100)) as proxy:
            (newest,) = await proxy.fill(1)
            tasks = [asyncio.create_task(persistent(proxy, f"c-{number}", patience)) for number in range(4)]
            for _ in tasks:
                await asyncio.sleep(5)
                await proxy.delete(newest)
                while not proxy.server.pods():  # noqa: ASYNC110 - time is virtual
                    await asyncio.sleep(0.1)
                (newest,) = proxy.server.pods()
            await asyncio.wait(tasks)
            sent.append(len(proxy.server.posts()))
    assert 4 <= sent[0] <= 1.25 * sent[1], sent  # pauses between probes are drawn


async def persistent(proxy: Proxied, name: str, patience: float) -> None:
    """Create a pod; give each request up after so many seconds, and ask again."""
    while True:
        task = proxy.post(pod(name), token=name)
        done, _ = await asyncio.wait({task}, timeout=patience)
        if done and task.result().status == 201:
            return
        if not done:
            await hang_up(task)
        await asyncio.sleep(0.01)


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("backoff_ctrl")]


async def test_a_create_has_one_line_when_it_waits_and_one_when_it_is_in(caplog: pytest.LogCaptureFixture) -> None:
    """However often its caller is told to come again, or hangs up and comes again."""
    caplog.set_level(logging.INFO)
    async with full(1, HoldSettings(hold=2.0)) as proxy:
        for _ in range(3):
            assert (await proxy.post(pod("w"))).status == 429
            await asyncio.sleep(1)
            impatient = proxy.post(pod("w"))
            await asyncio.sleep(0.5)
            await hang_up(impatient)
        last = proxy.post(pod("w"))
        await asyncio.sleep(0.4)
        await proxy.delete(proxy.others[0])
        assert (await last).status == 201
    begun, ended = _lines(caplog)
    assert begun == "pods team/w waits (quota: asks pods=1, 0 left in quota q; place 1 in line)"
    waited = float(ended.removeprefix("pods team/w was created after ").partition(" ")[0])
    assert 10.2 < waited < 11, "since its caller came first"


async def test_creates_that_are_handed_back_at_the_end_have_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """For all of them, not one for each."""
    caplog.set_level(logging.INFO)
    async with full(1, HoldSettings()) as proxy:
        waiting = [proxy.post(pod(f"x-{number}")) for number in range(3)]
        await asyncio.sleep(0.1)
        caplog.clear()
        await proxy.holding.close()
        assert {(await each).status for each in waiting} == {429}
    (line,) = _lines(caplog)
    assert "callers should retry: cancelling 3 unfinished creates" in line


async def test_past_its_time_a_create_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """It says that the caller was told not to wait any longer."""
    caplog.set_level(logging.INFO)
    async with full(1, HoldSettings(hold=2.0, hold_total=4.0)) as proxy:
        assert [each.status for each in await proxy.repeat(pod("w"))] == [429, 429]
    assert _lines(caplog)[1:] == ["pods team/w was not created: after 4 s its caller was asked to stop waiting"]


async def test_a_name_can_not_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """Names and namespaces are their senders' until the server has checked them."""
    caplog.set_level(logging.INFO)
    async with full(1, HoldSettings(hold=2.0)) as proxy:
        waiting = [proxy.post(pod("w\n2026-01-01 ERROR all is lost\x1b[2J")), proxy.post(pod("x" * 100_000))]
        for each in waiting:
            assert (await each).status == 429
            assert len((await each).body) < 3000
    lines = _lines(caplog)
    assert len(lines) == 2
    assert all(line.isprintable() and len(line) < 600 for line in lines)
