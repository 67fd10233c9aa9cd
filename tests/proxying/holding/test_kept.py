"""Answers whose callers have gone: for whom they are kept, and how much of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from backoff_ctrl.k8s.sidecar.holding.callers import ANSWERS_MAX
from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings
from tests.proxying.holding.in_memory import PODS, PROTOBUF, Proxied, name_of, pod, proxied

MANY = 300
"""Creates whose answers are larger than what is kept."""


async def sent_and_left(proxy: Proxied, manifest: Any) -> None:
    task = proxy.post(manifest)
    await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0.01)


MOMENTS = [(0.0, steps) for steps in range(12)] + [(0.0002 * at, steps) for at in range(1, 30) for steps in range(4)]
"""Seconds, and then steps of the event loop: by the last of them a create has been answered."""


@pytest.mark.parametrize("name", [None, "own"])
async def test_who_hangs_up_at_any_moment_and_asks_again_gets_his_own_object(name: str | None) -> None:
    """Before it is sent, in the step in which it is handed to the connection, while it is under way, or after that."""
    answered = 0
    for seconds, steps in MOMENTS:
        async with proxied(5) as proxy:
            left = proxy.post(pod(name))
            if seconds:
                await asyncio.sleep(seconds)
            for _ in range(steps):
                await asyncio.sleep(0)
            answered += left.done()
            left.cancel()
            await asyncio.wait({left})
            if left.cancelled():
                assert name_of(await proxy.post(pod(name))) in proxy.server.pods()
            assert len(proxy.server.pods()) == 1, f"after {seconds} s and {steps} steps"
    assert 0 < answered < len(MOMENTS), "both ends were reached"


@pytest.mark.parametrize("name", [None, "own"])
@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_who_asks_again_before_the_hang_up_is_read_gets_his_own_object(name: str | None, turns: int) -> None:
    """A process that was busy reads both requests, and only then the hang-up that came between them."""
    async with proxied(5) as proxy:
        left, again = proxy.post(pod(name)), proxy.post(pod(name))
        for _ in range(turns):
            await asyncio.sleep(0)
        left.cancel()
        assert name_of(await again) in proxy.server.pods()
        assert len(proxy.server.pods()) == len(proxy.server.posts()) == 1


async def test_equal_requests_at_once_are_creates_of_their_own() -> None:
    """As long as none of their callers hangs up."""
    async with proxied(5) as proxy:
        made = await asyncio.gather(*(proxy.post(pod()) for _ in range(4)))
        assert len({name_of(each) for each in made}) == len(proxy.server.pods()) == 4


def large(number: int) -> dict[str, Any]:
    return pod() | {"metadata": {"generateName": f"web-{number}-", "annotations": {"a": "x" * 60_000}}}


async def test_the_answer_is_for_the_very_same_request_alone() -> None:
    """Another body, or the same token on behalf of somebody else, is another create."""
    async with proxied(5) as proxy:
        await sent_and_left(proxy, pod())
        other = pod()
        other["metadata"]["labels"] = {"a": "b"}
        assert json.loads((await proxy.post(other)).body)["metadata"]["labels"] == {"a": "b"}
        assert len(proxy.server.pods()) == 2
        assert (await proxy.post(pod(), headers=[(b"Impersonate-User", b"root")])).status == 201
        assert len(proxy.server.pods()) == 3
        assert (await proxy.post(pod())).status == 201
        assert len(proxy.server.pods()) == 3


@pytest.mark.parametrize(
    "otherwise",
    [
        {"accept": PROTOBUF},
        {"target": PODS + b"?fieldManager=other"},
        {"headers": [(b"Accept-Encoding", b"gzip")]},
        {"content_type": b"application/yaml"},
    ],
    ids=lambda each: next(iter(each)),
)
async def test_who_asks_otherwise_gets_no_answer_that_was_kept(otherwise: dict[str, Any]) -> None:
    """Its answer may be in another form, or to another question: its create is sent."""
    async with proxied(5) as proxy:
        await sent_and_left(proxy, pod())
        assert (await proxy.post(pod(), **otherwise)).status == 201
        assert len(proxy.server.pods()) == 2
        assert name_of(await proxy.post(pod())) in proxy.server.pods()
        assert len(proxy.server.pods()) == 2, "the one that was kept is still there for who asks the same"


@pytest.mark.long
async def test_answers_are_kept_up_to_a_number_of_bytes_and_objects_are_found_beyond() -> None:
    """The oldest answers go first; whose answer went is looked up by the name that was drawn for it."""
    async with proxied(None) as proxy:
        for number in range(MANY):
            await sent_and_left(proxy, large(number))
        kept = proxy.holding._shared.kept
        assert MANY * 60_000 > ANSWERS_MAX >= kept.bytes > ANSWERS_MAX - 100_000
        assert len(kept) == MANY
        for number in (0, MANY - 1):
            assert json.loads((await proxy.post(large(number))).body)["metadata"]["name"] in proxy.server.pods()
        assert len(proxy.server.pods()) == MANY
        assert [each.head.method for each in proxy.server.asked].count(b"GET") == 1, "of the oldest alone"
        await asyncio.sleep(20)
        await proxy.post(pod())
        assert (len(kept), kept.bytes) == (0, 0)


@pytest.mark.long
async def test_without_names_the_oldest_answers_are_not_kept() -> None:
    """Nothing says which object was theirs."""
    async with proxied(None, HoldSettings(mark=False)) as proxy:
        for number in range(MANY):
            await sent_and_left(proxy, large(number))
        kept = proxy.holding._shared.kept
        assert ANSWERS_MAX >= kept.bytes > ANSWERS_MAX - 100_000
        assert len(kept) < MANY
        assert (await proxy.post(large(MANY - 1))).status == 201
        assert len(proxy.server.pods()) == MANY, "the newest is found"
        assert (await proxy.post(large(0))).status == 201
        assert len(proxy.server.pods()) == MANY + 1


async def test_what_was_sent_is_kept_for_a_while_alone() -> None:
    """Ten seconds after its end it is a create of its own again."""
    async with proxied(2) as proxy:
        await sent_and_left(proxy, pod())
        await asyncio.sleep(10.1)
        assert (await proxy.post(pod())).status == 201
        assert len(proxy.server.pods()) == 2


async def test_an_answer_that_was_not_read_is_found_by_the_next_request_alone() -> None:
    """A connection broke while the 201 was written: the repeat makes no second object, the request after it does."""
    async with proxied(5) as proxy:
        first = await proxy.post(pod())
        assert first.if_unread is not None
        first.if_unread()
        again = await proxy.post(pod())
        assert name_of(again) == name_of(first)
        assert again.if_unread is not None
        again.if_unread()
        assert name_of(await proxy.post(pod())) == name_of(first)
        assert name_of(await proxy.post(pod())) != name_of(first)
        assert len(proxy.server.pods()) == len(proxy.server.posts()) == 2
