"""A Job of parallelism 8 as a gang on a real Kubernetes: the Job controller makes its pods from what is reserved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from backoff_ctrl import GateClosed, GatedApiClient, gang, waiting
from backoff_ctrl.k8s.gate.clients.threads import ThreadTransport
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.gangs import gang_of
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from tests.cluster.control_plane.servers import Server
from tests.cluster.custom_kinds import define_operators_kind
from tests.cluster.objects import made, of_group, pod
from tests.cluster.talking import Api

pytestmark = pytest.mark.long

HARD, MEMBERS, RIVALS = 10, 8, 6
DOUBLE_MAX: Final = 5.0
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


Admit = Callable[[GatedApiClient, str, dict[str, Any]], AbstractContextManager[tuple[Any, Callable[[], Any]]]]


@contextmanager
def labelled(api: GatedApiClient, namespace: str, manifest: dict[str, Any]) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """Admit the gang of a Job through the client, which adds the gang's label to what is created."""
    batch = client.BatchV1Api(api)
    with gang(batch, [manifest], namespace=namespace, timeout=60) as admitted:
        yield admitted, lambda: batch.create_namespaced_job(namespace, manifest)  # type: ignore[arg-type]


@contextmanager
def unlabelled(
    api: GatedApiClient, namespace: str, manifest: dict[str, Any]
) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """Admit a gang at the gate itself: what it creates is sent as it is, so its pods are known by their owners."""
    group = manifest["apiVersion"]
    plural = f"{manifest['kind'].lower()}s"
    host, settings = api.configuration.host, api.configuration.auth_settings()
    headers = {**api.default_headers, "Accept": "application/json", "authorization": settings["BearerToken"]["value"]}
    way = ThreadTransport(api, namespace, f"{host}{of_group(group, namespace, plural)}", headers, None)
    creation = Creation(host, "me", namespace, f"{plural}.{group.partition('/')[0]}", manifest)
    with api.gate.gang(gang_of(namespace, [(manifest, 1)], server=host, timeout=60), way) as admitted:
        yield admitted, lambda: admitted.create(creation, way)


@pytest.mark.parametrize("admit", [labelled, unlabelled])
async def test_the_pods_of_a_job_take_their_room_from_what_is_reserved(
    kubernetes: Server, real_api: Api, real_namespace: str, admit: Admit
) -> None:
    """Creates that wait beside it get the two that are left, and none of the eight: not before, nor in the moment of
    change. No pod of the Job is refused. What is reserved is charged then, and counted once.
    """
    await limited(real_api, real_namespace)
    base = f"/api/v1/namespaces/{real_namespace}"
    configuration = find_place(None, str(kubernetes.kubeconfig("tester")), None, None).configuration
    with GatedApiClient(configuration) as api:
        rivals = await asyncio.to_thread(run, api, real_namespace, admit)
        found = await real_api.until(f"{base}/pods", lambda pods: len(of_job(pods)) == MEMBERS)
        await real_api.until(f"{base}/resourcequotas/q", lambda q: q["status"]["used"]["pods"] == str(HARD))
        await asyncio.to_thread(settled, api, real_namespace)
        others = [each for each in found["items"] if not each["metadata"].get("ownerReferences")]
        assert len(others) == HARD - MEMBERS
        with_label = [each for each in of_job(found) if "backoff-ctrl.dev/gang" in each["metadata"]["labels"]]
        assert len(with_label) == (MEMBERS if admit is labelled else 0)
        events = (await real_api.get(f"{base}/events")).json["items"]
        assert not [each["message"] for each in events if each["reason"] == "FailedCreate"]
        api.gate.cancel_own("the test is over")
        for rival in rivals:
            await asyncio.to_thread(rival.join, 30)


async def limited(api: Api, namespace: str) -> None:
    """Create the quota, and wait until it holds."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    made(await api.post(path, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": str(HARD)}}}))
    await api.until(f"{path}/q", lambda q: q.get("status", {}).get("used", {}).get("pods") == "0")


def run(api: GatedApiClient, namespace: str, admit: Admit) -> list[threading.Thread]:
    """Admit the gang, let others press, then create the Job."""
    core = client.CoreV1Api(api)

    def press(number: int) -> None:
        try:
            with waiting(timeout=60):
                core.create_namespaced_pod(namespace, pod(f"rival-{number}"))  # type: ignore[arg-type]
        except (ApiException, GateClosed):  # at the end of the test
            return

    rivals = [threading.Thread(target=press, args=(number,)) for number in range(RIVALS)]
    with admit(api, namespace, job("whole")) as (admitted, create):
        assert (admitted.whole, admitted.undrawn) == (True, MEMBERS + 1)
        for rival in rivals:
            rival.start()
        while len(api.gate.waiting_now()) < RIVALS - (HARD - MEMBERS):
            rivals[0].join(0.02)
        create()
        assert admitted.drawn >= 1
    return rivals


def settled(api: GatedApiClient, namespace: str, used: int = HARD) -> None:
    """Wait until nothing is reserved and nothing counts twice: soon."""
    nobody = threading.Event()
    seen: object = None
    for _ in range(int(DOUBLE_MAX / 0.02)):
        seen = ceiling = api.gate.ledger.snapshot().namespaces[namespace].quotas["q"]["pods"]
        if (ceiling.reserved, ceiling.held, ceiling.used) == (0, 0, used * 10**9):
            return
        nobody.wait(0.02)
    raise AssertionError(f"after {DOUBLE_MAX} s: {seen}")


JOB_SETS: Final = "jobset.x-k8s.io/v1alpha2"


async def test_pods_behind_a_chain_of_owners_are_known(kubernetes: Server, real_api: Api, real_namespace: str) -> None:
    """JobSet, Job, pods without label: the test is the JobSet's operator, and the Job controller makes the pods."""
    await limited(real_api, real_namespace)
    await define_operators_kind(real_api, "jobsets", of_group(JOB_SETS, real_namespace, "jobsets"))
    jobs = [{"name": "workers", "replicas": 1, "template": {"spec": job("")["spec"]}}]
    job_set = {"apiVersion": JOB_SETS, "kind": "JobSet", "metadata": {"name": "set"}, "spec": {"replicatedJobs": jobs}}
    configuration = find_place(None, str(kubernetes.kubeconfig("tester")), None, None).configuration

    def work(api: GatedApiClient) -> tuple[Any, dict[str, Any]]:
        with unlabelled(api, real_namespace, job_set) as (admitted, create):
            return admitted, create().json()

    with GatedApiClient(configuration) as api:
        admitted, stored = await asyncio.to_thread(work, api)
        assert admitted.undrawn == MEMBERS + 2  # the pods, and the JobSet's Job and Service
        metadata = {"name": "set-workers", "ownerReferences": [reference_to(stored)]}
        made(await real_api.post(of_group("batch/v1", real_namespace, "jobs"), {**job(""), "metadata": metadata}))
        await real_api.until(f"/api/v1/namespaces/{real_namespace}/pods", lambda pods: len(of_job(pods)) == MEMBERS)
        await asyncio.to_thread(settled, api, real_namespace, MEMBERS)
        assert admitted.over


def reference_to(stored: dict[str, Any]) -> dict[str, Any]:
    """An entry of ``ownerReferences``, as a controller writes it."""
    metadata = stored["metadata"]
    named = {"name": metadata["name"], "uid": metadata["uid"]}
    return {"apiVersion": stored["apiVersion"], "kind": stored["kind"], **named, "controller": True}
