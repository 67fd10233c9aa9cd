"""The clients that a replay compares, and a run of one of them with its result counted at the server.

The same clients run on a simulated cluster in virtual time and on one over real HTTP; ``place`` waits, in the loop's
time, until the pod is created. ``factor`` divides every duration of a client's own schedule, as it does those of the
workload.

The ancestor's back-off has the rules of Flyte 1, including its defects, but not its code.
It follows ``flytepropeller/pkg/controller/nodes/task/backoff`` of flyteorg/flyte v1.16.8 (``handler.go``,
``safe_resourcelist.go``) with its default settings: base 2, cap 20 s, each task re-evaluated every 10 s. Kept on
purpose: the regular expression that reads only limits, ``>=`` against ceilings, ``Value()`` rounding when a ceiling
is lowered, a timer that still blocks at the instant of its end, a reset of everything by any success, no jitter, and
one handler per kind and namespace.

One defect is left out in its favour: its plugin manager fails a task for good if it requests *exactly* the quota. Such
pods would be lost here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from backoff_ctrl.engine.errors import BackoffError
from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.gangs import gang_of
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.kube.answers.answer import Answer

from .reference import measure
from .virtual_time import NANO, QuotaAdmission, Record, Usage, run_virtual
from .workload import Pod, Workload

CLIENTS: Final = ("plain", "ancestor", "gate_learning", "gate_observing")
RETRIED: Final = frozenset({403, 409, 429, 500, 502, 503, 504})
"""409: admission lost a race for the quota object, or, rarely, a generated name is taken."""
PAUSE_MAX: Final = 60.0  # seconds; of plain retries
REEVALUATION: Final = 10.0  # seconds; the ancestor's workflow-reeval: how often a waiting task is tried again
INFINITE: Final = parse_quantity("1Ei")
SCHEDULE: Final = (
    "base", "cap", "overtaken_for_max", "overtaken_at_most", "keep_stalled", "age_step", "never_confirm", "never_probe",
)  # fmt: skip
"""The policy's durations that belong to the gate's schedule. The others depend on the server's latencies, which do not
shrink when a workload is replayed faster.
"""

# handler.go, requestedLimitsRegexp; the unescaped dot is theirs.
_REQUESTED_LIMITS: Final = re.compile(r"requested: (limits.[a-zA-Z]+=[a-zA-Z0-9]+[,]*)+")


class Cluster(Protocol):
    """Where pods are created: simulated, or over HTTP."""

    async def create(self, namespace: str, body: dict[str, Any]) -> Answer:
        """Answer one POST of a pod."""

    async def look_up(self, namespace: str, name: str) -> Answer:
        """Answer one GET of a pod."""

    def observe(self, ledger: Ledger) -> None:
        """Let a ledger observe the quotas from now on."""


class Client(ABC):
    """A way to create pods in a cluster whose quota may be full."""

    @abstractmethod
    async def place(self, pod: Pod) -> None:
        """Return when the pod has been created. Raises ``RuntimeError`` for an answer that retries can't help."""

    async def place_gang(self, pods: Sequence[Pod]) -> None:
        """Create the members one after the other, and keep what there is: half gangs, too."""
        for pod in pods:
            await self.place(pod)


def make_client(name: str, cluster: Cluster, *, seed: int, factor: float = 1.0, policy: Policy | None = None) -> Client:
    """Make a client. ``policy``: the gate's, which ``factor`` makes faster."""
    match name:
        case "plain" | "proxy":
            return Plain(cluster, seed=seed, factor=factor)
        case "ancestor":
            return Ancestor(cluster, factor=factor)
        case "gate_learning" | "gate_observing":
            observe = cluster.observe if name == "gate_observing" else None
            return Gated(cluster, seed=seed, policy=faster(policy or Policy(), factor), observe=observe)
        case _:
            raise ValueError(f"there is no client named {name!r}")


class Plain(Client):
    """A plain retry loop per pod, with the pauses of tenacity's ``wait_random_exponential(multiplier=1, max=60)``."""

    def __init__(self, cluster: Cluster, *, seed: int, factor: float = 1.0) -> None:
        self._cluster = cluster
        self._factor = factor
        self._rng = random.Random(f"plain {seed}")

    async def place(self, pod: Pod) -> None:
        body = pod.manifest()
        pause = 1.0
        while (answer := await self._cluster.create(pod.namespace, body)).status in RETRIED:
            await asyncio.sleep(self._rng.uniform(0, pause / self._factor))
            pause = min(PAUSE_MAX, pause * 2)
        check(answer)


