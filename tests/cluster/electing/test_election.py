"""Leader election by a Lease, on the sandbox and on a real Kubernetes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from backoff_ctrl.k8s.kube.cluster.election import Election, ElectionError, StuckError, Terms
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from tests.cluster.control_plane.servers import Server
from tests.cluster.talking import MERGE, Api
from tests.kit.patience import PATIENCE
from tests.monitoring.prometheus.relay import Relay

TERMS = Terms(duration=2, deadline=1.4, retry=0.3)


class Replica:
    """A candidate that counts how often it led, and says when it does."""

    def __init__(self, election: Election) -> None:
        self.election = election
        self.leads = asyncio.Event()
        self.ended = asyncio.Event()
        self.terms = 0
        self._work: asyncio.Task[None] | None = None

    async def _lead(self) -> None:
        self.terms += 1
        self.leads.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.leads.clear()
            self.ended.set()

    def start(self) -> None:
        self._work = asyncio.create_task(self.election.run(self._lead))

    async def end(self) -> None:
        assert self._work is not None
        self._work.cancel()
        await asyncio.wait({self._work})


@asynccontextmanager
async def replicas(api: Api, namespace: str, *names: str, server: str | None = None) -> AsyncIterator[list[Replica]]:
    """Give candidates for the Lease ``operator``, each with a session of its own; not started yet."""
    place = find_place(server, None if server else str(api.server.kubeconfig("admin")), None, None)
    sessions = [ClusterSession(place.configuration) for _ in names]
    made = []
    for name, session in zip(names, sessions, strict=True):
        await session.__aenter__()
        made.append(Replica(Election(session, namespace, "operator", name, terms=TERMS)))
    try:
        yield made
    finally:
        for session in sessions:
            await session.__aexit__(None, None, None)


async def lease(api: Api, namespace: str) -> dict[str, object]:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/operator"
    spec: dict[str, object] = (await api.get(path)).json["spec"]
    return spec


async def test_one_leads_and_an_orderly_end_hands_over_at_once(api: Api, namespace: str) -> None:
    """The Lease shows who holds it, and how often it changed hands."""
    async with replicas(api, namespace, "one", "two") as (one, two), asyncio.timeout(PATIENCE):
        one.start()
        await one.leads.wait()
        two.start()
        assert not await two.election.attempt()
        assert (two.election.leader, two.leads.is_set()) == ("one", False)
        assert (one.election.certain(), two.election.certain()) == (True, False)
        held = await lease(api, namespace)
        assert (held["holderIdentity"], held["leaseDurationSeconds"], held["leaseTransitions"]) == ("one", 2, 0)

        await one.end()
        assert (await lease(api, namespace))["holderIdentity"] in ("", "two")
        await two.leads.wait()
        held = await lease(api, namespace)
        assert held["holderIdentity"] == "two"
        assert held["leaseTransitions"] != 0
        await two.end()


async def test_a_lease_that_a_user_deletes_is_made_anew(api: Api, namespace: str) -> None:
    """Its holder keeps it unless another replica was quicker."""
    async with replicas(api, namespace, "one") as (one,):
        assert await one.election.attempt()
        path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/operator"
        assert (await api.delete(path)).status == 200
        assert await one.election.attempt()
        assert (one.election.certain(), (await lease(api, namespace))["holderIdentity"]) == (True, "one")


async def test_what_others_write_on_the_lease_stays(api: Api, namespace: str) -> None:
    """Labels, annotations, owners and finalizers, at each write: by them Helm knows that the Lease is its own."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    owner = (await api.get(f"/api/v1/namespaces/{namespace}")).json["metadata"]
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    marks = {
        "labels": labels,
        "annotations": {"meta.helm.sh/release-name": "r", "meta.helm.sh/release-namespace": namespace},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": owner["name"], "uid": owner["uid"]}],
        "finalizers": ["example.com/kept"],
    }
    assert (await api.post(leases, {"metadata": {"name": "operator", **marks}})).status == 201
    async with replicas(api, namespace, "one", "two") as (one, two):
        for step in (one.election.attempt, one.election.attempt, one.election.release, two.election.attempt):
            assert await step() is not False
            found = (await api.get(f"{leases}/operator")).json["metadata"]
            assert {name: found.get(name) for name in marks} == marks
        added = {"metadata": {"labels": {"added": "while-it-is-held"}}}
        assert (await api.patch(f"{leases}/operator", added, MERGE)).status == 200
        assert await two.election.attempt()
    found = (await api.get(f"{leases}/operator")).json
    assert found["metadata"]["labels"] == {**labels, **added["metadata"]["labels"]}
    assert found["spec"]["holderIdentity"] == "two"
    assert (await api.patch(f"{leases}/operator", {"metadata": {"finalizers": None}}, MERGE)).status == 200


async def test_who_dies_is_followed_once_the_lease_has_lapsed(api: Api, namespace: str) -> None:
    """A killed leader does not give its Lease back."""
    async with replicas(api, namespace, "dead", "next") as (dead, following), asyncio.timeout(PATIENCE):
        assert await dead.election.attempt()
        following.start()
        began = asyncio.get_running_loop().time()
        await following.leads.wait()
        assert asyncio.get_running_loop().time() - began >= TERMS.duration
        assert not dead.election.certain()
        assert not await dead.election.attempt()
        await following.end()


async def test_a_leader_that_cant_reach_the_server_stops_before_another_begins(sandbox: Server) -> None:
    """And leads again once it can, if nobody else does."""
    async with Api(sandbox) as api:
        with Relay(sandbox.url) as relay:
            async with replicas(api, "default", "far", server=relay.url) as (far,), asyncio.timeout(PATIENCE):
                far.start()
                await far.leads.wait()
                relay.cut()
                await far.ended.wait()
                with pytest.raises(ElectionError, match="leases/operator"):
                    await far.election.attempt()
                assert not far.election.certain()
                relay.mend()
                await far.leads.wait()
                await far.end()
    assert far.terms == 2


async def test_work_that_does_not_end_keeps_no_lease(api: Api, namespace: str) -> None:
    """It may write as long as the Lease lasts, so the Lease is not given back; the process has to end."""
    terms, over = replace(TERMS, leaving=0.1), asyncio.Event()

    async def endless() -> None:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()

    async with replicas(api, namespace, "next") as (following,), asyncio.timeout(PATIENCE):
        place = find_place(None, str(api.server.kubeconfig("admin")), None, None)
        async with ClusterSession(place.configuration) as session:
            stuck = Election(session, namespace, "operator", "stuck", terms=terms)
            work = asyncio.create_task(stuck.run(endless))
            while not stuck.certain():  # noqa: ASYNC110 - the election says nothing
                await asyncio.sleep(0.01)
            work.cancel()
            with pytest.raises(StuckError):
                await work
            assert (stuck.certain(), (await lease(api, namespace))["holderIdentity"]) == (False, "stuck")
            following.start()
            await following.leads.wait()
            await following.end()
            over.set()
