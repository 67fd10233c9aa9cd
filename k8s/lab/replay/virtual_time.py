"""Virtual time, and an API server's quota admission simulated in it.

``run_virtual`` runs a coroutine on an asyncio event loop that never waits; its clock jumps to the next timer instead.
Code runs on it unchanged: ``asyncio.sleep(600)`` returns at once and ``loop.time()`` has advanced by 600. There is no
I/O, only timers: a loop with neither a ready callback nor a timer would wait for ever and raises ``StuckError``. Runs
are deterministic: the same program runs in the same order.

``QuotaAdmission`` is an API server, a fake kubelet and the quota controller in memory, on the loop's clock. It computes
charges with its own code, not with the gate's footprint, and its answers have the bytes of an API server's, so that
parser and gate see what they would see on the wire. It behaves like the real admission in these points (Kubernetes
``plugin/resourcequota/controller.go``; the times are those of a quiet 1.36 server):

* Admission considers only the quota's ``status.used``, and writes the charge there before the object is stored, hence
  before the 201. That status is all that admission and the quota controller share.
* The watch event of a charge usually comes before the 201; for 1 % of creates it comes after.
* When a pod ends, its room is not released at once: the quota controller lowers ``status.used`` a moment later.
* After that the server's admission cache may lag behind the watch: for 3 % of releases a create that is sent
  immediately after the event is still refused, one that is sent 2 ms later is not.

Not simulated: a busy cluster's limit on writes of quota status, leaks, and the recount every 5 minutes.
"""

from __future__ import annotations

import asyncio
import json
import random
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from backoff_ctrl.engine.facts.quantities import format_quantity, parse_quantity
from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.kube.answers.answer import Answer

from .workload import POD_LABEL, QUOTA_NAME, RUN_SECONDS, Workload, in_nano

T = TypeVar("T")
Usage = list[tuple[float, str, dict[str, int]]]
"""When the use of a namespace's quota changed, and to what: nano-units by resource name."""

NANO: Final = 1_000_000_000
_JSON: Final = {"Content-Type": "application/json"}


class StuckError(RuntimeError):
    """Every task waits and no timer is set: in real time this program would hang."""


class _JumpingSelector(selectors.SelectSelector):
    """A selector that reports no I/O and advances the clock by the timeout instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StuckError("every task waits and no timer is set")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which starts at 0."""

    def __init__(self) -> None:
        self._virtual = _JumpingSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time. Raises ``StuckError`` if it would hang."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of a quiet API server in seconds, and how often the slow ones occur."""

    request: float = 0.0015  # from sending to the quota check
    refusal: float = 0.0015  # from the check to a 403 at the client
    storing: float = 0.0050  # from the charge to a 201 at the client
    charge_event: float = 0.0020  # from the charge to its watch event
    late_event: float = 0.0065  # the same for the 1 % that come after the 201
    release: float = 0.0015  # from a pod's end to a lower status.used
    release_event: float = 0.0005  # from there to its watch event
    trailing: float = 0.0030  # from a lower status.used to its arrival in a lagging admission cache

    late_share: float = 0.01
    trailing_share: float = 0.03


@dataclass(slots=True)
class Quota:
    """A namespace's ResourceQuota: nano-units by resource name."""

    namespace: str
    hard: dict[str, int]
    used: dict[str, int]  # status.used, as watchers see it
    admitting: dict[str, int]  # used in the admission cache, which lags for a moment after a release


@dataclass(slots=True)
class Record:
    """What was counted in a run; times are seconds of the loop's clock."""

    creates: int = 0
    refused: int = 0
    admitted: Counter[str] = field(default_factory=Counter)  # by POD_LABEL
    admitted_at: dict[str, float] = field(default_factory=dict)  # the first time
    usage: Usage = field(default_factory=list)


