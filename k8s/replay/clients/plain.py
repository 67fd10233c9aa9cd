"""Plain retries and the ancestor as clients of a replay. ``place`` waits, in the loop's time, until the pod is created.

The same code runs on a simulated ``Cluster`` in virtual time and on one over real HTTP. ``factor`` divides every
duration of a client's own schedule, as it does those of the workload.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any, Final, Protocol

import tenacity

from backoff_ctrl.engine.quantities import parse_quantity

from .ancestor import Blocker, Handler

if TYPE_CHECKING:
    from backoff_ctrl.k8s.answers.answer import Answer
    from backoff_ctrl.k8s.replay.workload import Pod

_AGAIN: Final = frozenset({403, 409, 429, 500, 502, 503, 504})
"""409: admission lost a race for the quota object, or, rarely, a generated name is taken."""
REEVALUATION: Final = 10.0  # seconds; the ancestor's workflow-reeval: how often a waiting task is tried again


class Cluster(Protocol):
    """Where pods are created."""

    async def create(self, namespace: str, body: dict[str, Any]) -> Answer:
        """Answer one POST of a pod."""
        ...


class Client(Protocol):
    """A way to create pods in a cluster whose quota may be full."""

    async def place(self, pod: Pod) -> None:
        """Return when the pod has been created. Raises ``RuntimeError`` for an answer that retries can't help."""
        ...


class _Jitter(tenacity.wait_random_exponential):
    """tenacity's rule with a given source of randomness, so that a replay can be repeated."""

    def __init__(self, factor: float, rng: random.Random) -> None:
        super().__init__(multiplier=1 / factor, max=60 / factor)
        self._rng = rng

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        """Draw uniform(0, min(60, 2^n)) seconds, divided by the factor."""
        return self._rng.uniform(self.min, tenacity.wait_exponential.__call__(self, retry_state))


class Plain:
    """A plain retry loop per pod: tenacity's ``wait_random_exponential(multiplier=1, max=60)``, without a limit."""

    def __init__(self, cluster: Cluster, *, seed: int, factor: float = 1.0) -> None:
        self._cluster = cluster
        self._jitter = _Jitter(factor, random.Random(f"plain {seed}"))

    async def place(self, pod: Pod) -> None:
        """Send the create until it succeeds."""
        body = pod.manifest()
        retrying = tenacity.AsyncRetrying(
            wait=self._jitter, retry=tenacity.retry_if_result(_refused), sleep=asyncio.sleep
        )
        check(await retrying(self._cluster.create, pod.namespace, body))


class Ancestor:
    """The ancestor's algorithm: one handler per namespace, and each waiting task is tried again every 10 s."""

    def __init__(self, cluster: Cluster, *, factor: float = 1.0) -> None:
        self._cluster = cluster
        self._factor = factor
        self._handlers: dict[str, Handler] = {}

    async def place(self, pod: Pod) -> None:
        """Try the task again until its pod is created."""
        loop = asyncio.get_running_loop()
        body = pod.manifest()
        limits = _limits_of(body)
        handler = self._handlers.setdefault(pod.namespace, Handler(Blocker(loop.time(), unit=1 / self._factor)))
        while True:
            was_blocking = handler.blocker.blocks(loop.time())
            if handler.tries(limits, loop.time()):
                answer = await self._cluster.create(pod.namespace, body)
                if not _refused(answer):
                    check(answer)
                    handler.succeeded(loop.time())
                    return
                message = json.loads(answer.body)["message"] if answer.status == 403 else ""
                handler.refused(message, was_blocking, loop.time())
            await asyncio.sleep(REEVALUATION / self._factor)


def _limits_of(body: dict[str, Any]) -> dict[str, int]:
    [container] = body["spec"]["containers"]
    return {name: parse_quantity(amount) for name, amount in container["resources"]["limits"].items()}


def _refused(answer: Answer) -> bool:
    """Say whether to retry: the quota is full, or it is an error of a busy server."""
    return answer.status in _AGAIN


def check(answer: Answer) -> None:
    """Raise ``RuntimeError`` for an answer that is not a 201."""
    if answer.status != 201:
        raise RuntimeError(f"the server answered {answer.status}: {answer.body[:200]!r}")
