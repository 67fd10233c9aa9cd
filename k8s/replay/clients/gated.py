"""The gate as a client of a replay: the real ``AsyncGate`` and engine, on a simulated or a real cluster."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any, Final, Protocol

from backoff_ctrl.engine.demand import Selector
from backoff_ctrl.engine.quotas import ObservedQuota
from backoff_ctrl.k8s.creates.conversation import Creation
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.replay.workload import QUOTA_NAME

from .plain import Cluster, check

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.engine.policy import Policy
    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.gate.ledger import Ledger
    from backoff_ctrl.k8s.gate.life import AsyncTransport
    from backoff_ctrl.k8s.replay.admission import Quota, QuotaAdmission
    from backoff_ctrl.k8s.replay.workload import Pod

SCHEDULE: Final = (
    "base", "cap", "overtaken_for_max", "keep_stalled", "age_step", "never_confirm", "never_probe",
)  # fmt: skip
"""The policy's durations that belong to the gate's schedule. The others depend on the server's latencies, which do not
shrink when a workload is replayed faster.
"""


class LookingUp(Cluster, Protocol):
    """A cluster where a pod can be looked up by name."""

    async def look_up(self, namespace: str, name: str) -> Answer:
        """Answer one GET of a pod."""
        ...


class Gated:
    """Sends each pod's create through one gate. ``observe`` makes the gate observe the quotas, too."""

    def __init__(
        self,
        cluster: LookingUp,
        *,
        seed: int,
        policy: Policy | None = None,
        observe: Callable[[Ledger], None] | None = None,
    ) -> None:
        self.gate = AsyncGate(policy=policy, rng=random.Random(f"gate {seed}"))
        self.gate.ledger.notices.without_minutes()
        self.observes = observe is not None
        self._cluster = cluster
        self._observe = observe

    def start(self) -> None:
        """Begin to observe, if wanted; otherwise the first pod begins it."""
        observe, self._observe = self._observe, None
        if observe is not None:
            observe(self.gate.ledger)

    async def place(self, pod: Pod) -> None:
        """Wait in line until the pod is created."""
        self.start()
        check(await self.gate.create(self.creation(pod), self.transport(pod.namespace)))

    @staticmethod
    def creation(pod: Pod) -> Creation:
        """Describe a pod's create to the gate."""
        return Creation(
            server="replay",
            credential="replay",
            namespace=pod.namespace,
            resource="pods",
            body=pod.manifest(),
        )

    def transport(self, namespace: str) -> AsyncTransport:
        """Return what sends creates to the cluster."""
        return _Transport(self._cluster, namespace)


class _Transport:
    """Sends one create to the cluster."""

    def __init__(self, cluster: LookingUp, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    async def send(self, body: dict[str, Any]) -> Answer:
        return await self._cluster.create(self._namespace, body)

    async def look_up(self, name: str) -> Answer:
        return await self._cluster.look_up(self._namespace, name)


def observing(cluster: QuotaAdmission) -> Callable[[Ledger], None]:
    """Return what makes a ledger observe the simulated quotas: a list first, then every watch event."""

    def observe(ledger: Ledger) -> None:
        def seen(quota: Quota) -> None:
            hard = dict(quota.hard)
            told = ObservedQuota(spec=hard, hard=hard, used=dict(quota.used), selector=Selector())
            ledger.observe_quota(quota.namespace, QUOTA_NAME, told)

        cluster.watch(seen)
        ledger.watching(None)

    return observe


def faster(policy: Policy, factor: float) -> Policy:
    """Return the policy with every duration in ``SCHEDULE`` divided by ``factor``."""
    return dataclasses.replace(policy, **{name: getattr(policy, name) / factor for name in SCHEDULE})
