"""What a sidecar holds at the most, and what happens to it when the sidecar ends."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from typing import Any

import pytest

from backoff_ctrl.engine import Policy
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.kube.answers.answer import GateClosed
from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings
from backoff_ctrl.k8s.sidecar.http.messages import LARGEST, Head, Request
from tests.proxying.holding.in_memory import full, header, held, name_of, now, pod, proxied, status_in


async def test_held_bytes_are_bounded_and_whoever_comes_beyond_is_told_to_come_again() -> None:
    """The bytes are free again when the create has ended."""
    big = pod("big") | {"metadata": {"name": "big", "annotations": {"a": "x" * 200_000}}}
    size = len(json.dumps(big))
    async with full(1, HoldSettings(held_bytes_max=LARGEST)) as proxy:
        (name,) = proxy.others
        most = LARGEST // (2 * size)
        waiting = [proxy.post(big) for _ in range(most)]
        await held(proxy, *waiting)
        assert proxy.holding.held_bytes == most * size
        began = now()
        response = await proxy.post(big)
        assert (response.status, header(response, b"retry-after"), now() - began) == (429, b"1", 0), "it is not held"
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert proxy.holding.held_bytes == 0
        await proxy.delete(name)
        assert (await proxy.post(big)).status == 201


async def test_bodies_of_one_namespace_let_those_of_others_in() -> None:
    """A namespace has no more of the bytes than it leaves free, and a hold may last for a day."""
    big = pod("big") | {"metadata": {"name": "big", "annotations": {"a": "x" * 200_000}}}
    async with full(1, HoldSettings(held_bytes_max=LARGEST)) as proxy:
        waiting = [proxy.post(big) for _ in range(LARGEST // len(json.dumps(big)))]
        await asyncio.sleep(1)
        refused = [each for each in waiting if each.done()]
        assert len(waiting) // 3 < len(refused) < len(waiting)
        other = await proxy.post(big, target=b"/api/v1/namespaces/default/pods")
        assert other.status == 201, other.body
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def test_a_body_that_was_sent_is_counted_until_it_is_answered() -> None:
    """Also when its caller has gone: it may have to be sent again."""
    async with proxied(1) as proxy:
        proxy.server.latency = 1.0
        task = proxy.post(pod())
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait({task})
        assert proxy.holding.held_bytes == len(json.dumps(pod()))
        await asyncio.sleep(1.0)
        assert proxy.holding.held_bytes == 0


async def test_closing_hands_back_what_is_held_and_awaits_what_was_sent() -> None:
    """None is lost: those that wait come again in a while, the one in flight gets its answer."""
    async with proxied(2) as proxy:
        await proxy.fill(1)
        proxy.watch()
        proxy.server.latency = 3.0
        sent = proxy.post(pod("sent"))
        await asyncio.sleep(0.1)
        proxy.server.latency = 0.002
        waiting = [proxy.post(pod(f"w-{number}")) for number in range(20)]
        await held(proxy, *waiting)
        await proxy.holding.close()
        assert name_of(await sent) == "sent"
        for task in waiting:
            response = await task
            assert (response.status, header(response, b"retry-after")) == (429, b"5"), "longer than a restart takes"
        late = await proxy.post(pod("late"))
        assert (late.status, header(late, b"retry-after")) == (429, b"5")
        assert len(proxy.server.posts()) == 1
        assert proxy.gate.ledger.snapshot().namespaces["team"].seats == 0


@pytest.mark.parametrize(
    ("answer", "status", "again"), [("wait", 429, b"5"), ("error", 429, None), ("quota", 403, None)]
)
async def test_closing_hands_back_as_the_end_of_a_hold_does(answer: Any, status: int, again: bytes | None) -> None:
    """With ``quota`` by its refusal, as the server writes it; a create that comes too late has no quota to blame."""
    async with full(1, HoldSettings(answer=answer)) as proxy:
        waiting = proxy.post(pod("web"))
        await held(proxy, waiting)
        await proxy.holding.close()
        response, late = await waiting, await proxy.post(pod("late"))
        assert (response.status, header(response, b"retry-after")) == (status, again)
        assert (late.status, header(late, b"retry-after")) == (429, again)
        if answer == "quota":
            text = 'pods "web" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
            assert status_in(response)["message"] == text
        assert proxy.server.posts() == []


async def test_a_create_that_an_operator_cancels_is_not_sent_again_by_its_client() -> None:
    """It hears why, and there is no ``Retry-After``: else client-go would stand in line again at once."""
    async with full(1) as proxy:
        waiting = proxy.post(pod("web"))
        await held(proxy, waiting)
        (create,) = proxy.gate.ledger.under_way()
        create.cancel(GateClosed("pods team/web was cancelled by ann: no longer needed"))
        response = await waiting
        assert (response.status, header(response, b"retry-after")) == (429, None)
        assert status_in(response)["message"].endswith("cancelled by ann: no longer needed")


async def test_closing_has_a_limit() -> None:
    """A server that never answers does not keep the proxy."""
    async with proxied(2) as proxy:
        proxy.server.latency = 1000.0
        sent = proxy.post(pod("sent"))
        await asyncio.sleep(0.1)
        began = now()
        await proxy.holding.close(limit=5)
        assert now() - began == pytest.approx(5)
        sent.cancel()


@pytest.mark.parametrize(("answer", "retry_after"), [("wait", b"1"), ("error", None)])
async def test_a_line_that_is_full_turns_creates_away(answer: Any, retry_after: bytes | None) -> None:
    """With or without ``Retry-After``, as for a hold that is over."""
    async with full(1, HoldSettings(answer=answer), policy=Policy(waiters_max=2)) as proxy:
        waiting = [proxy.post(pod()) for _ in range(2)]
        await held(proxy, *waiting)
        response = await proxy.post(pod())
        assert (response.status, header(response, b"retry-after")) == (429, retry_after)
        assert status_in(response)["details"]["retryAfterSeconds"] == 1
        await asyncio.wait(waiting)


@pytest.mark.long
async def test_a_thousand_held_creates_take_20_kb_each_and_are_sent_in_order() -> None:
    """Beside their bodies. When room comes all get in, none is refused, none twice."""
    async with full(1, HoldSettings(hold=60, hold_total=60)) as proxy:
        bodies = [json.dumps(long_pod(f"w-{number:04}")).encode() for number in range(1000)]
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        waiting = [proxy.post(body) for body in bodies]
        await held(proxy, *waiting)
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / len(waiting)
        tracemalloc.stop()
        assert each <= 20_000
        assert proxy.gate.counts.waiting == 1000
        more = Head(
            b"PATCH", b"/api/v1/namespaces/team/resourcequotas/q", [(b"Content-Type", b"application/merge-patch+json")]
        )
        raised = await proxy.server.ask(Request(more, b'{"spec": {"hard": {"pods": "1001"}}}'))
        assert raised.status == 200, raised.body
        names = [name_of(response) for response in await asyncio.gather(*waiting)]
        sent = [json.loads(request.body)["metadata"]["name"] for request in proxy.server.posts()]
        assert sent == names == [f"w-{number:04}" for number in range(1000)]


def long_pod(name: str) -> dict[str, Any]:
    manifest = pod(name)
    manifest["spec"]["containers"][0]["env"] = [{"name": f"E{number}", "value": "x" * 20} for number in range(30)]
    manifest["spec"]["volumes"] = [{"name": f"v{number}", "emptyDir": {}} for number in range(5)]
    return manifest


async def test_a_create_that_has_ended_is_gone_at_once() -> None:
    """It holds itself by no cycle: to find those in a full process takes a fifth of the time of a create."""
    gc.collect()
    before = {id(each) for each in gc.get_objects() if isinstance(each, Create)}  # of other tests of this process
    gc.disable()
    try:
        async with proxied(3) as proxy:
            for _ in range(3):
                assert (await proxy.post(pod())).status == 201
            await asyncio.sleep(60)
            assert not any(isinstance(each, Create) and id(each) not in before for each in gc.get_objects())
    finally:
        gc.enable()


async def test_what_is_remembered_of_urls_is_bounded_in_bytes() -> None:
    """A head may have 64 KiB: a thousand of those would stay."""
    async with proxied() as proxy:
        tracemalloc.start()
        try:
            for number in range(300):
                for tail in (f"?x={number}{'x' * 60_000}", f"/{number}{'x' * 60_000}/exec"):
                    target = f"/api/v1/namespaces/team/pods{tail}".encode()
                    proxy.holding.reads(Head(b"POST", target, []))
                    proxy.holding.passed(Head(b"POST", target, []), 403, [], b"{}")
            assert tracemalloc.get_traced_memory()[0] < 2_000_000
        finally:
            tracemalloc.stop()
