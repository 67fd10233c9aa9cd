"""Token pools: who gets a token, who waits for what, and what the operators and the engine can do meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.gate.sharing.process import use_policy
from backoff_ctrl.k8s.kube.answers.answer import GateClosed
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskMetadata
from backoff_ctrl.k8s.tasks.services.webapi.pools import AGAIN, PoolLimits, Pools, TokenWait
from tests.kit.virtual_tests import in_virtual_time

if TYPE_CHECKING:
    from typing import Any

    import pytest

PLUGIN = "connector"
TWO = PoolLimits(2)


def about(name: str, namespace: str = "team", project: str = "p", **more: Any) -> TaskMetadata:
    return TaskMetadata(namespace, name, f"uid-{name}", 0, f"{name}-0", project=project, **more)


class Asking:
    """Pools, and the attempts that ask them, by name. ``told``: whose callback was called."""

    def __init__(self, limits: PoolLimits = TWO, pool: str = "default") -> None:
        self.pools = Pools()
        self.limits = limits
        self.pool = pool
        self.told: list[str] = []

    def ask(self, name: str, namespace: str = "team", project: str = "p", **more: Any) -> TokenWait:
        of = about(name, namespace, project, **more)
        return self.pools.ask(PLUGIN, self.pool, key(name), of, self.limits, lambda: self.told.append(name))

    def adopt(self, name: str, namespace: str = "team", project: str = "p") -> None:
        self.pools.adopt(PLUGIN, self.pool, key(name), about(name, namespace, project))

    def limit(self, limits: PoolLimits) -> None:
        self.limits = limits
        self.pools.limit(PLUGIN, self.pool, limits)

    def has(self, *names: str) -> list[str]:
        return [name for name in names if self.pools.has(key(name))]

    def release(self, name: str) -> None:
        self.pools.release(key(name))

    def ceilings(self) -> dict[str, tuple[int, int]]:
        """Return what is used and what is allowed, by resource, as the status shows it."""
        found = self.pools.ledger.look(lambda engine, now: engine.namespace("pool.connector", now))
        assert found is not None
        return {name: (each.used // NANO, each.limited // NANO) for name, each in found.quotas["pool"].items()}

    def why(self, name: str) -> tuple[str, str, int]:
        wait = self.pools.wait(key(name))
        assert wait is not None
        return wait.reason, wait.resource, wait.place


def key(name: str) -> tuple[str, int]:
    return f"uid-{name}", 0


@in_virtual_time
async def test_so_many_have_a_token_and_the_next_gets_the_one_that_is_released() -> None:
    asking = Asking()
    for name in "abcd":
        asking.ask(name)
    assert asking.has(*"abcd") == ["a", "b"]
    asking.release("b")
    assert asking.has(*"abcd") == ["a", "c"]
    await asyncio.sleep(0)
    assert asking.told == ["c"], "who has its token when ask returns need not be told"


@in_virtual_time
async def test_a_higher_priority_goes_first_and_among_equals_who_came_first() -> None:
    asking = Asking(PoolLimits(1))
    for name, priority in (("first", 0), ("low", 0), ("high", 5), ("late", 5)):
        asking.ask(name, priority=priority)
    got = []
    for name in ("first", "high", "late"):
        asking.release(name)
        got += asking.has("low", "high", "late")
    assert got == ["high", "late", "low"]


@in_virtual_time
async def test_who_has_waited_long_goes_before_a_higher_priority() -> None:
    asking = Asking(PoolLimits(1))
    asking.ask("first")
    asking.ask("old")
    await asyncio.sleep(31)
    asking.ask("new", priority=1)
    asking.release("first")
    assert asking.has("old", "new") == ["old"]


@in_virtual_time
async def test_a_full_project_or_namespace_holds_nobody_else_up() -> None:
    asking = Asking(PoolLimits(4, project=2, namespace=1))
    asking.ask("a", "one", "x")
    asking.ask("same-namespace", "one", "y")
    asking.ask("b", "two", "x")
    asking.ask("same-project", "three", "x")
    asking.ask("elsewhere", "four", "z")
    assert asking.has("a", "same-namespace", "b", "same-project", "elsewhere") == ["a", "b", "elsewhere"]
    assert asking.why("same-namespace") == ("quota", "tokens.namespace/one", 1)
    assert asking.why("same-project") == ("quota", "tokens.project/x", 2)
    asking.release("a")
    assert asking.has("same-namespace", "same-project") == ["same-namespace", "same-project"]


@in_virtual_time
async def test_tasks_without_a_project_are_counted_together() -> None:
    """Else a task would get around its project's limit by leaving the project out."""
    asking = Asking(PoolLimits(9, project=1))
    asking.ask("a", "one", "")
    asking.ask("b", "two", "")
    asking.ask("c", "two", "p")
    assert asking.has(*"abc") == ["a", "c"]
    assert asking.why("b") == ("quota", "tokens.project", 1)


