"""Observing: what a quota says becomes a ceiling, every interruption is survived, and without permission we learn."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client as sync
from kubernetes.aio import client

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.charges.footprint import footprint
from backoff_ctrl.k8s.charges.quotas import UnknownScopeError, read_quota
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gated.aio_client import AsyncGatedApiClient, waiting
from backoff_ctrl.k8s.watching.source import ClientSource
from backoff_ctrl.k8s.watching.watch import QuotaWatch
from tests.scripted_server import Seen, failure, scripted_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from backoff_ctrl.k8s.sandbox import BackgroundSandbox


def pod(**spec: Any) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "p-"},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


class Watched:
    """A gated client whose gate observes, and the means to wait for what it has observed."""

    def __init__(self, api: AsyncGatedApiClient, watch: asyncio.Task[None], news: asyncio.Condition) -> None:
        self.api = api
        self.core: Any = client.CoreV1Api(api)
        self.watch = watch
        self._news = news

    async def until(self, holds: Callable[[Any], bool]) -> None:
        """Wait until the ledger shows it."""
        async with asyncio.timeout(45), self._news:
            await self._news.wait_for(lambda: holds(self.api.gate.desk.snapshot().namespaces.get("team")))


@pytest.fixture
async def watched(sandbox: BackgroundSandbox) -> AsyncIterator[Watched]:
    """Observing one namespace of the sandbox."""
    async with watching(sandbox.url) as made:
        yield made


def watching(url: str, **settings: Any) -> Any:
    @contextlib.asynccontextmanager
    async def run() -> AsyncIterator[Watched]:
        gate, news = AsyncGate(policy=Policy(base=20, cap=20)), asyncio.Condition()
        desk = Telling(gate.desk, news)
        async with AsyncGatedApiClient(client.Configuration(host=url), gate=gate) as api:
            watch = QuotaWatch(desk, ClientSource(api), ["team"], **settings)
            task = asyncio.ensure_future(watch.run())
            try:
                yield Watched(api, task, news)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    return run()


class Telling:
    """A ledger that says when it was told something: the test waits on it instead of sleeping."""

    def __init__(self, desk: Any, news: asyncio.Condition) -> None:
        self._desk = desk
        self._news = news
        self._tasks: set[asyncio.Task[None]] = set()

    def __getattr__(self, name: str) -> Any:
        told = getattr(self._desk, name)

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


async def test_an_observed_full_quota_is_not_asked_in_vain(sandbox: BackgroundSandbox, watched: Watched) -> None:
    """No create is refused: room is seen to come, and the waiter goes in at once (its timers say 20 s)."""
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
    await asyncio.wait_for(third, 45)

    assert sandbox.counters.of("team").refused == 0


async def test_a_quota_that_goes_lets_everybody_in(sandbox: BackgroundSandbox, watched: Watched) -> None:
    """DELETED is news too."""
    sandbox.create_quota("team", "q", {"pods": "0"})
    await watched.until(lambda n: ceiling(n) is not None)
    waits = asyncio.Event()
    with waiting(on_wait=lambda _: waits.set()):
        task = asyncio.ensure_future(watched.core.create_namespaced_pod("team", pod()))
    await waits.wait()

    await watched.core.delete_namespaced_resource_quota("q", "team")

    await asyncio.wait_for(task, 45)


async def test_a_forgotten_version_ends_in_a_new_list(sandbox: BackgroundSandbox, watched: Watched) -> None:
    """The watch breaks, the history is compacted: 410 comes as an ERROR event, and a list follows."""
    sandbox.create_quota("team", "q", {"pods": "2"})
    await watched.until(lambda n: ceiling(n) is not None)
    lists = sandbox.counters.requests.get("list", 0)
    sandbox.faults.watch_break_share = 1.0
    sandbox.create_quota("team", "other", {"pods": "3"})
    sandbox.call(lambda each: each.compact())
    sandbox.faults.clear()
    sandbox.create_quota("team", "third", {"pods": "4"})

    await watched.until(lambda n: ceiling(n, "third") is not None and ceiling(n, "other") is not None)

    assert sandbox.counters.requests["list"] > lists


async def test_a_lost_server_is_found_again(sandbox: BackgroundSandbox) -> None:
    """Connections refused, then a list: the ledger is told that the watch was lost, and that it is back."""
    states: list[bool] = []
    with scripted_server(fail_first(2, states)) as server:
        async with watching(server.url, longest_pause=0.05) as watched:
            await watched.until(lambda n: n is not None and n.observing)

    assert len(states) >= 3


def fail_first(times: int, calls: list[bool]) -> Any:
    versions = itertools.count(1)

    def answer(seen: Seen) -> Any:
        calls.append("watch=true" in seen.path)
        if len(calls) <= times:
            return failure(503, "ServiceUnavailable", "not now")
        if "watch=true" in seen.path:
            return 200, {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(next(versions))}}}
        return 200, {"kind": "ResourceQuotaList", "metadata": {"resourceVersion": "1"}, "items": []}

    return answer


async def test_a_quota_that_went_during_an_interruption_is_forgotten() -> None:
    """The second list does not have it: a ceiling that nobody enforces would hold creates back for nothing."""
    quota = {
        "metadata": {"name": "q", "namespace": "team", "resourceVersion": "5"},
        "spec": {"hard": {"pods": "1"}},
        "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}},
    }
    lists: list[list[Any]] = [[quota], []]
    forgotten = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}

    def answer(seen: Seen) -> Any:
        if "watch=true" in seen.path:
            return 200, forgotten
        items = lists.pop(0) if lists else []
        return 200, {"kind": "ResourceQuotaList", "metadata": {"resourceVersion": "9"}, "items": items}

    with scripted_server(answer) as server:
        async with watching(server.url, longest_pause=0.05) as watched:
            await watched.until(lambda n: n is not None and not lists and ceiling(n) is None)


async def test_where_watching_is_forbidden_it_is_said_once_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """Neither quotas nor pods: the gate learns meanwhile; the permission may come later."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    calls: list[Seen] = []

    def answer(seen: Seen) -> Any:
        calls.append(seen)
        if sum("/pods" in each.path for each in calls) == 3:
            loop.call_soon_threadsafe(asked.set)
        return failure(403, "Forbidden", 'resourcequotas is forbidden: User "u" cannot list resource "resourcequotas"')

    with scripted_server(answer) as server:
        async with watching(server.url, ask_again=0.01) as watched:
            await asyncio.wait_for(asked.wait(), 45)
            known = watched.api.gate.desk.snapshot().namespaces

    assert "team" not in known
    said = [r.message for r in caplog.records if "namespace team are not watched" in r.message]
    assert len(said) == 1


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
    quota: dict[str, Any], spec: dict[str, Any], applies: bool
) -> None:
    """``podMatchesScopeFunc`` row by row."""
    seen = read_quota({"spec": {"hard": {"pods": "1"}, **quota}})

    assert seen.selector.applies(footprint(pod(**spec)).scopes) is applies


