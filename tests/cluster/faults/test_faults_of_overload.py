"""A server that is overloaded: for all clients, or for one priority level only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.cluster.control_plane.bed import Bed
from tests.cluster.faults.fault_record import record
from tests.cluster.faults.storm import CREATES, ROUNDS, Pace, Storm
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.scheduled]


FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
TWO_AT_A_TIME = ("--enable-priority-and-fairness=false", "--max-mutating-requests-inflight=2")


@pytest.mark.parametrize("breakable", [pytest.param(TWO_AT_A_TIME, id="two at a time")], indirect=True)
async def test_a_storm_of_429_for_all(bed: Bed) -> None:
    """The server accepts two creates at a time: the gate finds that limit, and all creates succeed."""
    async with Storm(bed.server, "crowded", hard=CREATES) as storm:
        storm.begin()
        account = await storm.account()
        size = max(window.size for window in storm.client.gate.ledger.snapshot().flows.values())
    noted = f"{account.refused['overload']} answers with 429; the final window was {size:.0f} in flight"
    record("test_a_storm_of_429_for_all", account, recovery=None, noted=noted)

    account.must_be_whole()
    assert account.refused["overload"] > 0
    assert account.refused["overload"] <= CREATES


async def test_a_storm_of_429_for_one_priority_level(bed: Bed) -> None:
    """One user's level serves one request at a time: that user's creates are slow, another's as fast as before."""
    async with Storm(bed.server, "served") as served, Storm(bed.server, "rejected", user="learner") as rejected:
        pace = Pace(served)
        while True:
            await pace.measure(pace.alone)
            async with shut_out(served, "learner"):
                rejected.begin_again()
                others = await pace.measure(pace.beside)
            recovery = await rejected.recovered(time.monotonic())
            account = await rejected.account()
            if pace.unhurt() or len(pace.beside) == ROUNDS:
                break
    noted = f"the other user's 300 took {min(pace.beside):.1f} s, {min(pace.alone):.1f} s before"
    record("test_a_storm_of_429_for_one_priority_level", account, recovery=recovery, noted=noted)

    account.must_be_whole()
    others.must_be_whole()
    assert account.refused["overload"] > 0
    assert pace.unhurt(), (pace.alone, pace.beside)


@asynccontextmanager
async def shut_out(storm: Storm, user: str) -> AsyncIterator[None]:
    """Give a user a priority level without seats for a while: it serves one request and rejects others."""
    admin = storm.admin
    limited = {
        "nominalConcurrencyShares": 0,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    level: dict[str, Any] = {"metadata": {"name": "shut"}, "spec": {"type": "Limited", "limited": limited}}
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    rule = {"subjects": [{"kind": "User", "user": {"name": user}}], "resourceRules": [everything]}
    before_all = 2  # 1 is reserved for the schema `exempt`
    spec = {"priorityLevelConfiguration": {"name": "shut"}, "matchingPrecedence": before_all, "rules": [rule]}
    made = await admin.post(f"{FLOW}/prioritylevelconfigurations", level)
    assert made.status == 201, made.text
    made = await admin.post(f"{FLOW}/flowschemas", {"metadata": {"name": "shut"}, "spec": spec})
    assert made.status == 201, made.text
    try:
        async with Api(storm.server, user) as api, asyncio.timeout(PATIENCE):
            path = f"/api/v1/namespaces/{storm.namespace}/pods"
            while all(each.status != 429 for each in await asyncio.gather(*(api.get(path) for _ in range(8)))):
                pass
        yield
    finally:
        await admin.delete(f"{FLOW}/flowschemas/shut")
        await admin.delete(f"{FLOW}/prioritylevelconfigurations/shut")
