"""A million waiting requests: bytes for each, one more decision beside them, one wake among them. Prints a JSON object.

``spread``: 10,000 namespaces with 100 waiting requests and one quota each. ``crowded``: one namespace, 10,000 shapes,
three quotas that all apply. Memory is the growth of the process's resident set while the requests join the line, their
``Request``, ids and demands included, divided by their number. The small controllers to which a decision is compared
hold 1,000 waiting requests of the same kind; the two are measured alternately.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import sys
from pathlib import Path
from statistics import median
from time import perf_counter_ns

from backoff_ctrl.engine import Controller, Demand, ObservedQuota, Policy, Request, Ticket
from backoff_ctrl.engine.facts.outcomes import Created

ONE = 10**9
MANY, FEW = 1_000_000, 1_000
# The wakes overtake each other.
POLICY = Policy(waiters_max=2 * MANY, overtakes_max=4096, overtaken_for_max=86_400, overtaken_at_most=86_400)
BATCHES, BATCH, BURST = 40, 500, 10
WAKES = 200
SETTLED = 0.002  # seconds: the policy's settle time, which is no work


class Crowd:
    """A controller with full, observed quotas and the requests that wait for them."""

    def __init__(self, waiters: int, namespaces: int, shapes: int, quotas: int) -> None:
        """Fill the line; measure the memory it takes."""
        self.controller = Controller(POLICY)
        self.now = 1.0
        self.namespaces = [f"namespace-{i}" for i in range(namespaces)]
        self.shapes = shapes
        self.quotas = [f"quota-{i}" for i in range(quotas)]
        self.limit = (shapes + 1) * ONE
        for namespace in self.namespaces:
            for quota in self.quotas:
                self.observe(namespace, quota, self.limit)
        self.controller.watching(self.now)
        self.controller.advance(self.now)
        gc.collect()
        before = resident()
        for number in range(waiters):
            self.submit(number)
        gc.collect()
        self.bytes_per_waiter = (resident() - before) / waiters
        self.waiters = waiters
        self.head = dict.fromkeys(self.namespaces, 0)

    def demand(self, number: int) -> Demand:
        """Return the demand of a namespace's n-th request: a new object, as for each real create."""
        cpu = (number % self.shapes + 1) * ONE
        return Demand({"pods": ONE, "requests.cpu": cpu, "requests.memory": cpu})

    def submit(self, number: int) -> None:
        """Let one more request wait."""
        namespace = self.namespaces[number % len(self.namespaces)]
        request = Request(f"pod-{number}", namespace, self.demand(number // len(self.namespaces)))
        self.now += 1e-6
        self.controller.submit(request, self.now)
        assert not self.controller.advance(self.now)

    def observe(self, namespace: str, quota: str, used: int) -> None:
        """Report a quota: each limits cpu, and has plenty of memory and pods."""
        hard = {"requests.cpu": self.limit, "requests.memory": 10**30, "pods": 10**18}
        seen = {"requests.cpu": used, "requests.memory": 0, "pods": 0}
        self.controller.observe_quota(namespace, quota, ObservedQuota(hard, hard, seen), self.now)

    def decide(self, rng: random.Random, burst: int) -> float:
        """Return microseconds for one more request that has to wait beside the others: request, submit, advance.

        They come in bursts of equal requests into a random namespace, like the pods of a Job. In bursts of one, every
        decision finds the processor's caches cold if the crowd is larger than they are.
        """
        picks = []
        for _ in range(BATCH // burst):
            namespace, shape = rng.choice(self.namespaces), rng.randrange(self.shapes)
            picks += [(namespace, self.demand(shape)) for _ in range(burst)]
        controller = self.controller
        now = self.now = self.now + 1e-3
        done = []
        start = perf_counter_ns()
        for namespace, demand in picks:
            request = Request("one-more", namespace, demand)
            controller.submit(request, now)
            controller.advance(now)
            done.append(request)
        took = perf_counter_ns() - start
        for request in done:
            controller.of(request.namespace).withdraw(request, now)
        self.rest()
        return took / BATCH / 1000

    def wake(self, rng: random.Random, *, deep: bool) -> float:
        """Return microseconds from a report of room for exactly one waiting request until that is admitted.

        That is the head of the line or, if ``deep``, the only request that is small enough, anywhere in the line.
        """
        namespace = rng.choice(self.namespaces)
        room = ONE if deep else (self.head[namespace] % self.shapes + 1) * ONE
        controller = self.controller
        self.now += 1.0
        for quota in self.quotas[1:]:  # their reports came before and are not measured
            self.observe(namespace, quota, self.limit - room)
        self.now += 0.01
        self.rest()
        start = perf_counter_ns()
        self.observe(namespace, self.quotas[0], self.limit - room)
        early = controller.advance(self.now)
        self.now += SETTLED
        effects = controller.advance(self.now)
        for _ in range(self.shapes):  # a scan cut short by the policy goes on at the next advance
            if effects:
                break
            effects = controller.advance(self.now)
        took = perf_counter_ns() - start
        assert not early
        [ticket] = effects
        assert isinstance(ticket, Ticket)
        self.head[namespace] += 0 if deep else 1
        controller.settle(ticket, Created(), self.now)
        for quota in self.quotas:
            self.observe(namespace, quota, self.limit)
        self.rest()
        return took / 1000

    def rest(self) -> None:
        """Advance until nothing is due, so that one measurement leaves nothing to the next."""
        end = self.now + 0.1
        while (deadline := self.controller.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            assert not self.controller.advance(self.now)


def resident() -> int:
    """Return the resident set in bytes: exact on Linux, elsewhere its peak so far."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def scenario(name: str) -> dict[str, float]:
    """Build a scenario and its small counterpart; measure both alternately."""
    if name == "spread":
        few, many = Crowd(FEW, 10, 4, 1), Crowd(MANY, 10_000, 4, 1)
    else:
        few, many = Crowd(FEW, 1, 10, 3), Crowd(MANY, 1, 10_000, 3)
    rng = random.Random(1)
    beside_few, beside_many, bursts = [], [], []
    for _ in range(BATCHES):
        beside_few.append(few.decide(rng, 1))
        beside_many.append(many.decide(rng, 1))
        bursts.append(many.decide(rng, BURST))
    wakes = [many.wake(rng, deep=False) for _ in range(WAKES)]
    deep = [many.wake(rng, deep=True) for _ in range(WAKES // 10)]
    return {
        "bytes_per_waiter": many.bytes_per_waiter,
        "decision_us_at_1e3_waiters": median(beside_few),
        "decision_us_at_1e6_waiters": median(beside_many),
        "wake_us_at_1e6_waiters": median(wakes),
        "decision at 1e6 waiters, in bursts of equals, us": median(bursts),
        "wake of the one that fits, deep in line, us": median(deep),
    }


if __name__ == "__main__":
    print(json.dumps(scenario(sys.argv[1])))
