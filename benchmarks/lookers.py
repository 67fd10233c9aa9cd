"""What looking at a large engine takes from who decides: a page of each kind, one explanation. Prints a JSON object.

10,000 namespaces with one full quota of five resources each, 100,000 waiting requests in 8,000 of them; 80,000 more
wait in one namespace. Of the pages of one kind, the median and the 99th percentile.
"""

from __future__ import annotations

import json
from statistics import median, quantiles
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

from backoff_ctrl.engine import Controller, Demand, ObservedQuota, Request

if TYPE_CHECKING:
    from collections.abc import Callable

ONE = 10**9
NAMESPACES, CROWDED, WAITERS, IN_ONE = 10_000, 8_000, 100_000, 80_000
HARD = dict.fromkeys(("pods", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"), 10 * ONE)


def crowd() -> tuple[Controller, Request]:
    """Return the engine, and the request that is the last of the 80,000."""
    controller = Controller()
    for number in range(NAMESPACES):
        controller.observe_quota(f"namespace-{number}", "quota", ObservedQuota(HARD, HARD, HARD), 0.0)
    controller.watching(0.0)
    controller.advance(0.0)
    for number in range(WAITERS):
        cpu = (number % 3 + 1) * ONE
        controller.submit(Request(f"r{number}", f"namespace-{number % CROWDED}", Demand({"requests.cpu": cpu})), 1.0)
    in_one = [
        Request(f"s{number}", "namespace-9999", Demand({"requests.cpu": (number % 8 + 1) * ONE}))
        for number in range(IN_ONE)
    ]
    for request in in_one:
        controller.submit(request, 2.0)
    controller.advance(2.0)
    return controller, in_one[-1]


def took(do: Callable[[], Any]) -> tuple[float, Any]:
    """Return the microseconds of a call, and what it returns."""
    start = thread_time_ns()
    value = do()
    return (thread_time_ns() - start) / 1000, value


def pages(ask: Callable[[Any], Any]) -> list[float]:
    """Return the microseconds of each page of a kind."""
    times, after = [], None
    while True:
        each, page = took(lambda: ask(after))  # noqa: B023 - called at once
        times.append(each)
        after = page.next
        if after is None:
            return times


def main() -> None:
    """Measure and print."""
    controller, last = crowd()
    found = {}
    explained = [took(lambda: controller.explain(last, 2.0))[0] for _ in range(200)]
    found["explain of the last of 80,000, us"] = median(explained)
    kinds: dict[str, Callable[[Any], Any]] = {
        "namespaces": lambda after: controller.page(after, 1000, 2.0),
        "waiters": lambda after: controller.waiting(after, 1000, 2.0),
        "memory": lambda after: controller.remember_page(after, 1000, 2.0),
    }
    for kind, ask in kinds.items():
        times = pages(ask)
        found[f"a page of {kind} at 10,000 namespaces, us"] = median(times)
        found[f"a page of {kind} at 10,000 namespaces, p99, us"] = quantiles(times, n=100)[-1]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
