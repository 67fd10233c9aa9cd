"""Large Jobs of one tenant take a bounded part of the operator's memory, and another tenant's Job starts as before."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.admitting.jobs_at_work import Jobs, job
from tests.cluster.control_plane.bed import Bed
from tests.cluster.objects import made
from tests.cluster.operating.replicas import LEADS, Replica, replica
from tests.cluster.operating.tenants import Tenants, tenants_of
from tests.cluster.talking import MERGE
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.scheduled

JSON = dict[str, Any]
JOBS: Final = 60
GROWS_MAX: Final = 2
"""How many times as much memory as without them the operator may take at most. Unbounded, ten times as much."""
BEYOND: Final = 1.0
"""Seconds by which another's Job may start later than without them."""


@pytest.fixture
async def tenants(bed: Bed) -> AsyncIterator[Tenants]:
    async with tenants_of(bed) as found:
        yield found


def with_env(spec: JSON) -> None:
    spec["containers"][0]["env"] = [{"name": f"a{each}", "value": "x" * 100} for each in range(4_000)]


def with_containers(spec: JSON) -> None:
    spec["containers"] = [{**spec["containers"][0], "name": f"c{each}"} for each in range(800)]


def with_claims(spec: JSON) -> None:
    spec["volumes"] = [
        {
            "name": f"v{each}",
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": f"{each + 1}Gi"}},
                    }
                }
            },
        }
        for each in range(800)
    ]


def with_arguments(spec: JSON) -> None:
    spec["containers"][0]["args"] = [f"a{each}" for each in range(90_000)]


def with_nothing(spec: JSON) -> None:
    """Their metadata is large."""


LABELS: Final = range(3_000)
SORTS: Final = (with_env, with_containers, with_claims, with_arguments, with_nothing)
KEPT_IN_PART: Final = (with_containers, with_claims)


def large(number: int) -> JSON:
    body = job(f"large-{number}")
    sort = SORTS[number % len(SORTS)]
    sort(body["spec"]["template"]["spec"])
    if sort is with_nothing:
        body["metadata"]["labels"] |= {f"l{each}": "x" * 60 for each in LABELS}
        body["metadata"]["annotations"] = {f"a{each}": "x" * 50 for each in LABELS}
    return body


async def create_all(his: Jobs) -> None:
    """Create the Jobs; those of which nothing else is large get large ``managedFields``."""
    owned: JSON = {f"f:l{each}": {} for each in LABELS}
    entry = {"manager": "odd", "operation": "Update", "apiVersion": "batch/v1", "fieldsType": "FieldsV1"}
    fields = {"f:metadata": {"f:labels": owned}}
    for number in range(JOBS):
        await his.create(large(number))
        if SORTS[number % len(SORTS)] is with_nothing:
            patch = {"metadata": {"managedFields": [{**entry, "fieldsV1": fields}]}}
            made(await his.api.patch(his.path(f"large-{number}"), patch, MERGE))


def memory_of(found: Replica, what: str = "VmRSS") -> int:
    """Return the bytes of memory of a process; ``VmHWM``: the most that it had."""
    status = Path(f"/proc/{found.process.pid}/status").read_text()
    return int(re.findall(rf"^{what}:\s+(\d+) kB$", status, re.MULTILINE)[0]) << 10


async def started(jobs: Jobs, name: str) -> float:
    """Create a Job, and return the seconds until it is let in."""
    begun = time.monotonic()
    await jobs.create(job(name))
    await jobs.until(name, lambda body: not body["spec"].get("suspend"))
    return time.monotonic() - begun


async def refused(found: Replica, number: int) -> None:
    """Wait until so many Jobs are refused, those of other tests among them."""
    async with asyncio.timeout(PATIENCE):
        while True:
            metrics = (await found.get("/metrics"))[1]
            said = re.search(r'^backoff_ctrl_jobs{state="refused"} (\d+)$', metrics, re.MULTILINE)
            if said is not None and int(said[1]) >= number:
                return
            await asyncio.sleep(0.1)


async def test_large_jobs_of_one_tenant_leave_the_memory_to_others(
    bed: Bed, tenants: Tenants, say: Callable[[str], None]
) -> None:
    """As they come, and for an operator that starts and lists them all."""
    his, other = tenants.his, tenants.other
    await his.limit(0)
    await other.limit(20)
    told_of = sum(SORTS[number % len(SORTS)] in KEPT_IN_PART for number in range(JOBS))
    async with replica(bed, other.namespace, everywhere=True) as found:
        await found.until("/metrics", LEADS)
        alone = [await started(other, f"alone-{number}") for number in range(3)]
        before = memory_of(found)
        await create_all(his)
        beside = [await started(other, f"beside-{number}") for number in range(3)]
        await refused(found, told_of)
        grown = memory_of(found, "VmHWM") / before
        say(f"{JOBS} large Jobs, as they come: {before >> 20} MB x {grown:.2f}; started {beside}, without {alone}")
        assert "more than the operator keeps of one object" in (await found.get("/readyz"))[1]
    async with replica(bed, other.namespace, everywhere=True) as found:
        await found.until("/metrics", LEADS)
        listing = await started(other, "listing")
        await refused(found, told_of)
        listed = memory_of(found, "VmHWM") / before
        say(f"listed at the start: x {listed:.2f}; started {listing:.2f} s")
    assert max(grown, listed) < GROWS_MAX
    assert min(beside) < min(alone) + BEYOND
