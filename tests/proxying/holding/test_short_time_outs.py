"""Callers that give up after a short while and come again, beside those that stay."""

from __future__ import annotations

import asyncio

from backoff_ctrl.k8s.proxy.holding.settings import HoldSettings
from backoff_ctrl.k8s.replay.virtual_time import run_virtual
from tests.proxying.holding.in_memory import hang_up, in_virtual_time, now, pod, proxied


@in_virtual_time
async def test_short_time_outs_meet_no_more_refusals_than_long_ones() -> None:
    """Law 20: with its place kept, a caller that gives up after 2 s gets in when one that stays would."""
    async with proxied(4, HoldSettings(hold=8)) as proxy:
        names = await proxy.fill(4)
        proxy.watch()
        loop, got_in = asyncio.get_running_loop(), {}

        async def creator(name: str, patience: float) -> None:
            while True:
                task = proxy.post(pod(name), token=name)
                done, _ = await asyncio.wait({task}, timeout=patience)
                if done and task.result().status == 201:
                    got_in[name] = now()
                    return
                if not done:
                    await hang_up(task)
                await asyncio.sleep(0.01)

        tasks = []
        for number in range(4):
            tasks.append(loop.create_task(creator(f"{'short' if number % 2 else 'long'}-{number}", 2.0 - number % 2)))
            await asyncio.sleep(0.05)
        for name in names:
            await asyncio.sleep(7.5)
            await proxy.delete(name)
        await asyncio.wait(tasks)
        assert list(got_in) == ["long-0", "short-1", "long-2", "short-3"]
        assert len(proxy.server.posts()) == 4, "and none was refused"


def test_short_time_outs_ask_the_server_no_more_often_where_only_refusals_teach() -> None:
    """Four creators and a quota of one pod that is free every 5 s: who comes again each second probes no more."""
    sent = {}
    for patience in (1.0, 100.0):

        async def check(patience: float = patience) -> None:
            async with proxied(1, HoldSettings(hold=100, hold_total=100)) as proxy:
                (newest,) = await proxy.fill(1)

                async def creator(name: str) -> None:
                    while True:
                        task = proxy.post(pod(name), token=name)
                        done, _ = await asyncio.wait({task}, timeout=patience)
                        if done and task.result().status == 201:
                            return
                        if not done:
                            await hang_up(task)

                tasks = [asyncio.create_task(creator(f"c-{number}")) for number in range(4)]
                for _ in tasks:
                    await asyncio.sleep(5)
                    await proxy.delete(newest)
                    while not proxy.server.pods():  # noqa: ASYNC110 - time is virtual
                        await asyncio.sleep(0.1)
                    (newest,) = proxy.server.pods()
                await asyncio.wait(tasks)
                sent[patience] = len(proxy.server.posts())

        run_virtual(check())
    assert 4 <= sent[1.0] <= sent[100.0], sent
