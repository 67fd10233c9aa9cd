"""The demo's workload through the product's gated clients on a real server, measured at that server."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kubernetes import client

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate, Gate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.observing.hosted import HostedWatch
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.lab.replay.clients import faster
from backoff_ctrl.k8s.lab.replay.reference import bounds_of, measure
from backoff_ctrl.k8s.lab.replay.rooms import Rooms, set_apart
from backoff_ctrl.k8s.lab.replay.workload import PACKAGED, POD_LABEL, Pod, Workload, make_workload, read_trace
from backoff_ctrl.k8s.lab.sandbox.followed import Server as KubeletServer
from backoff_ctrl.k8s.lab.sandbox.kubelet import Kubelet
from tests.cluster.control_plane.servers import Server
from tests.cluster.talking import Api
from tests.kit.aio_configuration import aio_configuration
from tests.kit.official import aio
from tests.kit.patience import PATIENCE

OBSERVER: Final = "creator"  # the user who is allowed to watch quotas
_CREATES = re.compile(
    r'^apiserver_request_total\{code="(\d+)".*resource="pods".*subresource="".*verb="POST".*\} (\d+)$', re.MULTILINE
)


@dataclass(frozen=True)
class Figures:
    """What a run cost the server, and what became of its pods. Seconds are those of the trace."""

    answers: Counter[str]
    """Creates of pods by status code of the answer, as the API server counts them."""
    stored: Counter[str]
    """The number of pods for each row of the trace."""
    makespan: float
    reference: float
    failed_open: int

    @property
    def refused(self) -> int:
        return self.answers["403"]

    def line(self, title: str) -> str:
        pods = sum(self.stored.values())
        return (
            f"{title}: {pods} pods in with {sum(self.answers.values())} creates, {self.refused} refused "
            f"({self.refused / pods:.2f} per pod), makespan {self.makespan:,.0f} s, "
            f"{self.makespan / self.reference:.3f} of the reference"
        )


def slice_of_the_trace(pods: int, seed: int) -> Workload:
    return make_workload(read_trace(PACKAGED), pods=pods, seed=seed)


async def run_gated(server: Server, user: str, workload: Workload, factor: float, *, with_threads: bool) -> Figures:
    """Send the workload through a gated client as ``user``, with its durations divided by ``factor``.

    The user "tester" does the setup.

    The gate is wired like the one that clients share by default: if ``user`` is allowed to, it observes the quotas of
    a namespace from the moment a create has to wait there.
    """
    place = find_place(None, str(server.kubeconfig("tester")), None, None)
    rooms = await asyncio.to_thread(Rooms(place).__enter__)
    try:
        there, _ = await asyncio.to_thread(rooms.furnish, "gated", workload.faster(factor))
        async with Api(server) as api, AsyncExitStack() as kubelets:
            for namespace in there.quotas:
                at = KubeletServer(server.url, place.headers(), server.ssl())
                await kubelets.enter_async_context(Kubelet(at, namespace=namespace, starts=False))
            before = await creates(api)
            drive = (server, user, there, factor)
            went_in, failed_open = await (
                asyncio.to_thread(_with_threads, *drive) if with_threads else _on_loop(*drive)
            )
            answers = await creates(api)
            answers.subtract(before)
            stored: Counter[str] = Counter()
            for namespace in there.quotas:
                listed = (await api.get(f"/api/v1/namespaces/{namespace}/pods")).json
                stored.update(pod["metadata"]["labels"][POD_LABEL] for pod in listed["items"])
    finally:
        await asyncio.to_thread(rooms.__exit__, None, None, None)
    at_scale = {name: when * factor for name, when in went_in.items()}
    reference = bounds_of(workload).makespan_s
    return Figures(+answers, stored, measure(workload, at_scale).makespan_s, reference, failed_open)


async def creates(api: Api) -> Counter[str]:
    """How many creates of pods the API server has answered, by status code (without dry runs)."""
    text = (await api.get("/metrics", accept="text/plain")).text
    found: Counter[str] = Counter()
    for match in _CREATES.finditer(text):
        if 'dry_run="All"' not in match[0]:
            found[match[1]] += int(match[2])
    return found


def configuration_of(server: Server, user: str) -> client.Configuration:
    """The configuration of a client of this user, with enough connections."""
    made = find_place(None, str(server.kubeconfig(user)), None, None).configuration
    made.connection_pool_maxsize = 64
    return made


@contextmanager
def observed(
    gate: Gate | AsyncGate, configuration: client.Configuration, user: str, namespaces: Collection[str]
) -> Iterator[None]:
    """Wire the watch as clients that share a gate do; if the user may watch, the quotas are known when this yields.

    (By default the watch starts with the first create that waits, which takes a second: too long a part of a run that
    squeezes hours into seconds.)
    """
    watch = HostedWatch(gate.ledger, configuration)
    gate.ledger.subscribe(watch)
    for namespace in namespaces:
        watch.follow(namespace)
    deadline = time.monotonic() + PATIENCE
    while user == OBSERVER and not _sees(gate, namespaces):
        assert time.monotonic() < deadline, "the quotas were not seen"
        threading.Event().wait(0.02)
    try:
        yield
    finally:
        watch.stop()


def _sees(gate: Gate | AsyncGate, namespaces: Collection[str]) -> bool:
    found = gate.ledger.snapshot().namespaces
    return all(namespace in found and found[namespace].observing for namespace in namespaces)


def _with_threads(server: Server, user: str, workload: Workload, factor: float) -> tuple[dict[str, float], int]:
    """One thread per pod, as in a synchronous platform."""
    configuration = configuration_of(server, user)
    gate = Gate(policy=faster(Policy(), factor))
    went_in: dict[str, float] = {}
    never = threading.Event()
    with (
        observed(gate, configuration, user, workload.quotas),
        GatedApiClient(configuration, gate=gate) as made,
    ):
        core: Any = client.CoreV1Api(made)  # accepts plain objects too, despite its annotations
        began = time.monotonic()

        def place(pod: Pod) -> None:
            never.wait(max(0.0, began + pod.arrival - time.monotonic()))
            core.create_namespaced_pod(pod.namespace, set_apart(pod.manifest()))
            went_in[pod.name] = time.monotonic()

        with ThreadPoolExecutor(len(workload.pods)) as pool:
            for done in [pool.submit(place, pod) for pod in workload.pods]:
                done.result()
    return {name: when - began for name, when in went_in.items()}, gate.counts.failed_open


async def _on_loop(server: Server, user: str, workload: Workload, factor: float) -> tuple[dict[str, float], int]:
    configuration = configuration_of(server, user)
    gate = AsyncGate(policy=faster(Policy(), factor), clock=time.monotonic)
    went_in: dict[str, float] = {}
    with observed(gate, configuration, user, workload.quotas):
        async with AsyncGatedApiClient(aio_configuration(configuration), gate=gate) as made:
            core: Any = aio.CoreV1Api(made)
            began = time.monotonic()

            async def place(pod: Pod) -> None:
                await asyncio.sleep(began + pod.arrival - time.monotonic())
                await core.create_namespaced_pod(pod.namespace, set_apart(pod.manifest()))
                went_in[pod.name] = time.monotonic()

            async with asyncio.TaskGroup() as group:
                for pod in workload.pods:
                    group.create_task(place(pod))
    return {name: when - began for name, when in went_in.items()}, gate.counts.failed_open
