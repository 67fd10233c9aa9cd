"""What is remembered of calls until they come again: for a time, in order, and not without bound."""

from __future__ import annotations

import asyncio

from backoff_ctrl.k8s.lab.replay.virtual_time import run_virtual
from backoff_ctrl.k8s.sidecar.holding.returning import Returning


def test_the_oldest_of_a_call_comes_first_and_only_to_that_call() -> None:
    async def main() -> None:
        calls = Returning[int](10.0)
        for number in (1, 2):
            calls.keep("a", number)
        calls.keep("b", 3)
        calls.keep("a", 0, first=True)
        assert [calls.take("a") for _ in range(4)] == [0, 1, 2, None]
        assert len(calls) == 1

    run_virtual(main())


def test_what_is_not_taken_in_time_is_forgotten_by_itself_once() -> None:
    async def main() -> None:
        forgotten: list[int] = []
        calls = Returning[int](10.0, forgotten.append)
        calls.keep("a", 1)
        await asyncio.sleep(6)
        calls.keep("a", 2)
        calls.keep("b", 3)
        assert calls.take("b") == 3
        await asyncio.sleep(5)
        assert (forgotten, len(calls)) == ([1], 1)
        await asyncio.sleep(100)
        assert (forgotten, len(calls), calls.take("a")) == ([1, 2], 0, None)

    run_virtual(main())


def test_an_item_whose_time_does_not_run_stays_until_it_does() -> None:
    async def main() -> None:
        calls, item = Returning[list[int]](10.0), [1]
        calls.keep("a", item, ends=False)
        await asyncio.sleep(100)
        entry = calls.find("a", item)
        assert entry is not None
        calls.limit(entry)
        await asyncio.sleep(11)
        assert calls.take("a") is None

    run_virtual(main())


def test_beyond_a_number_the_oldest_is_forgotten() -> None:
    async def main() -> None:
        forgotten: list[int] = []
        calls = Returning[int](10.0, forgotten.append, most=2)
        for number in range(4):
            calls.keep(number, number)
        assert (forgotten, len(calls)) == ([0, 1], 2)

    run_virtual(main())