class Gated(Client):
    """Sends each pod's create through one gate, the real one. ``observe`` lets the gate observe the quotas, too."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        seed: int,
        policy: Policy | None = None,
        observe: Callable[[Ledger], None] | None = None,
    ) -> None:
        self.gate = AsyncGate(policy=policy, rng=random.Random(f"gate {seed}"))
        self.gate.ledger.notices.without_minutes()
        self._cluster = cluster
        self._observe = observe

    def start(self) -> None:
        """Begin to observe, if wanted; otherwise the first pod begins it."""
        observe, self._observe = self._observe, None
        if observe is not None:
            observe(self.gate.ledger)

    async def place(self, pod: Pod) -> None:
        self.start()
        check(await self.gate.create(_creation_of(pod), Transport(self._cluster, pod.namespace)))

    async def place_gang(self, pods: Sequence[Pod]) -> None:
        """Wait in line until the whole gang is admitted, then create its members at once."""
        self.start()
        first = pods[0]
        transport = Transport(self._cluster, first.namespace)
        members = [(pod.manifest(), 1) for pod in pods]
        asked = gang_of(first.namespace, members, name=f"gang-of-{first.name}", server="replay", credential="replay")
        async with self.gate.gang(asked, transport) as gang:
            for answer in await asyncio.gather(*(gang.create(_creation_of(pod), transport) for pod in pods)):
                check(answer)

    def check_open(self) -> None:
        """Raise ``RuntimeError`` if the gate failed open."""
        if self.gate.counts.failed_open:
            raise RuntimeError(f"the gate failed open {self.gate.counts.failed_open} times: see the log")


def _creation_of(pod: Pod) -> Creation:
    return Creation(server="replay", credential="replay", namespace=pod.namespace, resource="pods", body=pod.manifest())


@dataclass(frozen=True, slots=True)
class Transport:
    """Sends creates to a namespace of the cluster."""

    cluster: Cluster
    namespace: str

    async def send(self, body: dict[str, Any]) -> Answer:
        return await self.cluster.create(self.namespace, body)

    async def look_up(self, name: str) -> Answer:
        return await self.cluster.look_up(self.namespace, name)


def faster(policy: Policy, factor: float) -> Policy:
    """Return the policy with every duration in ``SCHEDULE`` divided by ``factor``."""
    return dataclasses.replace(policy, **{name: getattr(policy, name) / factor for name in SCHEDULE})


def check(answer: Answer) -> None:
    """Raise ``RuntimeError`` for an answer that is not a 201."""
    if answer.status != 201:
        raise RuntimeError(f"the server answered {answer.status}: {answer.body[:200]!r}")


# -- the ancestor ---------


class Ancestor(Client):
    """The ancestor's algorithm: one back-off per namespace, and each waiting task is tried again every 10 s."""

    def __init__(self, cluster: Cluster, *, factor: float = 1.0) -> None:
        self._cluster = cluster
        self._factor = factor
        self._backoffs: dict[str, Backoff] = {}

    async def place(self, pod: Pod) -> None:
        loop = asyncio.get_running_loop()
        body = pod.manifest()
        [container] = body["spec"]["containers"]
        limits = {name: parse_quantity(amount) for name, amount in container["resources"]["limits"].items()}
        backoff = self._backoffs.setdefault(pod.namespace, Backoff(loop.time(), unit=1 / self._factor))
        while True:
            was_blocking = backoff.blocks(loop.time())
            if backoff.tries(limits, loop.time()):
                answer = await self._cluster.create(pod.namespace, body)
                if answer.status not in RETRIED:
                    check(answer)
                    return backoff.succeeded(loop.time())
                message = json.loads(answer.body)["message"] if answer.status == 403 else ""
                backoff.refused(message, was_blocking, loop.time())
            await asyncio.sleep(REEVALUATION / self._factor)