class QuotaAdmission:
    """An API server's quota admission with the quotas of a workload, and the pods that it admitted.

    ``start`` is called for each admitted pod with the row's name, its run time and what ends it; by default it ends
    after its run time.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        latencies: Latencies | None = None,
        start: Callable[[str, float, Callable[[], object]], object] | None = None,
    ) -> None:
        self.quotas = {
            namespace: Quota(namespace, in_nano(hard), dict.fromkeys(hard, 0), dict.fromkeys(hard, 0))
            for namespace, hard in workload.quotas.items()
        }
        self.record = Record()
        self._latencies = latencies or Latencies()
        self._rng = random.Random(f"admission {workload.seed}")
        self._start = start or (lambda _, seconds, end: asyncio.get_running_loop().call_later(seconds, end))
        self._watchers: list[Callable[[Quota], None]] = []
        self._stored: dict[tuple[str, str], bytes] = {}

    def watch(self, watcher: Callable[[Quota], None]) -> None:
        """Call ``watcher`` with each quota now, and again at every watch event."""
        self._watchers.append(watcher)
        for quota in self.quotas.values():
            watcher(quota)

    def observe(self, ledger: Ledger) -> None:
        """Let a ledger observe the quotas: a list first, then every watch event."""

        def seen(quota: Quota) -> None:
            hard = dict(quota.hard)
            observed = ObservedQuota(spec=hard, hard=hard, used=dict(quota.used))
            ledger.observe_quota(quota.namespace, QUOTA_NAME, observed)

        self.watch(seen)
        ledger.watching(None)

    async def create(self, namespace: str, body: dict[str, Any]) -> Answer:
        """Answer one POST of a pod. Cancelling the caller does not undo the charge."""
        self.record.creates += 1
        await asyncio.sleep(self._latencies.request)
        quota = self.quotas[namespace]
        charge = {name: amount for name, amount in charge_of(body).items() if name in quota.hard}
        exceeded = [name for name, amount in charge.items() if quota.admitting[name] + amount > quota.hard[name]]
        if exceeded:
            self.record.refused += 1
            answer = _refusal(body["metadata"], quota, {name: charge[name] for name in sorted(exceeded)})
            await asyncio.sleep(self._latencies.refusal)
            return answer
        answer = self._admit(quota, charge, body)
        await asyncio.sleep(self._latencies.storing)
        return answer

    async def look_up(self, namespace: str, name: str) -> Answer:
        """Answer one GET of a pod."""
        await asyncio.sleep(self._latencies.request + self._latencies.refusal)
        stored = self._stored.get((namespace, name))
        if stored is None:
            return _status(404, "NotFound", f'pods "{name}" not found', name)
        return Answer(200, _JSON, stored)

    def _admit(self, quota: Quota, charge: Mapping[str, int], body: dict[str, Any]) -> Answer:
        """Charge and store the pod, schedule its end and the watch event of the charge; return the 201."""
        loop = asyncio.get_running_loop()
        for name, amount in charge.items():
            quota.used[name] += amount
            quota.admitting[name] += amount
            assert quota.used[name] <= quota.hard[name]
        self._note(quota)
        late = self._rng.random() < self._latencies.late_share
        loop.call_later(self._latencies.late_event if late else self._latencies.charge_event, self._report, quota)
        metadata = body["metadata"]
        pod_name = metadata["labels"][POD_LABEL]
        self.record.admitted[pod_name] += 1
        self.record.admitted_at.setdefault(pod_name, loop.time())
        self._start(pod_name, float(metadata["annotations"][RUN_SECONDS]), partial(self._end, quota, charge))
        number = len(self._stored) + 1
        stored_name = metadata.get("name") or f"{metadata['generateName']}{number:05d}"
        stored = {
            **body,
            "metadata": {
                **metadata,
                "name": stored_name,
                "uid": f"00000000-0000-4000-8000-{number:012d}",
                "resourceVersion": str(number),
            },
            "status": {"phase": "Pending"},
        }
        text = json.dumps(stored).encode()
        self._stored[quota.namespace, stored_name] = text
        return Answer(201, _JSON, text)

    def _end(self, quota: Quota, charge: Mapping[str, int]) -> None:
        """A pod has ended: the quota controller lowers ``used`` a moment later."""
        asyncio.get_running_loop().call_later(self._latencies.release, self._release, quota, charge)

    def _release(self, quota: Quota, charge: Mapping[str, int]) -> None:
        for name, amount in charge.items():
            quota.used[name] -= amount
        self._note(quota)
        loop = asyncio.get_running_loop()
        loop.call_later(self._latencies.release_event, self._report, quota)
        trails = self._rng.random() < self._latencies.trailing_share
        loop.call_later(self._latencies.trailing if trails else 0.0, self._catch_up, quota, charge)

    def _catch_up(self, quota: Quota, charge: Mapping[str, int]) -> None:
        for name, amount in charge.items():
            quota.admitting[name] -= amount

    def _report(self, quota: Quota) -> None:
        for watcher in self._watchers:
            watcher(quota)

    def _note(self, quota: Quota) -> None:
        self.record.usage.append((asyncio.get_running_loop().time(), quota.namespace, dict(quota.used)))


def charge_of(body: Mapping[str, Any]) -> dict[str, int]:
    """Return a pod's charge in nano-units: pods, requests.X and limits.X of its containers."""
    charge: Counter[str] = Counter({"pods": NANO})
    for container in body["spec"]["containers"]:
        for part in ("requests", "limits"):
            for name, amount in container["resources"][part].items():
                if part == "requests" or name in ("cpu", "memory"):
                    charge[f"{part}.{name}"] += parse_quantity(amount)
    return dict(charge)


def _refusal(metadata: Mapping[str, Any], quota: Quota, asked: Mapping[str, int]) -> Answer:
    """Write a 403 as ``k8s.io/apiserver`` resourcequota/controller.go does: exceeded names only, sorted."""
    name = metadata.get("name") or metadata["generateName"]
    texts = [
        ",".join(f"{key}={_shown(key, amounts[key])}" for key in asked)
        for amounts in (asked, quota.admitting, quota.hard)
    ]
    message = (
        f'pods "{name}" is forbidden: exceeded quota: {QUOTA_NAME}, '
        f"requested: {texts[0]}, used: {texts[1]}, limited: {texts[2]}"
    )
    return _status(403, "Forbidden", message, name)


def _status(code: int, reason: str, message: str, name: str) -> Answer:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    about = {"reason": reason, "details": {"name": name, "kind": "pods"}, "code": code}
    return Answer(code, _JSON, json.dumps({**status, **about}).encode())


def _shown(resource: str, amount: int) -> str:
    return format_quantity(amount, binary=resource.endswith("memory"))
