"""Law 18: a bug of ours never stops a platform. Enforce, shadow, off, and what fails open."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.engine import ObservedQuota
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.answers.answer import Answer, status_answer
from backoff_ctrl.k8s.gate.aio import AsyncGate, Creation, Gate

if TYPE_CHECKING:
    from collections.abc import Callable

POD = {"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c"}]}}


def creation(namespace: str = "team", body: dict[str, Any] | None = None) -> Creation:
    return Creation("http://s", "me", namespace, "pods", POD if body is None else body)


class Server:
    """A transport to a server with room for so many pods, which records what was sent."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sent: list[dict[str, Any]] = []

    async def send(self, body: dict[str, Any]) -> Answer:
        return self.answer(body)

    async def look_up(self, name: str) -> Answer:
        return status_answer(404, "NotFound", "not found", {})

    def answer(self, body: dict[str, Any]) -> Answer:
        self.sent.append(body)
        used = self.room
        if len(self.sent) <= self.room:
            return Answer(201, {}, json.dumps(body).encode())
        text = f'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods={used}, limited: pods={used}'
        return status_answer(403, "Forbidden", text, {})


class Blocking:
    """The same for threads."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def send(self, body: dict[str, Any]) -> Answer:
        return self.server.answer(body)

    def look_up(self, name: str) -> Answer:
        return status_answer(404, "NotFound", "not found", {})


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
    """Of five creates two fit: all five are sent unchanged, and the caller gets the refusals."""
    gate, server = AsyncGate(mode="shadow"), Server(room=2)

    answers = [await gate.create(creation(), server) for _ in range(5)]

    assert [answer.status for answer in answers] == [201, 201, 403, 403, 403]
    assert all(body is POD for body in server.sent)
    assert gate.counts.shadow_waits == 2  # it learned from the third
    assert gate.counts.passed == 5


async def test_shadow_leaves_no_hold_and_no_waiter() -> None:
    """Its tickets end like all others."""
    gate, server = AsyncGate(mode="shadow"), Server(room=2)
    await asyncio.gather(*[gate.create(creation(), server) for _ in range(20)])

    namespace = gate.ledger.snapshot().namespaces["team"]
    assert (namespace.outstanding, namespace.waiting) == (0, 0)


async def test_off_sends_and_learns_nothing() -> None:
    """The gate does nothing."""
    gate, server = AsyncGate(mode="off"), Server(room=0)

    answer = await gate.create(creation(), server)

    assert answer.status == 403
    assert gate.ledger.snapshot().namespaces == {}


async def test_modes_are_per_namespace() -> None:
    """ "*" sets the mode of the other namespaces."""
    gate, server = AsyncGate(mode={"lab": "shadow", "*": "off"}), Server(room=9)
    await gate.create(creation("lab"), server)
    await gate.create(creation("team"), server)

    assert set(gate.ledger.snapshot().namespaces) == {"lab"}


@pytest.mark.parametrize("mode", ["on", {"team": "enforced"}])
def test_an_unknown_mode_is_refused_at_once(mode: Any) -> None:
    """The error comes when the gate is made, not at the first create."""
    with pytest.raises(ValueError, match="enforce, shadow, off"):
        AsyncGate(mode=mode)


async def test_an_error_in_the_engine_lets_creates_through_is_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Refused creates make the engine draw jitter, which breaks it: each caller gets the server's own answer."""
    gate, server = AsyncGate(rng=Defective()), Server(room=1)

    answers = await asyncio.wait_for(asyncio.gather(*[gate.create(creation(), server) for _ in range(6)]), 45)

    assert sorted(answer.status for answer in answers) == [201, 403, 403, 403, 403, 403]
    assert gate.counts.failed_open >= 1
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


def test_an_error_in_the_engine_lets_blocking_creates_through() -> None:
    """The same holds for threads."""
    gate, server = Gate(rng=Defective()), Server(room=1)

    statuses = [gate.create(creation(), Blocking(server)).status for _ in range(3)]

    assert statuses == [201, 403, 403]
    assert gate.counts.failed_open >= 1


