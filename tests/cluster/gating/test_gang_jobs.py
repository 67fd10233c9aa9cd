"""A Job of parallelism 8 as a gang on a real Kubernetes: the Job controller makes its pods from what is reserved."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from backoff_ctrl import GateClosed, GatedApiClient, gang, waiting
from backoff_ctrl.k8s.cluster.finding import find_place
from tests.cluster.objects import pod

if TYPE_CHECKING:
    from tests.cluster.control_plane.servers import Server
    from tests.cluster.talking import Api

pytestmark = pytest.mark.long

HARD, MEMBERS, RIVALS = 10, 8, 6
DOUBLE_MAX: Final = 1.0
"""Seconds for which a member may count twice."""


def job(name: str) -> dict[str, Any]:
    """A Job whose pods all run at once."""
    spec = {"containers": [{"name": "main", "image": "busybox:1"}], "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": MEMBERS, "completions": MEMBERS, "template": {"spec": spec}},
    }


def of_job(pods: Any) -> list[Any]:
    """Return the pods that the Job controller made."""
    return [each for each in pods["items"] if each["metadata"].get("ownerReferences")]


async def test_the_pods_of_a_job_take_their_room_from_what_is_reserved(
    kubernetes: Server, real_api: Api, real_namespace: str
) -> None:
    """Creates that wait beside it get the two that are left, and none of the eight: not before, nor in the moment of
    change. No pod of the Job is refused. What is reserved is charged then, and counted once.
    """
    base = f"/api/v1/namespaces/{real_namespace}"
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": str(HARD)}}}
    made = await real_api.post(f"{base}/resourcequotas", quota)
    assert made.status == 201, made.text
    await real_api.until(f"{base}/resourcequotas/q", lambda q: q.get("status", {}).get("used", {}).get("pods") == "0")
    configuration = find_place(None, str(kubernetes.kubeconfig("tester")), None, None).configuration
    with GatedApiClient(configuration) as api:
        rivals = await asyncio.to_thread(run, api, real_namespace)
        found = await real_api.until(f"{base}/pods", lambda pods: len(of_job(pods)) == MEMBERS)
        await real_api.until(f"{base}/resourcequotas/q", lambda q: q["status"]["used"]["pods"] == str(HARD))
        await asyncio.to_thread(settled, api, real_namespace)
        others = [each for each in found["items"] if not each["metadata"].get("ownerReferences")]
        assert len(others) == HARD - MEMBERS
        assert all(each["metadata"]["labels"]["backoff-ctrl.dev/gang"] for each in of_job(found))
        events = (await real_api.get(f"{base}/events")).json["items"]
        assert not [each["message"] for each in events if each["reason"] == "FailedCreate"]
        api.gate.cancel_own("the test is over")
        for rival in rivals:
            await asyncio.to_thread(rival.join, 30)


def run(api: GatedApiClient, namespace: str) -> list[threading.Thread]:
    """Admit the gang, let others press, then create the Job."""
    core, batch = client.CoreV1Api(api), client.BatchV1Api(api)

    def press(number: int) -> None:
        try:
            with waiting(timeout=60):
                core.create_namespaced_pod(namespace, pod(f"rival-{number}"))  # type: ignore[arg-type]
        except (ApiException, GateClosed):  # at the end of the test
            return

    rivals = [threading.Thread(target=press, args=(number,)) for number in range(RIVALS)]
    with gang(batch, [job("whole")], namespace=namespace, timeout=60) as admitted:
        assert (admitted.whole, admitted.undrawn) == (True, MEMBERS + 1)
        for rival in rivals:
            rival.start()
        while len(api.gate.waiting_now()) < RIVALS - (HARD - MEMBERS):
            rivals[0].join(0.02)
        batch.create_namespaced_job(namespace, job("whole"))  # type: ignore[arg-type]
        assert admitted.drawn >= 1
    return rivals


def settled(api: GatedApiClient, namespace: str) -> None:
    """Wait until nothing is reserved and nothing counts twice: soon."""
    nobody = threading.Event()
    seen: object = None
    for _ in range(int(DOUBLE_MAX / 0.02)):
        seen = ceiling = api.gate.ledger.snapshot().namespaces[namespace].quotas["q"]["pods"]
        if (ceiling.reserved, ceiling.held, ceiling.used) == (0, 0, HARD * 10**9):
            return
        nobody.wait(0.02)
    raise AssertionError(f"after {DOUBLE_MAX} s: {seen}")
