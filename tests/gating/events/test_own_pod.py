"""A sidecar's events about its own pod: after half a minute of any wait, counted from the caller's first request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backoff_ctrl.engine import ObservedQuota
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.creates.creation import Creation, Owner
from backoff_ctrl.k8s.gate.events.correlator import Reason, Report
from backoff_ctrl.k8s.gate.events.own_pod import LATE, OwnPod
from backoff_ctrl.k8s.kube.answers.answer import WaitedTooLong
from tests.kit.transports import AsyncTransport
from tests.kit.virtual_tests import in_virtual_time

POD = Owner("v1", "Pod", "creator", "u-1")


def creation(name: str = "p", **options: Any) -> Creation:
    body = {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return Creation("https://s", "me", "elsewhere", "pods", body, **options)


def quota(used: int) -> ObservedQuota:
    hard = {"pods": 1_000_000_000}
    return ObservedQuota(spec=hard, hard=hard, used={"pods": used * 1_000_000_000})


def told() -> tuple[AsyncGate, list[tuple[float, Report]]]:
    """A gate whose namespace is full, and what is reported of the pod, with the time."""
    gate, heard = AsyncGate(policy=Policy()), list[tuple[float, Report]]()
    gate.ledger.observe_quota("elsewhere", "q", quota(used=1))
    gate.ledger.watching("elsewhere")

    def hear(report: Report) -> None:
        heard.append((gate.ledger.now(), report))

    gate.ledger.subscribe(OwnPod(gate.ledger, hear, "mine", POD))
    return gate, heard


@in_virtual_time
async def test_its_pod_has_an_event_after_half_a_minute_and_one_at_the_end() -> None:
    """In the pod's namespace, wherever the create goes; a shorter wait is none."""
    gate, heard = told()
    begun = gate.ledger.now()
    task = asyncio.ensure_future(gate.create(creation(), AsyncTransport()))
    await asyncio.sleep(LATE - 0.5)
    assert heard == []
    await asyncio.sleep(1)
    ((at, report),) = heard
    assert at - begun == pytest.approx(LATE)
    assert (report.reason, report.namespace, report.owner) == (Reason.WAITS, "mine", POD)
    assert report.note().startswith("pods p is waiting: it requests pods=1, but quota q has 0 of 1 left.")
    gate.ledger.observe_quota("elsewhere", "q", quota(used=0))
    assert (await task).ok
    assert [each.reason for _, each in heard] == [Reason.WAITS, Reason.ADMITTED]
    assert "was created after waiting" in heard[1][1].note()
    await gate.aclose()


@in_virtual_time
async def test_a_short_wait_is_no_news() -> None:
    gate, heard = told()
    task = asyncio.ensure_future(gate.create(creation(), AsyncTransport()))
    await asyncio.sleep(LATE - 1)
    gate.ledger.observe_quota("elsewhere", "q", quota(used=0))
    assert (await task).ok
    await asyncio.sleep(60)
    assert heard == []
    await gate.aclose()


@in_virtual_time
async def test_a_caller_that_comes_again_and_again_counts_from_its_first_request() -> None:
    """Each of its requests is short; together they wait."""
    gate, heard = told()
    first = gate.ledger.now()
    await asyncio.sleep(25)
    task = asyncio.ensure_future(gate.create(creation(noticed_at=first), AsyncTransport()))
    await asyncio.sleep(4)
    assert heard == []
    await asyncio.sleep(2)
    assert [round(at - first) for at, _ in heard] == [30]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await gate.aclose()


@in_virtual_time
async def test_one_that_is_given_up_after_half_a_minute_is_told_too() -> None:
    """A sidecar holds each create for 30 s by default."""
    gate, heard = told()
    with pytest.raises(WaitedTooLong):
        await gate.create(creation(timeout=LATE - 0.5), AsyncTransport())
    assert [each.reason for _, each in heard] == [Reason.WAITS]
    with pytest.raises(WaitedTooLong):
        await gate.create(creation(timeout=5.0), AsyncTransport())
    assert len(heard) == 1
    await gate.aclose()


@in_virtual_time
async def test_any_reason_counts_as_a_sentence() -> None:
    """An operator's pause, say, names no quota."""
    gate, heard = told()
    gate.ledger.observe_quota("elsewhere", "q", quota(used=0))
    gate.ledger.halt("elsewhere", halted=True)
    task = asyncio.ensure_future(gate.create(creation(), AsyncTransport()))
    await asyncio.sleep(LATE + 1)
    assert [each.note() for _, each in heard] == [
        "pods p is waiting: an operator has paused the creates of its namespace; place 1 in line."
    ]
    gate.ledger.halt("elsewhere", halted=False)
    assert (await task).ok
    assert heard[-1][1].note().startswith("pods p was created after waiting 31")
    await gate.aclose()
