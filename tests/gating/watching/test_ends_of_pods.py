"""Where the ends of pods are watched, the engine knows which pods are alive: what is reported to it, and the effect."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.outcomes import Created
from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.engine.tickets import Ticket
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.clients.gating import waiting
from backoff_ctrl.k8s.gate.creates.actions import Return, Ticketed
from backoff_ctrl.k8s.gate.creates.conversation import Conversation, Creation
from tests.gating.watching.test_watching import ceiling, pod, watching
from tests.kit.patience import PATIENCE
from tests.kit.playbook import answered
from tests.kit.virtual_tests import in_virtual_time
from tests.kit.watch_script import ONE, ScriptedServer, elapse, observed

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox.cluster import BackgroundSandbox
    from tests.kit.watch_script import Observed

PODS = "pods"


def outcome_of(resource: str, kind: str, answer: Any) -> Created:
    """Answer a create 201 and return the outcome that the engine gets."""
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}]}}
    machine = Conversation(Creation("http://s", "me", "team", resource, body), random.Random(7))
    machine.start()
    machine.handle(Ticketed())
    action = machine.handle(answered(201, answer if isinstance(answer, str) else json.dumps(answer)))
    assert isinstance(action, Return)
    assert isinstance(action.outcome, Created)
    return action.outcome


@pytest.mark.parametrize(
    ("metadata", "name"),
    [({"uid": "1-2"}, "1-2"), ({}, ""), ({"uid": 17}, ""), (None, ""), ([], "")],
    ids=["a uid", "none", "a number", "no metadata", "malformed metadata"],
)
def test_the_engine_knows_a_pod_by_its_uid(metadata: Any, name: str) -> None:
    """Names are reused. A pod without a uid is not reported as alive."""
    spec = {"containers": [{"name": "c"}]}
    assert outcome_of("pods", "Pod", {"kind": "Pod", "metadata": metadata, "spec": spec}).stored == name


def test_only_pods_are_reported_as_alive() -> None:
    """The ends of other kinds are not watched."""
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "x", "uid": "1-2"}, "spec": {}}
    assert outcome_of("persistentvolumeclaims", "PersistentVolumeClaim", claim).stored == ""
    assert outcome_of("pods", "Pod", {"kind": "Table", "metadata": {"uid": "1-2"}}).stored == ""


@pytest.mark.parametrize(
    ("phase", "name"), [("Succeeded", ""), ("Failed", ""), ("Running", "1-2"), (5, "1-2"), ([], "1-2")]
)
def test_a_pod_that_has_already_ended_is_not_reported_as_alive(phase: Any, name: str) -> None:
    """It may be found by its idempotency key long after: its end was reported before, or never will be."""
    spec = {"containers": [{"name": "c"}]}
    found = {"kind": "Pod", "metadata": {"uid": "1-2"}, "spec": spec, "status": {"phase": phase}}
    assert outcome_of("pods", "Pod", found).stored == name


@in_virtual_time
async def test_a_namespace_that_comes_into_use_while_the_watch_ends_starts_nothing() -> None:
    """Between the end of the watch and the end of its tasks, nothing is started that would never be stopped."""
    for namespaces in (("team",), None):
        server = ScriptedServer()
        async with observed(server, namespaces) as seen:
            seen.task.cancel()
            await elapse(0)
            seen.watch.add("late")
            await asyncio.gather(seen.task, return_exceptions=True)
        assert not server.count("list", namespace="late")
        assert not server.count("list", PODS, "late")


def test_a_stored_pod_that_cant_be_read_is_alive_all_the_same() -> None:
    """Its charge is then the estimate made before sending."""
    odd = {"kind": "Pod", "metadata": {"uid": "1-2"}, "spec": {"containers": 5}}
    found = outcome_of("pods", "Pod", odd)
    assert (found.charged, found.stored) == (None, "1-2")


def create(seen: Observed, uid: str, used: str) -> None:
    """Have a pod created and charged, reported as the gate does it."""
    line = seen.ledger.line
    made = seen.ledger.join(Demand({PODS: ONE}))
    assert isinstance(line.take(made), Ticket)
    seen.server.quota(hard="3", used=used)
    line.end(made, Created(stored=uid))


@in_virtual_time
async def test_a_recount_frees_only_what_pods_that_have_ended_were_charged() -> None:
    """A recount that misses a live pod frees nothing until that pod ends; a broken watch of pods is reported."""
    server = ScriptedServer()
    server.quota(hard="3")
    async with observed(server) as seen:
        ledger = seen.ledger
        assert ledger.ends_told_of == {"team": True}
        server.pod("a")
        server.pod("b")
        uids = [server.uid(PODS, "team", name) for name in "ab"]
        for number, uid in enumerate(uids, 1):
            create(seen, uid, used=str(number))
        await elapse(1.1)  # old enough that a recount after their end no longer counts them
        server.quota(hard="3", used="1")
        await elapse(0.1)
        assert ledger.left() == 1

        server.remove(PODS, "team", "a")
        await elapse(0.1)
        assert ledger.left() == 2
        server.quota(hard="3", used="0")
        await elapse(0.1)
        assert ledger.left() == 2
        server.cut(plural=PODS)
        await elapse(0.1)
        assert ledger.left() == 3
        await elapse(5)
        assert ledger.ends_told_of == {"team": True}


@in_virtual_time
async def test_ends_are_reported_only_while_pods_may_be_watched() -> None:
    """Quotas are watched, pods are not at first: the ledger is not promised their ends until they are."""
    server = ScriptedServer()
    server.quota()
    server.forbidden = {(PODS, "team")}
    async with observed(server, ask_again=60) as seen:
        await elapse(100)
        assert seen.ledger.ends_told_of == {}
        server.forbidden.clear()
        await elapse(100)
        assert seen.ledger.ends_told_of == {"team": True}
        seen.watch.add("other")
        await elapse(1)
        assert seen.ledger.ends_told_of == {"team": True, "other": True}


async def test_a_restarted_engine_knows_where_ends_are_reported() -> None:
    """After an internal error the engine starts afresh, but the watch goes on and does not repeat what it reported."""
    gate = AsyncGate()
    quota = ObservedQuota(spec={PODS: 5}, hard={PODS: 5}, used={PODS: 5})
    for namespace in ("team", "other"):
        gate.ledger.observe_quota(namespace, "q", quota)
        gate.ledger.ends_told(namespace, told=True)
    gate.ledger.ends_told("other", told=False)

    gate.ledger.engine.act(lambda *_: 1 / 0)  # a bug of ours

    namespaces = gate.ledger.snapshot().namespaces
    assert {name: seen.ends_told for name, seen in namespaces.items()} == {"team": True, "other": False}
    await gate.aclose()


async def test_a_quota_that_counts_less_than_is_alive_admits_no_create(sandbox: BackgroundSandbox) -> None:
    """Over HTTP: the status says that nothing is used, but the gate knows two live pods, until one is deleted."""
    sandbox.create_quota("team", "q", {"pods": "2", "configmaps": "9"})
    async with watching(sandbox.url) as watched:
        await watched.until(lambda n: n is not None and n.ends_told and ceiling(n) is not None)
        gone = (await watched.core.create_namespaced_pod("team", pod())).metadata.name
        await watched.core.create_namespaced_pod("team", pod())
        await watched.until(lambda n: ceiling(n).used == 2 * ONE and ceiling(n).held == 0)
        waits = asyncio.Event()
        with waiting(on_wait=lambda _: waits.set()):
            third = asyncio.ensure_future(watched.core.create_namespaced_pod("team", pod()))
        await waits.wait()

        less = {"status": {"used": {"pods": "0", "configmaps": "7"}}}
        await watched.core.patch_namespaced_resource_quota_status("q", "team", less)
        await watched.until(lambda n: ceiling(n, resource="configmaps").used == 7 * ONE)
        assert ceiling(watched.api.gate.ledger.snapshot().namespaces["team"]).used == 2 * ONE
        assert not third.done()

        await watched.core.delete_namespaced_pod(gone, "team", grace_period_seconds=0)
        await asyncio.wait_for(third, PATIENCE)
