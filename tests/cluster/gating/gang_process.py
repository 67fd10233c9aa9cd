"""A process that creates a gang of keyed pods through ``GatedApiClient``, so that it can be killed and started again.

Started again, it asks for room for those that do not exist yet, and creates all under their keys: those that exist are
found. It writes the number of each pod that it has to its standard output. Where it was told to pause, it waits there.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Any

from kubernetes import client

from backoff_ctrl import GatedApiClient, gang, waiting
from backoff_ctrl.k8s.kube.cluster.finding import find_place

LABEL = "number"


def member(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "member-", "labels": {"sort": "member", LABEL: str(number)}},
        "spec": {
            "restartPolicy": "Never",
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "busybox:1"}],
        },
    }


def create(asked: dict[str, Any]) -> None:
    """Create what is lacking of the gang, once there is room for all of that."""
    configuration = find_place(None, asked["kubeconfig"], None, None).configuration
    namespace = asked["namespace"]
    with GatedApiClient(configuration) as api:
        core: Any = client.CoreV1Api(api)
        living = core.list_namespaced_pod(namespace, label_selector="sort=member").items
        there = {int(pod.metadata.labels[LABEL]) for pod in living}
        lacking = [member(number) for number in range(asked["members"]) if number not in there]
        say("waits")
        whole = gang(core, lacking, namespace=namespace, timeout=asked["timeout"]) if lacking else nullcontext()
        with whole as admitted:
            say(f"whole {admitted is None or admitted.whole}")
            for number in range(asked["members"]):
                with waiting(key=f"member-{number}", timeout=asked["timeout"]):
                    core.create_namespaced_pod(namespace, member(number))
                say(str(number))
                if number + 1 == asked["pause_after"]:
                    sys.stdin.readline()  # until it is killed


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    create(json.loads(sys.argv[1]))