@dataclass(slots=True)
class Backoff:
    """``ComputeResourceAwareBackOffHandler``: the timer and the ceilings of one kind and namespace. Seconds."""

    next_eligible: float
    base: float = 2.0
    cap: float = 20.0
    unit: float = 1.0  # length of one "second": shorter when the replay is faster than the trace
    exponent: int = 0
    ceilings: dict[str, int] = field(default_factory=dict)  # nano-units by name without "limits."

    def blocks(self, now: float) -> bool:
        """Return whether the timer still blocks; it does at the very instant of its end."""
        return not self.next_eligible < now

    def tries(self, limits: Mapping[str, int], now: float) -> bool:
        """Return whether the create is sent: if the timer is over, or every amount is below its ceiling."""
        below = (amount < self.ceilings.get(name, INFINITE + 1) for name, amount in limits.items())
        return not self.blocks(now) or all(below)

    def succeeded(self, now: float) -> None:
        """Reset the timer, which still blocks at this very instant, and all ceilings."""
        self.exponent, self.next_eligible = 0, now
        self.ceilings = dict.fromkeys(self.ceilings, INFINITE)

    def refused(self, message: str, was_blocking: bool, now: float) -> None:
        """Learn from a quota 403. The timer advances unless it was blocking when the create was sent."""
        if not was_blocking:
            self.back_off(now)
        for name, amount in requested_limits(message).items():
            known = self.ceilings.get(name)
            if known is None or _value(amount) < _value(known):
                self.ceilings[name] = amount

    def back_off(self, now: float) -> float:
        """Block for base^exponent, at most the cap; the exponent stops growing once the cap is passed."""
        delay = self.base**self.exponent
        if delay > self.cap:
            delay = self.cap
        else:
            self.exponent += 1
        self.next_eligible = now + delay * self.unit
        return delay


def requested_limits(message: str) -> dict[str, int]:
    """Parse what the ancestor parses: the ``limits.X=N`` directly after ``requested: ``."""
    match = _REQUESTED_LIMITS.search(message)
    if match is None:
        return {}
    amounts: dict[str, int] = {}
    for chunk in match.group(0).split(":", 1)[1].split(","):
        name, _, amount = chunk.partition(".")[2].partition("=")
        if name:
            amounts[name] = parse_quantity(amount)
    return amounts


def _value(amount: int) -> int:
    """Quantity.Value(): whole units, rounded up."""
    return -(-amount // NANO)


# -- a run ---------


class ReplayError(BackoffError, RuntimeError):
    """A pod could not be created: the cluster was unreachable or gave an unexpected answer."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run. Times are seconds of the trace."""

    creates_sent: int
    refused: int
    admitted: int
    lost: int
    duplicated: int
    makespan_s: float
    wait_p50_s: float
    wait_p95_s: float

    @property
    def refused_per_admitted(self) -> float:
        """The number of 403s per admitted pod."""
        return self.refused / max(1, self.admitted)


@dataclass(frozen=True, slots=True)
class Run:
    """One client's run on a workload. Times are seconds of the trace; ``admitted_at`` is by the row's name."""

    client: str
    result: Result
    usage: Usage
    admitted_at: Mapping[str, float]


def tally(workload: Workload, record: Record) -> dict[str, int]:
    """Count creates and pods: those never admitted are lost, further admissions of a pod are duplicates."""
    return {
        "creates_sent": record.creates,
        "refused": record.refused,
        "admitted": record.admitted.total(),
        "lost": sum(pod.name not in record.admitted for pod in workload.pods),
        "duplicated": sum(times - 1 for times in record.admitted.values()),
    }


def result_of(client: str, workload: Workload, record: Record) -> Run:
    """Make the result of a run whose record has times of the trace, from the first arrival on."""
    measured = measure(workload, record.admitted_at)
    return Run(client, Result(**tally(workload, record), **measured._asdict()), record.usage, record.admitted_at)


async def replay(workload: Workload, client: Client, on_placed: Callable[[], object] = lambda: None) -> None:
    """Let every pod and gang arrive at its time, and return when all are created.

    Raises ``ReplayError`` from the first error, which ends the run.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def arrive(pods: Sequence[Pod]) -> None:
        await asyncio.sleep(began + pods[0].arrival - loop.time())
        await (client.place(pods[0]) if len(pods) == 1 else client.place_gang(pods))
        on_placed()

    try:
        async with asyncio.TaskGroup() as group:
            for unit in workload.units:
                group.create_task(arrive(unit), name=unit[0].name)
    except ExceptionGroup as errors:
        first = errors.exceptions[0]
        raise ReplayError(f"the replay ended early: {type(first).__name__}: {first}") from first


def run_in_virtual_time(workload: Workload, name: str, make: Callable[..., Client] | None = None) -> Run:
    """Run a client in virtual time: the one of that name, or what ``make`` makes of a cluster and ``seed=``.

    Raises ``RuntimeError`` if the gate failed open.
    """

    async def main() -> Record:
        cluster = QuotaAdmission(workload)
        client = (make or partial(make_client, name))(cluster, seed=workload.seed)
        await replay(workload, client)
        if isinstance(client, Gated):
            client.check_open()
        return cluster.record

    return result_of(name, workload, run_virtual(main()))
