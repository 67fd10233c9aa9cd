"""The engine against the exact server of the twin, in virtual time; reports and answers are delayed."""

from __future__ import annotations

import copy
import heapq
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backoff_ctrl.engine import Created, Demand, ObservedQuota, Policy, Rejected, Ticket
from tests.kit.engine_twin import TwinQuota, TwinServer
from tests.kit.examples import examples
from tests.kit.timeline import NS, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine import Request


class World:
    """One namespace, one workload, one engine; a heap of events."""

    def __init__(self, seed: int, hard: dict[str, int], policy: Policy | None = None, *, observing: bool) -> None:
        """Start with empty quotas."""
        self.rng = random.Random(seed)
        self.engine = Timeline(policy, seed=seed)
        self.server = TwinServer()
        self.server.quotas[NS] = {"a": TwinQuota(dict(hard), dict.fromkeys(hard, 0))}
        self.observing = observing
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.taken = 0
        self.stored: list[Request] = []
        self.last_news = 0.0
        if observing:
            self.report(copy.deepcopy(self.server.quotas[NS]["a"]))
            self.engine.watching()

    def at(self, moment: float, event: Callable[[], None]) -> None:
        """Schedule an event."""
        self.count += 1
        heapq.heappush(self.events, (moment, self.count, event))

    def report(self, quota: TwinQuota) -> None:
        """Report a state of the quota to the engine."""
        seen = ObservedQuota(quota.hard, quota.hard, quota.used)
        self.engine.controller.observe_quota(NS, "a", seen, self.engine.now)

    def changed(self) -> None:
        """Schedule a report of the present state within 40 ms, in the order of the changes."""
        if self.observing:
            state = copy.deepcopy(self.server.quotas[NS]["a"])
            moment = self.last_news = max(self.last_news, self.engine.now + self.rng.uniform(0, 0.04))
            self.at(moment, lambda: self.report(state))

    def send(self, ticket: Ticket, runtime: float) -> None:
        """Let the server decide a little later, and its answer arrive a little after that."""
        amounts = dict(ticket.request.demand.amounts)

        def arrive() -> None:
            refusal = self.server.create(NS, amounts)
            outcome = Created() if refusal is None else Rejected(*refusal)
            if refusal is None:
                self.stored.append(ticket.request)
                self.changed()
                self.at(self.engine.now + runtime, end)
            back = self.engine.now + self.rng.uniform(0.001, 0.03)
            self.at(back, lambda: self.engine.controller.settle(ticket, outcome, self.engine.now))

        def end() -> None:
            self.server.release(NS, amounts)
            self.changed()
            if not self.observing and self.rng.random() < 0.5:
                self.engine.controller.hint_release(NS, self.engine.now)

        self.at(self.engine.now + self.rng.uniform(0.0005, 0.01), arrive)

    def run(self, creates: list[tuple[float, dict[str, int], float]]) -> None:
        """Submit each create at its time; go on until no event is left."""
        runtimes = {}
        for moment, amounts, runtime in creates:
            request = self.engine.request(demand=Demand(amounts))
            runtimes[request] = runtime
            self.at(moment, lambda r=request: self.engine.controller.submit(r, self.engine.now))  # type: ignore[misc]
        for _ in range(200_000):
            deadline = self.engine.controller.next_deadline()
            upcoming = self.events[0][0] if self.events else float("inf")
            if self.events and upcoming <= (deadline if deadline is not None else float("inf")):
                self.engine.now = max(self.engine.now, upcoming)
                heapq.heappop(self.events)[2]()
            elif deadline is not None and deadline < 100_000:
                self.engine.now = max(self.engine.now, deadline)
            else:
                break
            self.engine.advance()
            for _, effect in self.engine.log[self.taken :]:
                assert isinstance(effect, Ticket)
                self.send(effect, runtimes[effect.request])
            self.taken = len(self.engine.log)
            if len(self.stored) == len(creates) and not self.events:
                break
        assert sorted(r.id for r in self.stored) == sorted(r.id for r in runtimes), "each exactly once"


CREATES = st.lists(
    st.tuples(
        st.floats(0, 5),
        st.fixed_dictionaries({"cpu": st.integers(0, 8), "pods": st.just(1)}),
        st.floats(0.01, 10),
    ),
    min_size=1,
    max_size=40,
)


@given(creates=CREATES, seed=st.integers(0, 10_000), pods=st.integers(1, 10))
@settings(max_examples=examples(60))
def test_an_observing_only_creator_is_never_refused(
    creates: list[tuple[float, dict[str, int], float]], seed: int, pods: int
) -> None:
    """With reports within 50 ms and no other client, the server refuses nothing, and each create is stored once."""
    world = World(seed, {"cpu": 8, "pods": pods}, observing=True)
    world.run(creates)

    assert world.server.refused == 0
    assert world.server.creates == len(creates)


@given(creates=CREATES, seed=st.integers(0, 10_000), pods=st.integers(1, 10))
@settings(max_examples=examples(60))
def test_learning_from_refusals_alone_stores_each_create_once(
    creates: list[tuple[float, dict[str, int], float]], seed: int, pods: int
) -> None:
    """Without any watch, timers and hints alone keep the line moving."""
    world = World(seed, {"cpu": 8, "pods": pods}, observing=False)
    world.run(creates)

    assert world.server.creates - world.server.refused == len(creates)


@pytest.mark.parametrize("seed", range(3))
def test_a_busy_quota_costs_a_few_refusals_and_not_a_storm(seed: int) -> None:
    """Two hundred creates and room for four: about as many refusals as admissions, however many wait."""
    world = World(seed, {"pods": 4}, observing=False)
    rng = random.Random(seed)
    world.run([(rng.uniform(0, 20), {"pods": 1}, rng.uniform(0.5, 5)) for _ in range(200)])

    assert world.server.refused <= 3 * 200
