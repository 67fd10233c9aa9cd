"""A process that creates keyed pods through ``GatedApiClient``, a thread each, so that it can be killed.

It writes a line to its standard output for each pod that it has: ``3 0.125``, the number and the seconds it took.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kubernetes import client

from backoff_ctrl import GatedApiClient, waiting
from backoff_ctrl.k8s.cluster.finding import find_place
from backoff_ctrl.k8s.sandbox.kubelet import RUN_SECONDS


def keyed_pod(number: int, runs_for: float) -> dict[str, Any]:
    """The pod of one key, which runs for so many seconds."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "keyed-",
            "labels": {"number": str(number)},
            "annotations": {RUN_SECONDS: str(runs_for)},
        },
        "spec": {
            "restartPolicy": "Never",
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "busybox:1"}],
        },
    }


def create(asked: dict[str, Any]) -> None:
    """Create all pods at once, each under its own key."""
    configuration = find_place(None, asked["kubeconfig"], None, None).configuration
    with GatedApiClient(configuration) as api:
        core: Any = client.CoreV1Api(api)

        def one(number: int) -> None:
            began = time.monotonic()
            with waiting(key=f"order-{number}", timeout=asked["timeout"]):
                core.create_namespaced_pod(asked["namespace"], keyed_pod(number, asked["runs_for"]))
            sys.stdout.write(f"{number} {time.monotonic() - began:.3f}\n")
            sys.stdout.flush()

        with ThreadPoolExecutor(asked["pods"]) as pool:
            for done in [pool.submit(one, number) for number in range(asked["pods"])]:
                done.result()


if __name__ == "__main__":
    create(json.loads(sys.argv[1]))
