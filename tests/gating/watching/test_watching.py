"""Watching quotas: their amounts become ceilings, interruptions are survived; without permission the gate learns."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client as sync

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient, waiting
from backoff_ctrl.k8s.gate.observing.quotas import QuotaWatch
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.quotas import UnknownScopeError, read_quota
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from tests.kit.official import aio as client
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox


def pod(**spec: Any) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "p-"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


class Watched:
    """A gated client with a watch, and a way to wait for what the watch reports."""

    def __init__(self, api: AsyncGatedApiClient, watch: asyncio.Task[None], news: asyncio.Condition) -> None:
        self.api = api
        self.core: Any = client.CoreV1Api(api)
        self.watch = watch
        self._news = news

    async def until(self, holds: Callable[[Any], bool]) -> None:
        """Wait until this holds for the ledger's namespace ``team``."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(lambda: holds(self.api.gate.ledger.snapshot().namespaces.get("team")))


@pytest.fixture
async def watched(sandbox: BackgroundSandbox) -> AsyncIterator[Watched]:
    """Watches one namespace of the sandbox."""
    async with watching(sandbox.url) as made:
        yield made


def watching(url: str, **settings: Any) -> Any:
    @contextlib.asynccontextmanager
    async def run() -> AsyncIterator[Watched]:
        gate, news = AsyncGate(policy=Policy(base=20, cap=20)), asyncio.Condition()
        ledger: Any = Telling(gate.ledger, news)
        configuration = client.Configuration(host=url)
        async with AsyncGatedApiClient(configuration, gate=gate) as api, ClusterSession(configuration) as session:
            watch = QuotaWatch(ledger, ["team"], **settings)
            task = asyncio.ensure_future(watch.run(ClusterSource(session)))
            try:
                yield Watched(api, task, news)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    return run()


class Telling:
    """A ledger that notifies the test of each call, so that the test need not sleep."""

    def __init__(self, ledger: Any, news: asyncio.Condition) -> None:
        self._ledger = ledger
        self._news = news
        self._tasks: set[asyncio.Task[None]] = set()

    def __getattr__(self, name: str) -> Any:
        told = getattr(self._ledger, name)

        def tell(*args: Any, **options: Any) -> None:
            told(*args, **options)
            task = asyncio.ensure_future(self._ring())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return tell

    async def _ring(self) -> None:
        async with self._news:
            self._news.notify_all()


def ceiling(namespace: Any, quota: str = "q", resource: str = "pods") -> Any:
    return None if namespace is None else namespace.quotas.get(quota, {}).get(resource)


async def test_with_an_observed_full_quota_no_create_is_refused(sandbox: BackgroundSandbox, watched: Watched) -> None:
    """The watch shows free room, and the waiting create is sent at once, long before its 20 s timer."""
    sandbox.create_quota("team", "q", {"pods": "2"})
    await watched.until(lambda n: ceiling(n) is not None and ceiling(n).source == "observed")
    first = await watched.core.create_namespaced_pod("team", pod())
    await watched.core.create_namespaced_pod("team", pod())
    await watched.until(lambda n: ceiling(n).used == 2 * 10**9)
    waits = asyncio.Event()
    with waiting(on_wait=lambda _: waits.set()):
        third = asyncio.ensure_future(watched.core.create_namespaced_pod("team", pod()))
    await waits.wait()

    await watched.core.delete_namespaced_pod(first.metadata.name, "team", grace_period_seconds=0)
    await asyncio.wait_for(third, PATIENCE)

    assert sandbox.counters.of("team").refused == 0


async def test_deleting_a_quota_admits_all_that_wait_for_it(sandbox: BackgroundSandbox, watched: Watched) -> None:
    """A DELETED event admits waiting creates too."""
    sandbox.create_quota("team", "q", {"pods": "0"})
    await watched.until(lambda n: ceiling(n) is not None)
    waits = asyncio.Event()
    with waiting(on_wait=lambda _: waits.set()):
        task = asyncio.ensure_future(watched.core.create_namespaced_pod("team", pod()))
    await waits.wait()

    await watched.core.delete_namespaced_resource_quota("q", "team")

    await asyncio.wait_for(task, PATIENCE)


