"""A crude gate to check the simulation with: one create in flight per namespace, back-off with a cap of 10 s.

On this recipe such a sketch is known to have about 2.3 refusals per admitted pod, and makespan and p95 wait of 1.01 x
the better reference. A simulation that is far from that is wrong.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from backoff_ctrl.k8s.answers.rejections import read_rejection
from backoff_ctrl.k8s.replay.clients import Client, Cluster
from backoff_ctrl.k8s.replay.virtual_time import charge_of
from backoff_ctrl.k8s.replay.workload import Pod

CAP = 10.0


@dataclass(eq=False)
class Waiter:
    """A waiting pod, its charge in nano-units, and the future that ends its wait."""

    pod: Pod
    charge: dict[str, int]
    placed: asyncio.Future[None]


class OneProbe(Client):
    """Sends the first in line. Room shown by a refusal goes to the first pods that fit; then it backs off."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lines: dict[str, list[Waiter]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def place(self, pod: Pod) -> None:
        """Wait until the pod is created."""
        waiter = Waiter(pod, charge_of(pod.manifest()), asyncio.get_running_loop().create_future())
        line = self._lines.setdefault(pod.namespace, [])
        line.append(waiter)
        if len(line) == 1:
            self._tasks.append(asyncio.create_task(self._serve(line)))
        await waiter.placed

    async def _serve(self, line: list[Waiter]) -> None:
        refusals = 0
        while line:
            left = await self._ask(line, line[0])
            if left is None:
                continue
            wait, refusals = min(CAP, 2.0**refusals), refusals + 1
            while fitting := [w for w in line if all(w.charge.get(name, 0) <= left[name] for name in left)]:
                more = await self._ask(line, fitting[0])
                taken = fitting[0].charge if more is None else {}
                left = {name: amount - taken.get(name, 0) for name, amount in left.items()} | (more or {})
            await asyncio.sleep(wait)

    async def _ask(self, line: list[Waiter], waiter: Waiter) -> dict[str, int] | None:
        answer = await self._cluster.create(waiter.pod.namespace, waiter.pod.manifest())
        if answer.status == 201:
            line.remove(waiter)
            waiter.placed.set_result(None)
            return None
        return dict(read_rejection(answer.status, answer.headers, answer.body).headroom)