async def test_after_an_error_the_gate_gates_again() -> None:
    """One error does not switch the gate off for good."""
    bad = [True]
    gate, server = AsyncGate(rng=Defective(lambda: bad[0]), policy=Policy(base=0.01, cap=0.02)), Server(room=1)
    await gate.create(creation(), server)
    await gate.create(creation(), server)
    bad[0] = False

    late = asyncio.ensure_future(gate.create(creation(), server))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(late), 0.1)  # it waits again, as it should
    server.room = 1000

    assert (await asyncio.wait_for(late, 45)).status == 201


async def test_a_create_let_through_keeps_the_name_that_it_may_have_been_sent_under() -> None:
    """A gate that fails open never stores a create twice, either."""
    gate, server = AsyncGate(rng=Defective()), Server(room=0)
    answer = await gate.create(creation(), server)

    assert answer.status == 403
    assert len(server.sent) == 2
    assert len({body["metadata"]["name"] for body in server.sent}) == 1


async def test_a_manifest_that_cannot_be_read_goes_to_the_server() -> None:
    """The server says what is wrong with it."""
    gate, server = AsyncGate(), Server(room=5)
    answer = await gate.create(creation(body={"metadata": {"name": "x"}, "spec": {"containers": "none"}}), server)

    assert answer.status == 201
    assert gate.counts.failed_open == 0


async def test_a_failing_callback_of_the_callers_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    """An error in ``on_wait`` is logged, and the create goes on waiting."""
    gate, server = AsyncGate(policy=Policy(base=0.01, cap=0.02)), Server(room=0)

    def broken(_: Any) -> None:
        server.room = 1000
        raise ValueError("not my day")

    asked = creation()
    asked.on_wait = broken

    assert (await asyncio.wait_for(gate.create(asked, server), 45)).status == 201
    assert "the on_wait callback of pods team/p-* failed" in caplog.text


async def test_a_cancelled_create_that_is_then_refused_does_not_rejoin_the_line() -> None:
    """It was in flight, so its refusal still teaches, but it is not sent again."""
    gate, server = AsyncGate(), Server(room=0)
    sent, go_on = asyncio.Event(), asyncio.Event()

    class Slow:
        async def send(self, body: dict[str, Any]) -> Answer:
            sent.set()
            await go_on.wait()
            return server.answer(body)

        look_up = server.look_up

    task = asyncio.ensure_future(gate.create(creation(), Slow()))
    await sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await gate.drain()

    namespace = gate.ledger.snapshot().namespaces["team"]
    assert (namespace.waiting, namespace.outstanding) == (0, 0)
    assert namespace.quotas["q"]["pods"].limited == 0
    assert len(server.sent) == 1


async def test_too_many_waiting_is_answered_429() -> None:
    """This is the outcome of ``Policy.waiters_max``."""
    gate, server = AsyncGate(policy=Policy(waiters_max=1)), Server(room=0)
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
    gate, server = AsyncGate(policy=Policy(wait_max=0.1)), Server(room=0)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(gate.create(creation(), server), 45)


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

    gate, server = AsyncGate(mode=confused), Server(room=1)
    assert (await gate.create(creation(), server)).status == 201
    assert Gate(mode=confused).create(creation(), Blocking(server)).status == 403
    assert (len(server.sent), gate.counts.failed_open) == (2, 1)
    assert "no mode for team" in caplog.text


@pytest.mark.parametrize("broken", ["_count", "end"])
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_an_error_after_the_servers_answer_returns_that_answer(broken: str, kind: str) -> None:
    """The create is stored: it is neither sent again nor left hanging, and the error is counted."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the ledger is broken")

    server = Server(room=1)
    gate: Any = Gate() if kind == "threads" else AsyncGate()
    setattr(gate.ledger.line, broken, fail)
    async with asyncio.timeout(45):
        if kind == "threads":
            answer = await asyncio.to_thread(gate.create, creation(), Blocking(server))
        else:
            answer = await gate.create(creation(), server)

    assert (answer.status, len(server.sent), gate.counts.failed_open > 0) == (201, 1, True)


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
