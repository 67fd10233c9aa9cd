"""Fails open: a bug of ours never stops a platform. Enforce, shadow, off, and what fails open."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.engine import ObservedQuota
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate, Gate
from tests.kit.patience import PATIENCE
from tests.kit.transports import FULL, POD, AsyncTransport, Transport, creation, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.kube.answers.answer import Answer


class Room:
    """Answers as a server with room for so many pods."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.asked = 0

    def __call__(self, body: dict[str, Any]) -> Answer:
        """Store it, or refuse it."""
        self.asked += 1
        return stored(body) if self.asked <= self.room else FULL


class Defective(random.Random):
    """A generator that breaks the engine: the first jitter drawn raises. (Names use other methods.)"""

    def __init__(self, breaks: Callable[[], bool] = lambda: True) -> None:
        super().__init__(1)
        self.breaks = breaks

    def random(self) -> float:
        if self.breaks():
            raise RuntimeError("the engine is broken")
        return super().random()

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self.random()


async def test_shadow_sends_everything_and_counts_what_would_have_waited() -> None:
    """Of five creates two fit: all five are sent unchanged, the caller gets the refusals, and nothing is left."""
    gate, server = AsyncGate(mode="shadow"), AsyncTransport(Room(2))

    answers = [await gate.create(creation(), server) for _ in range(5)]

    assert [answer.status for answer in answers] == [201, 201, 403, 403, 403]
    assert all(body is POD for body in server.sent)
    assert gate.counts.shadow_waits == 2  # it learned from the third
    assert gate.counts.passed == 5
    namespace = gate.ledger.snapshot().namespaces["team"]
    assert (namespace.outstanding, namespace.waiting) == (0, 0)


async def test_off_sends_and_learns_nothing() -> None:
    """The gate does nothing."""
    gate, server = AsyncGate(mode="off"), AsyncTransport(Room(0))

    answer = await gate.create(creation(), server)

    assert answer.status == 403
    assert gate.ledger.snapshot().namespaces == {}


async def test_modes_are_per_namespace() -> None:
    """ "*" sets the mode of the other namespaces."""
    gate, server = AsyncGate(mode={"lab": "shadow", "*": "off"}), AsyncTransport()
    await gate.create(creation(namespace="lab"), server)
    await gate.create(creation(namespace="team"), server)

    assert set(gate.ledger.snapshot().namespaces) == {"lab"}


async def test_an_error_in_the_engine_lets_creates_through_is_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Refused creates make the engine draw jitter, which breaks it: each caller gets the server's own answer."""
    gate, server = AsyncGate(rng=Defective()), AsyncTransport(Room(1))

    answers = await asyncio.wait_for(asyncio.gather(*[gate.create(creation(), server) for _ in range(6)]), PATIENCE)

    assert sorted(answer.status for answer in answers) == [201, 403, 403, 403, 403, 403]
    assert gate.counts.failed_open >= 1
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


async def test_after_an_error_the_gate_gates_again() -> None:
    """One error does not switch the gate off for good."""
    bad = [True]
    gate, server = AsyncGate(rng=Defective(lambda: bad[0]), policy=Policy(base=0.01, cap=0.02)), AsyncTransport(Room(1))
    await gate.create(creation(), server)
    await gate.create(creation(), server)
    bad[0] = False

    late = asyncio.ensure_future(gate.create(creation(), server))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(late), 0.1)  # it waits again, as it should
    server.answer = stored

    assert (await asyncio.wait_for(late, PATIENCE)).status == 201


async def test_a_manifest_that_cannot_be_read_goes_to_the_server() -> None:
    """The server says what is wrong with it."""
    gate, server = AsyncGate(), AsyncTransport()
    answer = await gate.create(creation({"metadata": {"name": "x"}, "spec": {"containers": "none"}}), server)

    assert answer.status == 201
    assert gate.counts.failed_open == 0


async def test_a_failing_callback_of_the_callers_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    """An error in ``on_wait`` is logged, and the create goes on waiting."""
    gate, server = AsyncGate(policy=Policy(base=0.01, cap=0.02)), AsyncTransport(Room(0))

    def broken(_: Any) -> None:
        server.answer = stored
        raise ValueError("not my day")

    asked = creation()
    asked.on_wait = broken

    assert (await asyncio.wait_for(gate.create(asked, server), PATIENCE)).status == 201
    assert "the on_wait callback of pods team/p-* failed" in caplog.text


async def test_too_many_waiting_is_answered_429() -> None:
    """This is the outcome of ``Policy.waiters_max``."""
    gate, server = AsyncGate(policy=Policy(waiters_max=1)), AsyncTransport(Room(0))
    waits = asyncio.Event()
    first = creation()
    first.on_wait = lambda _: waits.set()
    task = asyncio.ensure_future(gate.create(first, server))
    await waits.wait()

    answer = await gate.create(creation(), server)
    task.cancel()

    assert answer.status == 429
    assert answer.headers["Retry-After"] == "1"


async def test_the_longest_wait_of_the_policy_is_a_time_out() -> None:
    """This is the outcome of ``Policy.wait_max``."""
    gate, server = AsyncGate(policy=Policy(wait_max=0.1)), AsyncTransport(Room(0))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(gate.create(creation(), server), PATIENCE)


async def test_a_new_engine_knows_what_the_watch_has_reported() -> None:
    """The watch goes on after an internal error and repeats nothing: the ledger repeats its news to the new engine."""
    gate = AsyncGate()
    full = ObservedQuota(spec={"pods": 5}, hard={"pods": 5}, used={"pods": 5})
    gate.ledger.observe_quota("team", "gone", full)
    gate.ledger.observe_quota("team", "q", full)
    gate.ledger.watching("team")
    gate.ledger.forget_quota("team", "gone")

    gate.ledger.engine.act(lambda *_: 1 / 0)  # a bug of ours

    team = gate.ledger.snapshot().namespaces["team"]
    assert (gate.counts.failed_open, team.observing, list(team.quotas)) == (1, True, ["q"])
    await gate.aclose()


async def test_news_that_an_engine_fails_on_is_not_repeated() -> None:
    """It would break the next engine, too, which learns from refusals instead."""
    gate = AsyncGate()
    gate.ledger.observe_quota("team", "q", None)  # type: ignore[arg-type]  # a bug of ours

    assert gate.ledger.snapshot().namespaces == {}
    assert gate.counts.failed_open == 2
    await gate.aclose()


async def test_an_error_in_the_mode_function_lets_the_create_through(caplog: pytest.LogCaptureFixture) -> None:
    """The function is the user's own; the create is sent ungated, and the error is counted and logged."""

    def confused(namespace: str) -> Any:
        raise LookupError(f"no mode for {namespace}")

    gate, server = AsyncGate(mode=confused), AsyncTransport()
    assert (await gate.create(creation(), server)).status == 201
    assert Gate(mode=confused).create(creation(), Transport(lambda _: FULL)).status == 403
    assert (len(server.sent), gate.counts.failed_open) == (1, 1)
    assert "no mode for team" in caplog.text


def test_an_interrupt_inside_the_engine_leaves_no_half_changed_line() -> None:
    """A Ctrl-C, or an alarm of the caller's own: it is raised, and whoever waits goes on ungated in a new engine."""
    gate = Gate()
    ledger, before = gate.ledger, gate.controller

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    ledger.controller.advance = interrupted  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        ledger.hint_release("team")
    assert ledger.controller is not before
    assert ledger.counts.failed_open == 0
