"""Faults of the control plane: the API server, etcd, the controllers, and two servers that race for one quota."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Final

import pytest

from tests.cluster.control_plane.bed import API, CONTROLLERS, ETCD, Bed
from tests.cluster.control_plane.second_server import second_server
from tests.cluster.control_plane.servers import Server
from tests.cluster.faults.fault_record import record
from tests.cluster.faults.storm import CREATES, Account, Storm, meanwhile

pytestmark = pytest.mark.long

RACES: Final = 10
"""How many races to try at the most: usually the servers collide in the first."""


async def test_the_api_server_is_killed_and_started_again(bed: Bed) -> None:
    """Connections break during creates: each create is looked up before it is sent again."""
    async with Storm(bed.server, "killed") as storm:
        storm.begin()
        await storm.until_in(60)
        await asyncio.to_thread(bed.stop, API, grace=0)
        async with meanwhile(1.0):
            before = len(storm.came)
        await asyncio.to_thread(bed.start, API)
        back = time.monotonic()
        await asyncio.to_thread(bed.renew_controllers)
        await storm.start_kubelet()
        recovery = await storm.recovered(back)
        account = await storm.account()
    record("test_the_api_server_is_killed_and_started_again", account, recovery=recovery)

    account.must_be_whole()
    assert before < CREATES


@pytest.mark.scheduled
async def test_etcd_stands_still_for_ten_seconds(bed: Bed) -> None:
    """Creates hang in the API server and are answered late: no create is given up, or sent twice."""
    async with Storm(bed.server, "stalled") as storm:
        storm.begin()
        await storm.until_in(60)
        os.kill(bed.pid(ETCD), signal.SIGSTOP)
        try:
            async with meanwhile(10.0):
                pass
            before = len(storm.came)
        finally:
            os.kill(bed.pid(ETCD), signal.SIGCONT)
        recovery = await storm.recovered(time.monotonic())
        account = await storm.account()
    record("test_etcd_stands_still_for_ten_seconds", account, recovery=recovery)

    account.must_be_whole()
    assert before < CREATES


@pytest.mark.scheduled
async def test_the_controller_manager_stands_still(bed: Bed) -> None:
    """Pods end but `used` does not fall: the gate waits, sending hardly any create, until the controller continues."""
    async with Storm(bed.server, "unreleased") as storm:
        storm.begin()
        await storm.until_in(60)
        os.kill(bed.pid(CONTROLLERS), signal.SIGSTOP)
        try:
            await storm.quiet()
            before, asked, began = len(storm.came), storm.client.gate.counts.sent, time.monotonic()
            async with meanwhile(5.0):
                pass
            seconds = time.monotonic() - began
            meantime, asked_meantime = len(storm.came) - before, storm.client.gate.counts.sent - asked
        finally:
            os.kill(bed.pid(CONTROLLERS), signal.SIGCONT)
        recovery = await storm.recovered(time.monotonic())
        account = await storm.account()
    noted = f"{asked_meantime} creates sent in {seconds:.0f} s without a release"
    record("test_the_controller_manager_stands_still", account, recovery=recovery, noted=noted)

    account.must_be_whole()
    assert before < CREATES
    assert meantime == 0
    assert asked_meantime <= 2 * seconds / 5.0


@pytest.mark.scheduled
async def test_two_api_servers_meet_at_one_quota(bed: Bed) -> None:
    """Each admits from its own cache, and one loses the race for the quota: that create is sent again."""
    with second_server(bed) as other:
        races = [await _raced(bed.server, other, "raced-0")]
        while not races[-1].refused["quota-conflict"] and len(races) < RACES:
            races.append(await _raced(bed.server, other, f"raced-{len(races)}"))
    conflicts = races[-1].refused["quota-conflict"]
    record("test_two_api_servers_meet_at_one_quota", races[-1], recovery=None, noted=f"{conflicts} conflicts")

    for race in races:
        race.must_be_whole()
    assert conflicts > 0


async def _raced(one: Server, other: Server, namespace: str) -> Account:
    """Create half of the pods through each server, concurrently."""
    async with Storm(one, namespace, hard=CREATES // 2) as storm:
        there = storm.make_client(other)
        counts = there.gate.counts  # clients of one process share them
        sent_before, refused_before = counts.sent, counts.refused.copy()
        try:
            storm.begin(range(0, CREATES, 2))
            storm.begin(range(1, CREATES, 2), through=there)
            account = await storm.account()
            account.refused += counts.refused - refused_before
            account.sent += counts.sent - sent_before
            account.left_over += there.gate.waiting()
        finally:
            await there.close()
    return account
