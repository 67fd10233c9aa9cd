"""Two ways to create gangs: member by member, each with plain retries, and through the gate as one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from backoff_ctrl.k8s.gate.gangs.asked import gang_of
from backoff_ctrl.k8s.replay.clients.gated import Gated
from backoff_ctrl.k8s.replay.clients.plain import Client, Plain, check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backoff_ctrl.k8s.gate.gangs.admitted import AdmittedGang
    from backoff_ctrl.k8s.replay.workload import Pod


class GangClient(Client, Protocol):
    """A way to create gangs, and pods that are in none."""

    async def place_gang(self, pods: Sequence[Pod]) -> None:
        """Return when all of these pods have been created."""
        ...


class OneByOne(Plain):
    """Creates the members one after the other, each with plain retries, and keeps what it has: half gangs, too."""

    async def place_gang(self, pods: Sequence[Pod]) -> None:
        """Send the create of each until it succeeds."""
        for pod in pods:
            await self.place(pod)


class AsOne(Gated):
    """Creates the members at once when the gate has room for all of them."""

    async def place_gang(self, pods: Sequence[Pod]) -> None:
        """Wait in line until the whole gang is admitted, then create it."""
        self.start()
        first = pods[0]
        members = [(pod.manifest(), 1) for pod in pods]
        asked = gang_of(first.namespace, members, name=f"gang-of-{first.name}", server="replay", credential="replay")
        async with self.gate.gang(asked, self.transport(first.namespace)) as gang:
            await asyncio.gather(*(self._draw(gang, pod) for pod in pods))

    async def _draw(self, gang: AdmittedGang, pod: Pod) -> None:
        check(await gang.create(self.creation(pod), self.transport(pod.namespace)))
