"""Waiting is never silent: log lines, callbacks with amounts as people write them, and who waits now."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl import waiting_now
from backoff_ctrl.engine import ObservedQuota
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.kube.answers.answer import GateClosed
from tests.kit.transports import FULL, AsyncTransport, stored
from tests.kit.virtual_tests import in_virtual_time

if TYPE_CHECKING:
    from backoff_ctrl.k8s.gate.creates.wait import Wait

NOTICES = "backoff_ctrl.k8s.gate.notices"


def creation(name: str = "p", **options: Any) -> Creation:
    resources = {"requests": {"cpu": "1500m", "memory": "1Gi"}}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    body = {"kind": "Pod", "metadata": {"name": name}, "spec": spec}
    return Creation("https://s", "me", "team", "pods", body, **options)


def quota(used: int) -> ObservedQuota:
    hard = {"requests.cpu": 4_000_000_000}
    return ObservedQuota(spec=hard, hard=hard, used={"requests.cpu": used * 1_000_000_000})


def full_gate() -> AsyncGate:
    """A gate whose namespace has one CPU of four left."""
    gate = AsyncGate(policy=Policy())
    gate.ledger.observe_quota("team", "q", quota(used=3))
    gate.ledger.watching("team")
    return gate


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == NOTICES]


@in_virtual_time
async def test_a_line_when_a_create_begins_to_wait_and_one_when_it_is_in(caplog: pytest.LogCaptureFixture) -> None:
    """One that need not wait has none."""
    caplog.set_level(logging.INFO, NOTICES)
    gate = full_gate()
    task = asyncio.ensure_future(gate.create(creation(), AsyncTransport()))
    await asyncio.sleep(12)
    gate.ledger.observe_quota("team", "q", quota(used=0))
    assert (await task).ok
    assert (await gate.create(creation("at-once"), AsyncTransport())).ok
    assert lines(caplog) == [
        ("INFO", "pods team/p waits (quota: asks requests.cpu=1500m, 1 left in quota q; place 1 in line)"),
        ("INFO", "pods team/p was created after 12.0 s"),
    ]


@in_virtual_time
async def test_a_line_a_minute_for_all_that_wait(caplog: pytest.LogCaptureFixture) -> None:
    """A warning, which Python shows by default; none for a second one in the same minute, none once nobody waits."""
    caplog.set_level(logging.WARNING, NOTICES)
    gate = full_gate()
    tasks = [asyncio.ensure_future(gate.create(creation(f"p{n}", timeout=130), AsyncTransport())) for n in range(3)]
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(600)
    reason = "quota: asks requests.cpu=1500m, 1 left in quota q; place 1 in line"
    assert lines(caplog) == [
        ("WARNING", f"3 creates wait; pods team/p0 for {seconds} s ({reason})") for seconds in (60, 120)
    ]


@in_virtual_time
async def test_a_create_that_is_refused_again_has_no_second_line(caplog: pytest.LogCaptureFixture) -> None:
    """It waits on; where quotas are not watched it is sent now and then to test for room."""
    caplog.set_level(logging.INFO, NOTICES)
    refusals = [FULL] * 4
    server = AsyncTransport(lambda body: refusals.pop() if refusals else stored(body))
    began = asyncio.get_running_loop().time()
    assert (await AsyncGate().create(creation(), server)).ok
    took = asyncio.get_running_loop().time() - began

    assert [line for _, line in lines(caplog)][1:] == [f"pods team/p was created after {took:.1f} s"]


@in_virtual_time
async def test_short_waits_have_no_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody waits at each minute, but nobody has for as long as that."""
    gate = full_gate()
    for number in range(9):
        await asyncio.gather(gate.create(creation(f"p{number}", timeout=50), AsyncTransport()), return_exceptions=True)
    assert lines(caplog) == []


@in_virtual_time
async def test_a_wait_that_ends_otherwise_has_its_line_too(caplog: pytest.LogCaptureFixture) -> None:
    """The log must not look as if it still waited."""
    caplog.set_level(logging.INFO, NOTICES)
    gate = full_gate()
    await asyncio.gather(gate.create(creation(timeout=5), AsyncTransport()), return_exceptions=True)
    assert lines(caplog)[1:] == [("INFO", "pods team/p ended with WaitedTooLong after 5.0 s")]


async def test_callbacks_and_lists_have_amounts_as_people_write_them() -> None:
    """And the exact integers under names that say so. ``waiting_now`` sees all gates of the process."""
    gate, told = full_gate(), list[Any]()
    task = asyncio.ensure_future(gate.create(creation(on_wait=told.append, priority=3), AsyncTransport()))
    await asyncio.sleep(0)
    (now,) = [wait for wait in waiting_now() if wait.server == "https://s"]

    for wait in (told[0], now):
        _must_be_as_written(wait)
    assert gate.waiting_now() == [now] or gate.waiting_now()[0].waited > now.waited
    gate.ledger.close()
    with pytest.raises(GateClosed):
        await task
    assert gate.waiting_now() == []


def _must_be_as_written(wait: Wait) -> None:
    assert (wait.kind, wait.namespace, wait.name, wait.priority, wait.place) == ("pods", "team", "p", 3, 1)
    assert (wait.reason, wait.quota, wait.resource) == ("quota", "q", "requests.cpu")
    assert (wait.asked, wait.left, wait.limited) == ("1500m", "1", "4")
    assert (wait.asked_nano, wait.left_nano, wait.limited_nano) == (1_500_000_000, 1_000_000_000, 4_000_000_000)
    assert wait.label == "pods team/p"