@in_virtual_time
async def test_adopted_tokens_count_even_beyond_the_limits() -> None:
    asking = Asking(PoolLimits(2, namespace=1))
    for name in ("a", "b", "c", "a"):
        asking.adopt(name)
    asking.ask("next", "other")
    for name in ("a", "b"):
        asking.release(name)
        asking.release(name)
        assert asking.has("next") == (["next"] if name == "b" else [])
    asking.ask("here")
    assert asking.why("here")[1] == "tokens"
    asking.release("next")
    assert asking.why("here")[1] == "tokens.namespace/team"
    asking.release("c")
    assert asking.has("here")


@in_virtual_time
async def test_a_second_ask_keeps_the_place_and_a_second_release_gives_nothing_back() -> None:
    asking = Asking(PoolLimits(1))
    asking.ask("a")
    waits = [asking.ask("b"), asking.ask("c"), asking.ask("b")]
    assert waits[0] is waits[2]
    assert asking.why("b")[2] == 1
    for _ in range(2):
        asking.release("a")
    assert asking.has(*"bc") == ["b"]


@in_virtual_time
async def test_who_leaves_the_line_is_granted_nothing() -> None:
    asking = Asking(PoolLimits(1))
    for name in "abc":
        asking.ask(name)
    asking.release("b")
    asking.release("a")
    assert asking.has(*"abc") == ["c"]
    assert asking.pools.wait(key("b")) is None
    await asyncio.sleep(0)
    assert asking.told == ["c"]


@in_virtual_time
async def test_a_lower_limit_takes_nothing_away_and_a_higher_one_grants_at_once() -> None:
    asking = Asking(PoolLimits(2))
    for name in "abcd":
        asking.ask(name)
    asking.limit(PoolLimits(1))
    assert asking.has(*"abcd") == ["a", "b"]
    asking.release("a")
    assert asking.has(*"abcd") == ["b"]
    asking.limit(PoolLimits(3))
    assert asking.has(*"abcd") == ["b", "c", "d"]


@in_virtual_time
async def test_a_total_of_zero_pauses_the_pool() -> None:
    asking = Asking(PoolLimits(0))
    asking.ask("a")
    assert asking.why("a") == ("paused", "tokens", 1)
    asking.limit(PoolLimits(1))
    assert asking.has("a")


@in_virtual_time
async def test_limits_of_projects_count_what_was_granted_before_they_were_set() -> None:
    asking = Asking(PoolLimits(9))
    for name in "ab":
        asking.ask(name)
    asking.limit(PoolLimits(9, project=2))
    asking.ask("c")
    assert asking.why("c")[1] == "tokens.project/p"


@in_virtual_time
async def test_a_wait_says_what_it_lacks_its_place_and_from_some_releases_on_how_long() -> None:
    asking = Asking(PoolLimits(1))
    names = [f"n{number:02}" for number in range(30)]
    for name in names:
        asking.ask(name)
    for name in names[:12]:
        await asyncio.sleep(2)
        asking.release(name)
    wait = asking.pools.wait(key("n29"))
    assert wait is not None
    assert wait.label == "tokens pool.connector/team/n29-0"
    assert wait.why == "quota: asks tokens=1, 0 left in quota pool; place 17 in line"
    assert wait.estimate is not None
    assert 30 < wait.estimate < 40
    assert next(each.name for each in asking.pools.ledger.waiting_now()) == "team/n13-0"


@in_virtual_time
async def test_a_wait_ends_with_a_failure_after_the_time_that_its_task_allows() -> None:
    asking = Asking(PoolLimits(1, namespace=1))
    asking.ask("a")
    wait = asking.ask("b", timeout=5)
    await asyncio.sleep(6)
    assert asking.told == ["b"]
    assert wait.failure.startswith("gave up waiting for tokens pool.connector/team/b-0 after 5 s")
    assert asking.ask("b") is wait, "the failure stays until it is released"
    asking.release("a")
    assert not asking.has("b")
    assert asking.ceilings() == {"tokens": (0, 1)}
    asking.release("b")
    asking.ask("c")
    assert asking.has("c")
    assert asking.ceilings() == {"tokens": (1, 1), "tokens.namespace/team": (1, 1)}
    asking.release("c")
    assert asking.ceilings() == {"tokens": (0, 1)}


@in_virtual_time
async def test_a_project_or_namespace_is_listed_while_it_has_or_wants_a_token() -> None:
    asking = Asking(PoolLimits(1, project=3, namespace=2))
    asking.ask("a", "one", "x")
    asking.ask("b", "two", "x")
    x, one = ("tokens.project/x", (1, 3)), ("tokens.namespace/one", (1, 2))
    assert asking.ceilings() == dict([("tokens", (1, 1)), x, one, ("tokens.namespace/two", (0, 2))])
    asking.release("b")
    assert asking.ceilings() == dict([("tokens", (1, 1)), x, one])
    asking.release("a")
    assert asking.ceilings() == {"tokens": (0, 1)}


