"""A gang reads the quotas of its namespace; an API server that has just started denies that for a moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.gangs import GangRefused, gang_of
from backoff_ctrl.k8s.kube.answers.answer import Answer, status_answer
from backoff_ctrl.k8s.lab.replay.virtual_time import run_virtual

POD = {"kind": "Pod", "metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c"}]}}


def quota(used: int) -> Answer:
    """A list of one quota on ten pods."""
    hard = {"pods": "10"}
    item = {"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": {"pods": str(used)}}}
    return Answer(200, {}, json.dumps({"items": [item]}).encode())


def denied() -> Answer:
    """What is said without rights, or before they are loaded."""
    return status_answer(403, "Forbidden", 'resourcequotas is forbidden: User "me" cannot list resource', {})


class Reads:
    """A transport whose lists are answered by the time since the first."""

    def __init__(self, answer: Callable[[float], Answer]) -> None:
        """``answer`` is given seconds."""
        self._answer = answer
        self._began: float | None = None

    async def list_quotas(self) -> Answer:
        """GET."""
        now = asyncio.get_running_loop().time()
        self._began = now if self._began is None else self._began
        return self._answer(now - self._began)

    async def send(self, body: dict[str, Any]) -> Answer:
        """POST."""
        raise AssertionError(body)

    async def look_up(self, name: str) -> Answer:
        """GET."""
        raise AssertionError(name)


def admitted_after(answer: Callable[[float], Answer]) -> float:
    """Let a gang of five wait; return when it was admitted. Raises what it was refused with."""

    async def wait() -> float:
        began = asyncio.get_running_loop().time()
        async with AsyncGate().gang(gang_of("team", [(POD, 5)]), Reads(answer)):
            return asyncio.get_running_loop().time() - began

    found: list[float] = []

    async def main() -> None:
        found.append(await wait())

    run_virtual(main())
    return found[0]


def test_a_denial_that_passes_ends_no_gang() -> None:
    """The quotas were read before, so there is the right to."""
    answers = admitted_after(lambda at: quota(10) if at < 5 else denied() if at < 25 else quota(0))
    assert 25 <= answers < 120


@pytest.mark.parametrize("since", [0.0, 5.0], ids=["never read before", "for half a minute"])
def test_a_denial_that_lasts_ends_it(since: float) -> None:
    """At once where the quotas were never read, else after half a minute of nothing else."""
    with pytest.raises(GangRefused) as caught:
        admitted_after(lambda at: quota(10) if at < since else denied())
    assert caught.value.reason == "quotas-unreadable"