SCOPED: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"scopes": ["Terminating"]}, {}, False),
    ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 5}, True),
    ({"scopes": ["NotTerminating"]}, {"activeDeadlineSeconds": 5}, False),
    ({"scopes": ["BestEffort"]}, {}, True),
    ({"scopes": ["NotBestEffort"]}, {}, False),
    ({"scopes": ["BestEffort", "Terminating"]}, {}, False),
    ({"scopes": ["PriorityClass"]}, {"priorityClassName": "high"}, True),
    ({"scopes": ["PriorityClass"]}, {}, False),
]
for _operator, _values, _class, _want in (
    ("In", ["high", "top"], "high", True),
    ("In", ["high"], "low", False),
    ("In", ["high"], None, False),
    ("NotIn", ["high"], "high", False),
    ("NotIn", ["high"], "low", True),
    ("NotIn", ["high"], None, True),
    ("Exists", [], "low", True),
    ("DoesNotExist", [], None, True),
    ("DoesNotExist", [], "low", False),
):
    _expression = {"scopeName": "PriorityClass", "operator": _operator, "values": _values}
    _spec = {} if _class is None else {"priorityClassName": _class}
    SCOPED.append(({"scopeSelector": {"matchExpressions": [_expression]}}, _spec, _want))


@pytest.mark.parametrize(("quota", "spec", "applies"), SCOPED)
def test_scopes_and_selectors_apply_as_in_kubernetes(
    sandbox: BackgroundSandbox, quota: dict[str, Any], spec: dict[str, Any], applies: bool
) -> None:
    """As in Kubernetes' ``podMatchesScopeFunc``, case by case; the sandbox charges the pod exactly there."""
    seen = read_quota({"spec": {"hard": {"pods": "1"}, **quota}})
    assert seen.selector.applies(footprint(pod(**spec)).scopes) is applies

    sandbox.create_quota("team", "q", {"pods": "5"}, quota.get("scopes", ()), quota.get("scopeSelector"))
    with sync.ApiClient(sync.Configuration(host=sandbox.url)) as api:
        for name in {spec.get("priorityClassName")} - {None}:
            scheduling: Any = sync.SchedulingV1Api(api)
            scheduling.create_priority_class({"metadata": {"name": name}, "value": 1})
        core: Any = sync.CoreV1Api(api)
        core.create_namespaced_pod("team", pod(**spec))
    assert sandbox.used("team", "q") == {"pods": "1" if applies else "0"}


def test_an_unknown_scope_is_an_error_that_names_it() -> None:
    """Guessing whether it applies would be worse than learning from refusals."""
    with pytest.raises(UnknownScopeError, match="OnTuesdays"):
        read_quota({"spec": {"scopes": ["OnTuesdays"]}})


def changed_by(manager: str, *names: str, subresource: str = "status") -> dict[str, Any]:
    """A managedFields entry: this manager was the last to change these amounts."""
    fields: dict[str, Any] = {"f:status": {"f:used": {f"f:{name}": {} for name in names}}}
    return {"manager": manager, "operation": "Update", "subresource": subresource, "fieldsV1": fields}


def test_managed_fields_show_which_amounts_a_recount_changed_last() -> None:
    """Each amount is owned by its last writer (tests/cluster/quotas/test_quota_counts.py shows it on a real server)."""
    entries = [
        changed_by("kube-apiserver", "pods"),
        changed_by("kube-controller-manager", "requests.cpu", "limits.cpu"),
    ]
    assert read_quota({"metadata": {"managedFields": entries}}).recounted == {"requests.cpu", "limits.cpu"}


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"managedFields": [changed_by("k3s", "pods")]},
        {"managedFields": [changed_by("kube-controller-manager", "pods", subresource="")]},
        {"managedFields": [changed_by("kube-controller-manager")]},
        {"managedFields": "nonsense"},
        {"managedFields": [7, {"manager": "kube-controller-manager", "subresource": "status", "fieldsV1": [1]}]},
    ],
)
def test_without_signs_of_a_recount_an_amount_counts_as_charged(metadata: Any) -> None:
    """API server and controller may be one program (k3s); managedFields may be stripped or malformed."""
    assert read_quota({"metadata": metadata}).recounted == frozenset()


def test_an_amount_that_is_no_quantity_is_left_out() -> None:
    """The rest of the quota still counts."""
    seen = read_quota({"status": {"hard": {"pods": "2", "cpu": "many"}, "used": {"pods": "1"}}})

    assert seen.hard == {"pods": 2 * 10**9}
