"""The clients that a workload is replayed through. Each waits until its pod is in; time is the running loop's.

They speak to a ``Cluster``, in memory on virtual time or over real HTTP: the same code runs on both. ``factor``
divides every duration of a client's own schedule, as the workload's durations were divided.
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
"""409: the quota's object was written by two at once (or, once in a while, a generated name is taken)."""
REEVALUATION: Final = 10.0  # seconds; the ancestor's workflow-reeval: a waiting task is looked at again


class Cluster(Protocol):
    """Where pods are created."""

    async def create(self, namespace: str, body: dict[str, Any]) -> Answer:
        """Answer one POST of a pod."""
        ...


class Client(Protocol):
    """A way to get a pod into a cluster whose quota may be full."""

    async def place(self, pod: Pod) -> None:
        """Return when the pod was created. Raises ``RuntimeError`` for an answer that no retry helps."""
        ...


class _Jitter(tenacity.wait_random_exponential):
    """tenacity's own rule, with a given source of randomness so that a replay can be repeated."""

    def __init__(self, factor: float, rng: random.Random) -> None:
        super().__init__(multiplier=1 / factor, max=60 / factor)
        self._rng = rng

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        """Draw uniform(0, min(60, 2^n)) seconds, over the factor."""
        return self._rng.uniform(self.min, tenacity.wait_exponential.__call__(self, retry_state))


class Plain:
    """A plain retry loop per pod: tenacity, ``wait_random_exponential(multiplier=1, max=60)``, no end."""

    def __init__(self, cluster: Cluster, *, seed: int, factor: float = 1.0) -> None:
        self._cluster = cluster
        self._jitter = _Jitter(factor, random.Random(f"plain {seed}"))

    async def place(self, pod: Pod) -> None:
        """Send until it is in."""
        body = pod.manifest()
        retrying = tenacity.AsyncRetrying(
            wait=self._jitter, retry=tenacity.retry_if_result(_refused), sleep=asyncio.sleep
        )
        check(await retrying(self._cluster.create, pod.namespace, body))


class Ancestor:
    """The ancestor's algorithm: a handler per namespace, each waiting task looked at again every 10 s."""

    def __init__(self, cluster: Cluster, *, factor: float = 1.0) -> None:
        self._cluster = cluster
        self._factor = factor
        self._handlers: dict[str, Handler] = {}

    async def place(self, pod: Pod) -> None:
        """Look at the task until its pod is in."""
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
    """Say whether it is sent again: a full quota, but also what a busy server answers now and then."""
    return answer.status in _AGAIN


def check(answer: Answer) -> None:
    """Raise ``RuntimeError`` for an answer that is not a 201."""
    if answer.status != 201:
        raise RuntimeError(f"the server answered {answer.status}: {answer.body[:200]!r}")
