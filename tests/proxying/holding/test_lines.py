"""What the sidecar's log says of creates: two lines for each, whatever their callers do and however they are called."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.proxy.holding.settings import HoldSettings
from backoff_ctrl.k8s.replay.virtual_time import run_virtual
from tests.proxying.holding.in_memory import pod, proxied

if TYPE_CHECKING:
    import pytest

BEGIN = "(quota: asks pods=1, 0 left in quota q; place 1 in line)"


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("backoff_ctrl")]


def test_a_create_has_one_line_when_it_waits_and_one_when_it_is_in(caplog: pytest.LogCaptureFixture) -> None:
    """However often its caller is told to come again, or hangs up and comes again."""

    async def check() -> None:
        async with proxied(1, HoldSettings(hold=2.0)) as proxy:
            (name,) = await proxy.fill(1)
            proxy.watch()
            for _ in range(3):
                assert (await proxy.post(pod("w"))).status == 429
                await asyncio.sleep(1)
                impatient = proxy.post(pod("w"))
                await asyncio.sleep(0.5)
                impatient.cancel()
                await asyncio.wait({impatient})
            last = proxy.post(pod("w"))
            await asyncio.sleep(0.4)
            await proxy.delete(name)
            assert (await last).status == 201

    with caplog.at_level(logging.INFO):
        run_virtual(check())
    begun, ended = _lines(caplog)
    assert begun == f"pods team/w waits {BEGIN}"
    waited = float(ended.removeprefix("pods team/w was created after ").partition(" ")[0])
    assert 10.2 < waited < 11, "since its caller came first"


def test_creates_that_are_handed_back_at_the_end_have_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """For all of them, not one for each."""

    async def check() -> None:
        async with proxied(1, HoldSettings()) as proxy:
            await proxy.fill(1)
            proxy.watch()
            waiting = [proxy.post(pod(f"x-{number}")) for number in range(3)]
            await asyncio.sleep(0.1)
            caplog.clear()
            await proxy.holding.close()
            assert {(await each).status for each in waiting} == {429}

    with caplog.at_level(logging.INFO):
        run_virtual(check())
    (line,) = _lines(caplog)
    assert "callers are told to retry: cancelling 3 unfinished creates" in line


def test_past_its_time_a_create_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """It says that the caller was told not to wait any longer."""

    async def check() -> None:
        async with proxied(1, HoldSettings(hold=2.0, hold_total=4.0)) as proxy:
            await proxy.fill(1)
            proxy.watch()
            assert [each.status for each in await proxy.repeat(pod("w"))] == [429, 429]

    with caplog.at_level(logging.INFO):
        run_virtual(check())
    assert _lines(caplog)[1:] == ["pods team/w was not created: after 4 s its caller was told to stop waiting"]


def test_a_name_can_not_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """Names and namespaces are their senders' until the server has checked them."""
    forged = "w\n2026-01-01 ERROR all is lost\x1b[2J"

    async def check() -> None:
        async with proxied(1, HoldSettings(hold=2.0)) as proxy:
            await proxy.fill(1)
            proxy.watch()
            waiting = [proxy.post(pod(forged)), proxy.post(pod("x" * 100_000))]
            for each in waiting:
                assert (await each).status == 429
                assert len((await each).body) < 3000

    with caplog.at_level(logging.INFO):
        run_virtual(check())
    lines = _lines(caplog)
    assert len(lines) == 2
    assert all(line.isprintable() and len(line) < 600 for line in lines)
