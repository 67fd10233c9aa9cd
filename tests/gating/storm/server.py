"""The server of a storm: a sandbox that refuses, delays and loses answers, and a kubelet that ends its pods.

``python -m tests.gating.storm.server SEED HARD`` prints its URL, and serves until its input ends.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from backoff_ctrl.k8s.lab.sandbox import Sandbox
from backoff_ctrl.k8s.lab.sandbox.followed import Server
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet

NAMESPACE: Final = "team"
FAULTS: Final = {
    "quota_conflict_share": 0.01,
    "quota_timeout_share": 0.002,
    "unknown_outcome_share": 0.01,
    "reset_share": 0.01,
    "stale_admission_share": 0.02,
    "watch_break_share": 0.002,
}


async def serve(seed: int, hard: int) -> None:
    """Serve, with a quota of so many pods."""
    async with Sandbox(seed=seed) as sandbox, Kubelet(Server(sandbox.url), starts=False):
        sandbox.create_namespace(NAMESPACE)
        sandbox.create_quota(NAMESPACE, "count", {"pods": str(hard)})
        sandbox.create_quota(NAMESPACE, "compute", {"requests.cpu": str(hard // 3)})
        sandbox.faults.change(FAULTS)
        sys.stdout.write(f"{sandbox.url}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
