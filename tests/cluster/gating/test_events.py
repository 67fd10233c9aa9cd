"""Kubernetes events about waiting creates: on the objects where people look, and valid on a strict server"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes import client as sync

from backoff_ctrl.k8s.gate.aio import AsyncGate, Gate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.events.correlator import Limits, Reason, Report
from backoff_ctrl.k8s.gate.events.sender import EventSender
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.servers import Server
from tests.cluster.kubectl.terminals import Terminal
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import Api
from tests.kit.aio_configuration import aio_configuration
from tests.kit.official import aio
from tests.kit.patience import PATIENCE

JSON = dict[str, Any]
QUICK = Limits(first_patch=0.2, namespace_burst=4, kept_share=0.5, namespace_rate=2)
"""A small burst, and delays short enough for a test."""


def configuration(server: Server, user: str = "tester") -> Any:
    return find_place(None, str(server.kubeconfig(user)), None, None).configuration


def pod(owner: JSON | None = None, prefix: str = "p-") -> Any:
    references = [] if owner is None else [reference_to(owner)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": prefix, "ownerReferences": references},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


def reference_to(owner: JSON) -> JSON:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}


def events_at(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def of_reason(listed: JSON, reason: str, count: int = 1) -> list[JSON]:
    """The events with this reason whose series counts at least ``count``."""
    return [
        event
        for event in listed["items"]
        if event["reason"] == reason and (event.get("series") or {"count": 1})["count"] >= count
    ]


@contextmanager
def telling(server: Server, limits: Limits = QUICK, user: str = "tester") -> Iterator[EventSender]:
    sender = EventSender(configuration(server, user), limits=limits)
    try:
        yield sender
    finally:
        sender.finish()


def waits(namespace: str, owner: Owner | None = None, note: str = "pods p waits") -> Report:
    return Report(Reason.WAITS, namespace, owner, "q", "pods", lambda: note)


class Creating:
    """Creates of pods, each in its own thread."""

    def __init__(self, core: Any, namespace: str) -> None:
        self._core = core
        self._namespace = namespace
        self._ends: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def begin(self, body: Any) -> None:
        threading.Thread(target=self._create, args=(body,)).start()

    def _create(self, body: Any) -> None:
        try:
            self._ends.put(self._core.create_namespaced_pod(self._namespace, body).metadata.name)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self._ends.put(error)

    async def next(self) -> Any:
        """The name of the next created pod, or the error of a failed create."""
        return await asyncio.to_thread(self._ends.get, timeout=PATIENCE)


@pytest.mark.long
async def test_the_owner_gets_an_event_when_its_pod_waits_and_when_it_is_admitted(
    server: Server, api: Api, room: Room, namespace: str
) -> None:
    """A Warning `WaitingForQuota` with quota, resource, amounts and place in line; then `Admitted` with the wait."""
    await room.quota("q", {"pods": "1"})
    first = await room.create("pods", pod())
    owner = await room.create("configmaps", {"metadata": {"name": "train"}})
    with GatedApiClient(configuration(server), gate=Gate(), events=True) as client:
        creating = Creating(sync.CoreV1Api(client), namespace)
        creating.begin(pod(owner))
        listed = await api.until(events_at(namespace), lambda found: of_reason(found, "WaitingForQuota"))
        await room.delete("pods", first["metadata"]["name"], gracePeriodSeconds="0")
        name = await creating.next()
        listed = await api.until(events_at(namespace), lambda found: of_reason(found, "Admitted"))

    (event,) = of_reason(listed, "WaitingForQuota")
    about = {**reference_to(owner), "namespace": namespace}
    assert event["regarding"] == about
    assert event["type"] == "Warning"
    assert event["note"] == (
        "pods p-* is waiting: it requests pods=1, but quota q has 0 of 1 left. "
        "It will be created when there is room (place 1 in line)."
    )
    assert event["reportingController"] == "backoff-ctrl.dev/gate"
    (event,) = of_reason(listed, "Admitted")
    assert (event["regarding"], event["type"]) == (about, "Normal")
    assert event["note"].startswith("pods p-* was created after waiting ")
    assert event["note"].endswith(" s for pods in quota q")
    assert isinstance(name, str), name


@pytest.mark.long
async def test_an_asynchronous_client_writes_events_too(server: Server, api: Api, room: Room, namespace: str) -> None:
    """With the same argument as the synchronous one; the events are sent from another event loop."""
    await room.quota("q", {"pods": "1"})
    first = await room.create("pods", pod())
    given = aio_configuration(configuration(server))
    async with AsyncGatedApiClient(given, gate=AsyncGate(), events=True) as client:
        core: Any = aio.CoreV1Api(client)
        creating = asyncio.ensure_future(core.create_namespaced_pod(namespace, pod()))
        await api.until(events_at(namespace), lambda found: of_reason(found, "WaitingForQuota"))
        await room.delete("pods", first["metadata"]["name"], gracePeriodSeconds="0")
        await creating
        await api.until(events_at(namespace), lambda found: of_reason(found, "Admitted"))


@pytest.mark.parametrize("owner", ["Not A Name", "x" * 253, "a.b-", "ein-ö"])
async def test_any_owner_and_any_note_make_a_valid_event(server: Server, api: Api, namespace: str, owner: str) -> None:
    """The server accepts the event with any name of the owner and a note of any length."""
    with telling(server) as sender:
        sender.report(waits(namespace, Owner("v1", "ConfigMap", owner), note="ö" * 2000))
        listed = await api.until(events_at(namespace), lambda found: of_reason(found, "WaitingForQuota"))
    assert listed["items"][0]["regarding"]["name"] == owner
    assert sender.counts.errors == 0


async def test_kubectl_shows_them(kubernetes: Server, binaries: Binaries, real_api: Api, real_namespace: str) -> None:
    """`kubectl get events` and `kubectl events --for` print when, how often, what and why."""
    with telling(kubernetes) as sender:
        sender.report(waits(real_namespace, Owner("v1", "ConfigMap", "train", "uid"), note="pods p-* waits"))
        sender.report(waits(real_namespace, Owner("v1", "ConfigMap", "train", "uid")))
        await real_api.until(events_at(real_namespace), lambda found: of_reason(found, "WaitingForQuota", 2))
    terminal = Terminal(kubernetes, binaries.kubectl, real_namespace)
    said = await asyncio.to_thread(terminal.run, "get", "events", "--no-headers")
    assert said.out.split()[1:] == ["Warning", "WaitingForQuota", "configmap/train", "pods", "p-*", "waits"]
    assert "<unknown>" not in said.out
    said = await asyncio.to_thread(terminal.run, "events", "--for", "configmap/train", "--no-headers")
    assert "(x2 over" in said.out
    seen = json.loads((await asyncio.to_thread(terminal.run, "get", "events", "-o", "json")).out)
    assert seen["items"][0]["reportingComponent"] == "backoff-ctrl.dev/gate"