@in_virtual_time
async def test_a_release_reaches_the_last_of_many_lines_at_once() -> None:
    """However many wait before it, each for its own namespace."""
    asking = Asking(PoolLimits(1000, namespace=1))
    names = [f"n{number}" for number in range(200)]
    for name in names:
        asking.ask(name, name)
    for name in names:
        asking.ask(f"next-{name}", name)
    asking.release(names[-1])
    assert asking.has(*(f"next-{name}" for name in names)) == [f"next-{names[-1]}"]


@in_virtual_time
async def test_a_line_is_as_long_and_a_wait_takes_as_long_as_it_must() -> None:
    """The limits of lines at API servers are not for pools; and a full pool is never asked on the chance of room."""
    try:
        use_policy(below={"waiters_max": 1, "wait_max": 60}, above={})
        asking = Asking(PoolLimits(1))
    finally:
        use_policy(below={}, above={})
    waits = [asking.ask(name) for name in "abcd"]
    await asyncio.sleep(100_000)
    wait = asking.pools.wait(key("d"))
    assert wait is not None
    assert (wait.place, wait.next_probe, [each.failure for each in waits]) == (3, None, [""] * 4)
    assert asking.pools.ledger.counts.sent == 1


@in_virtual_time
async def test_pools_of_a_plugin_are_apart() -> None:
    one, other = Asking(PoolLimits(1)), Asking(PoolLimits(1), pool="gpu")
    other.pools = one.pools
    one.ask("a")
    other.ask("b")
    other.ask("c")
    assert one.has(*"abc") == ["a", "b"]
    wait = one.pools.wait(key("c"))
    assert wait is not None
    assert wait.namespace == "pool.connector.gpu"


# -- operators ---------


@in_virtual_time
async def test_a_wait_that_an_operator_cancels_is_told_and_may_begin_anew() -> None:
    asking = Asking(PoolLimits(1, namespace=1))
    for name in "abc":
        asking.ask(name, name)
    (found,) = [each for each in asking.pools.ledger.under_way() if each.creation.name == "b/b-0"]
    found.cancel(GateClosed("cancelled by an operator"))
    assert list(asking.ceilings()) == ["tokens", "tokens.namespace/a", "tokens.namespace/c"]
    await asyncio.sleep(0)
    assert asking.told == ["b"]
    assert asking.pools.wait(key("b")) is None
    asking.ask("b", "b")
    assert asking.why("b")[2] == 2


async def test_a_pool_that_another_thread_resumes_grants_on_its_own() -> None:
    """While its loop stands still nothing is granted: all that belongs to the pool happens there."""
    asking = Asking()
    asking.pools.ledger.halt("pool.connector", halted=True)
    for name in "abc":
        asking.ask(name)
    resuming = threading.Thread(target=lambda: asking.pools.ledger.halt("pool.connector", halted=False))
    resuming.start()
    resuming.join()
    assert asking.has(*"abc") == []
    await asyncio.sleep(0)
    assert asking.has(*"abc") == ["a", "b"]
    await asking.pools.aclose()


async def test_a_limit_lowered_while_another_thread_makes_room_is_not_passed() -> None:
    """An operator resumes the pool: the tickets are given there, and reach the loop when the limit is lower."""
    asking = Asking(PoolLimits(3))
    ledger = asking.pools.ledger
    ledger.halt("pool.connector", halted=True)
    for name in "abc":
        asking.ask(name)
    assert asking.why("a")[0] == "paused-by-operator"
    resumed = asyncio.get_running_loop().run_in_executor(None, lambda: ledger.halt("pool.connector", halted=False))
    while ledger.is_halted("pool.connector"):
        pass  # the loop stands still: the tickets are on their way to it
    asking.limit(PoolLimits(1))
    await resumed
    await asyncio.sleep(0)
    for left in (3, 2, 1):
        (one,) = asking.has(*"abc")
        asking.release(one)
        assert len(asking.has(*"abc")) == (left > 1)
    await asking.pools.aclose()


# -- a bug of ours ---------


@in_virtual_time
async def test_an_engine_that_fails_breaks_no_limit_and_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    asking = Asking(PoolLimits(2, namespace=2))
    names = [f"n{number}" for number in range(6)]
    for name in names:
        asking.ask(name)

    def fail(_: Controller, __: float) -> None:
        raise RuntimeError("a bug of the engine")

    asking.pools.ledger.engine.act(fail)
    assert asking.has(*names) == names[:2]
    asking.release("n5")
    await asyncio.sleep(2 * AGAIN)
    assert asking.why("n2") == ("quota", "tokens", 1)
    assert len(asking.pools.ledger.under_way()) == 3, "who has left meanwhile does not come back"
    for done, next_one in zip(names, names[2:5], strict=False):
        asking.release(done)
        assert asking.has(next_one)
    assert "a bug of the engine" in caplog.text


@in_virtual_time
async def test_closing_ends_all_waits_and_tells_nobody() -> None:
    asking = Asking(PoolLimits(1))
    for name in "abc":
        asking.ask(name)
    await asking.pools.aclose()
    await asyncio.sleep(1)
    assert asking.told == []
    assert not asking.pools.ledger.under_way()
