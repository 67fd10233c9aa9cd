"""How good estimates of waits are: ``python benchmarks/estimates.py [--seeds 1,2,3] [--pods N]``, in virtual time.

The replay's workload runs through the gate; every few seconds the estimate of each waiting create is noted. For each
create that waited eight seconds or more, the estimate half-way through its wait is compared with what was left of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.lab.replay.clients import Gated, make_client, replay
from backoff_ctrl.k8s.lab.replay.virtual_time import QuotaAdmission, run_virtual
from backoff_ctrl.k8s.lab.replay.workload import PACKAGED, make_workload, read_trace
from backoff_ctrl.k8s.status.counters import Counters

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.replay.workload import Workload

EVERY = 4.0  # seconds between two looks


class Watched(Counters):
    """Also notes when each create began to wait, and when it was created."""

    def __init__(self, *given: Any) -> None:
        """Take what ``Counters`` takes; nothing was noted yet."""
        super().__init__(*given)
        self.began: dict[Any, float] = {}
        self.over: dict[Any, float] = {}

    def waits(self, create: Any) -> None:
        """Note the beginning."""
        self.began.setdefault(create, create.request.joined)
        super().waits(create)

    def ended(self, create: Any) -> None:
        """Note the end."""
        self.over[create] = self._clock()
        super().ended(create)


def run(workload: Workload, *, observe: bool) -> list[tuple[float | None, float]]:
    """Run it; return the estimate half-way of each create that waited, and the seconds that were left then."""
    looks: dict[Any, list[tuple[float, float | None]]] = defaultdict(list)

    async def main() -> Watched:
        client = make_client(
            "gate_observing" if observe else "gate_learning", QuotaAdmission(workload), seed=workload.seed
        )
        assert isinstance(client, Gated)
        ledger = client.gate.ledger
        watched = Watched(ledger.now, lambda _: None)
        ledger.subscribe(watched)

        async def look() -> None:
            while True:
                await asyncio.sleep(EVERY)
                for create in ledger.under_way():
                    request = getattr(create, "request", None)
                    if request is not None and (why := ledger.explain(request)) is not None:
                        looks[create].append((ledger.now(), why.estimate))

        looking = asyncio.ensure_future(look())
        await replay(workload, client)
        looking.cancel()
        return watched

    watched = run_virtual(main())
    found = []
    for create, began in watched.began.items():
        over = watched.over[create]
        half = (began + over) / 2
        near = min(looks[create], key=lambda seen: abs(seen[0] - half), default=None)
        if over - began >= 2 * EVERY and near is not None:
            found.append((near[1], over - near[0]))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--pods", type=int, default=400)
    chosen = parser.parse_args()
    trace = read_trace(PACKAGED)
    every: list[tuple[float | None, float]] = []
    for seed in map(int, chosen.seeds.split(",")):
        workload = make_workload(trace, pods=chosen.pods, seed=seed)
        for observe in (False, True):
            every += run(workload, observe=observe)
    given = [(estimate, left) for estimate, left in every if estimate is not None]
    close = sum(1 for estimate, left in given if left / 2 <= estimate <= left * 2)
    print(
        json.dumps(
            {
                "waits": len(every),
                "null_share": round(1 - len(given) / len(every), 3),
                "within_factor_two_of_given": round(close / len(given), 3),
                "within_factor_two_or_null": round((close + len(every) - len(given)) / len(every), 3),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