@pytest.mark.parametrize(("quota", "spec", "applies"), SCOPED)
def test_the_sandbox_agrees_on_scopes(
    sandbox: BackgroundSandbox, quota: dict[str, Any], spec: dict[str, Any], applies: bool
) -> None:
    """The server charges the pod exactly where the selector applies."""
    sandbox.create_quota("team", "q", {"pods": "5"}, quota.get("scopes", ()), quota.get("scopeSelector"))
    with sync.ApiClient(sync.Configuration(host=sandbox.url)) as api:
        core: Any = sync.CoreV1Api(api)
        scheduling: Any = sync.SchedulingV1Api(api)
        for name in {spec.get("priorityClassName")} - {None}:
            scheduling.create_priority_class({"metadata": {"name": name}, "value": 1})
        core.create_namespaced_pod("team", pod(**spec))

    assert sandbox.used("team", "q") == {"pods": "1" if applies else "0"}


def test_a_scope_of_the_future_is_said_and_left_to_refusals() -> None:
    """Guessing whether it applies would be worse than learning."""
    with pytest.raises(UnknownScopeError, match="OnTuesdays"):
        read_quota({"spec": {"scopes": ["OnTuesdays"]}})


def changed_by(manager: str, *names: str, subresource: str = "status") -> dict[str, Any]:
    """An entry of managedFields: who changed these amounts last."""
    fields: dict[str, Any] = {"f:status": {"f:used": {f"f:{name}": {} for name in names}}}
    return {"manager": manager, "operation": "Update", "subresource": subresource, "fieldsV1": fields}


def test_the_object_tells_which_amounts_a_recount_changed_last() -> None:
    """Each amount belongs to who changed it last (as tests/cluster/quotas/test_quota_counts.py has it)."""
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
def test_what_does_not_tell_of_a_recount_is_a_charge(metadata: Any) -> None:
    """One program may be both; managedFields may have been stripped, or be anything."""
    assert read_quota({"metadata": metadata}).recounted == frozenset()


def test_an_amount_that_is_no_quantity_is_left_out() -> None:
    """The rest of the quota still counts."""
    seen = read_quota({"status": {"hard": {"pods": "2", "cpu": "many"}, "used": {"pods": "1"}}})

    assert seen.hard == {"pods": 2 * 10**9}
