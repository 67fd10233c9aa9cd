"""``python -m benchmarks.operator_kills``: 5,000 Tasks through two replicas of the operator, whose leader is killed.

A real control plane; a quota of 100 pods, each of which runs for a second. While the Tasks are carried out, the leader
is killed five times and another replica starts. Prints how soon the next one led each time, and whether each Task has
had exactly one pod and ended. Exits with 1 if one had another number.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from backoff_ctrl.k8s.lab.sandbox.followed import Followed
from backoff_ctrl.k8s.lab.sandbox.followed import Server as Upstream
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet
from benchmarks.admitting_faults import Replicas
from benchmarks.cluster_tasks import NAMESPACE, PATH, QUOTA, prepare
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.talking import MERGE, Api
from tests.monitoring.prometheus.relay import Relay

JSON = dict[str, Any]
PODS: Final = 100
LONGEST: Final = 900.0


class Seen:
    """Which pods each Task has had, and how it ended."""

    def __init__(self) -> None:
        self.pods: Counter[str] = Counter()  # by the Task's uid
        self.phases: dict[str, str] = {}
        self._known: set[str] = set()

    def pod(self, change: str, pod: JSON) -> None:
        uid = pod["metadata"]["uid"]
        if change != "DELETED" and uid not in self._known:
            self._known.add(uid)
            self.pods[pod["metadata"]["ownerReferences"][0]["uid"]] += 1

    def task(self, _: str, task: JSON) -> None:
        self.phases[task["metadata"]["uid"]] = (task.get("status") or {}).get("phase", "")

    @property
    def ended(self) -> int:
        return sum(phase == "Success" for phase in self.phases.values())


@asynccontextmanager
async def watched(upstream: Upstream) -> AsyncIterator[Seen]:
    seen = Seen()
    async with upstream.session(2) as session:
        followed = [
            Followed(upstream, session, f"/api/v1/namespaces/{NAMESPACE}/pods", seen.pod),
            Followed(upstream, session, PATH, seen.task),
        ]
        tasks = [asyncio.create_task(each.run()) for each in followed]
        await asyncio.gather(*(each.listed.wait() for each in followed))
        try:
            yield seen
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def run(bed: Bed, tasks: int, kills: int) -> bool:
    """Return whether each Task had one pod, and succeeded."""
    upstream = Upstream(bed.server.url, {"Authorization": f"Bearer {bed.server.token('tester')}"}, bed.server.ssl())
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(bed.server))
        relay = stack.enter_context(Relay(bed.server.url))
        folder = Path(tempfile.mkdtemp(prefix="operator-kills-"))
        await prepare(api, tasks)
        replicas = Replicas(bed, relay, folder, [NAMESPACE])
        stack.push_async_callback(replicas.close)
        await replicas.start()
        print(f"the first replica leads after {await replicas.await_leader(60):.1f} s", flush=True)
        await replicas.start()
        seen = await stack.enter_async_context(watched(upstream))
        await stack.enter_async_context(Kubelet(upstream, namespace=NAMESPACE, finish_after=1.0))
        await api.patch(f"{QUOTA}/pods", {"spec": {"hard": {"pods": str(PODS)}}}, MERGE)
        began, taken = time.monotonic(), []
        for number in range(kills):
            await until(lambda number=number: seen.ended >= tasks * (number + 1) // (kills + 1), began)
            if (leader := await replicas.leader()) is not None:
                await replicas.end(leader, signal.SIGKILL)
                taken.append(await replicas.await_leader(60))
                print(
                    f"{seen.ended:,} have ended; leader killed, the next one leads after {taken[-1]:.1f} s", flush=True
                )
                await replicas.start()
        await until(lambda: seen.ended >= tasks, began)
        seconds = time.monotonic() - began
        pods = Counter(seen.pods.values())
        doubled, lost = sum(count for each, count in pods.items() if each > 1), tasks - seen.ended
        print(f"{seen.ended:,} of {tasks:,} Tasks succeeded in {seconds:.0f} s; pods per Task: {dict(pods)}")
        print(
            f"doubled {doubled}, lost {lost}; takeovers: most {max(taken, default=0):.1f} s, of {len(taken)}; "
            f"the logs are in {folder}"
        )
        for fault in replicas.faults():
            print(fault)
        return not doubled and not lost and not replicas.faults()


async def until(holds: Any, began: float) -> None:
    while not holds() and time.monotonic() < began + LONGEST:  # noqa: ASYNC110
        await asyncio.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=5)
    given = parser.parse_args()
    with Bed(wanted(), kcm_qps=500) as bed:
        held = asyncio.run(run(bed, given.tasks, given.kills))
    sys.exit(not held)


if __name__ == "__main__":
    main()
