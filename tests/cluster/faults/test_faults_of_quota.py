"""Faults of quotas, of the right to watch them, and of admission webhooks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.cluster.control_plane.bed import API, Bed
from tests.cluster.faults.fault_record import record
from tests.cluster.faults.storm import CREATES, HARD, ROUNDS, Pace, Storm, meanwhile
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long


HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
ROLES = "/apis/rbac.authorization.k8s.io/v1"
VIEW = f"{ROLES}/clusterrolebindings/creator-view"
FEW = 30
"""Creates that are started before the right is taken away: more than the quota allows."""
DEAD = "https://127.0.0.1:1/"  # nothing listens on port 1


async def test_the_quota_is_edited_under_load(bed: Bed) -> None:
    """Up, down, to zero and back: at zero no create is admitted; with room again, all continue."""
    async with Storm(bed.server, "edited", hard=20) as storm:
        storm.begin()
        await storm.until_in(50)
        await storm.edit_quota(40)
        await storm.until_in(120)
        await storm.edit_quota(5)
        await storm.until_in(150)
        await storm.edit_quota(0)
        await storm.admission_sees(0)
        await storm.quiet()
        before = len(storm.came)
        async with meanwhile(2.0):
            pass
        meantime = len(storm.came) - before
        await storm.edit_quota(HARD)
        recovery = await storm.recovered(time.monotonic())
        account = await storm.account()
    record("test_the_quota_is_edited_under_load", account, recovery=recovery)

    account.must_be_whole()
    assert before < CREATES
    assert meantime == 0


@pytest.mark.scheduled
async def test_the_quota_is_deleted_and_made_again_under_load(bed: Bed) -> None:
    """Without a quota all creates are sent at once; one that is created again meanwhile applies at once."""
    async with Storm(bed.server, "remade", hard=10) as storm:
        storm.begin(range(CREATES // 2))
        await storm.until_in(50)
        await storm.delete_quota()
        recovery = await storm.recovered(time.monotonic())
        await storm.until_in(CREATES // 2)
        storm.begin(range(CREATES // 2, CREATES))
        await storm.make_quota(10)
        account = await storm.account()
    record("test_the_quota_is_deleted_and_made_again_under_load", account, recovery=recovery)

    account.must_be_whole()


@pytest.mark.scheduled
async def test_the_right_to_watch_is_taken_away_and_given_back(bed: Bed) -> None:
    """Without it the gate learns from refusals; it retries by itself, and observes again."""
    async with Storm(bed.server, "blinded", hard=10) as storm:  # few enough that creates have to wait
        storm.begin(range(FEW))
        await storm.until_observed()
        taken = (await storm.admin.get(VIEW)).json
        await storm.admin.delete(VIEW)
        try:
            await asyncio.to_thread(bed.stop, API, grace=0)  # an open watch continues whatever the roles say by then
            await asyncio.to_thread(bed.start, API)
            await asyncio.to_thread(bed.renew_controllers)
            await storm.until_observed(seen=False)
            storm.begin(range(FEW, CREATES))
            await storm.until_in(FEW + 1)
            blind = not storm.observes
        finally:
            taken["metadata"] = {"name": taken["metadata"]["name"]}
            given = await storm.admin.post(f"{ROLES}/clusterrolebindings", taken)
            back = time.monotonic()
        await storm.until_observed()
        recovery = time.monotonic() - back
        account = await storm.account()
    noted = "recovered: until the gate observed again"
    record("test_the_right_to_watch_is_taken_away_and_given_back", account, recovery=recovery, noted=noted)

    account.must_be_whole()
    assert given.status == 201
    assert blind


@pytest.mark.scheduled
async def test_a_webhook_fails_in_one_namespace(bed: Bed) -> None:
    """Its creates wait until the webhook works again; those of other namespaces are as fast as before."""
    async with Storm(bed.server, "sound") as sound, Storm(bed.server, "hooked") as hooked:
        pace, let_in = Pace(sound), 0
        while True:
            await pace.measure(pace.alone)
            in_before = len(hooked.came)
            async with dead_webhook(hooked):
                hooked.begin_again()
                others = await pace.measure(pace.beside)
                let_in += len(hooked.came) - in_before
            recovery = await hooked.recovered(time.monotonic())
            account = await hooked.account()
            if pace.unhurt() or len(pace.beside) == ROUNDS:
                break
    noted = f"the other namespace's 300 took {min(pace.beside):.1f} s, {min(pace.alone):.1f} s before"
    record("test_a_webhook_fails_in_one_namespace", account, recovery=recovery, noted=noted)

    account.must_be_whole()
    others.must_be_whole()
    assert let_in == 0
    assert account.refused["webhook-failed"] > 0
    assert pace.unhurt(), (pace.alone, pace.beside)


@asynccontextmanager
async def dead_webhook(storm: Storm) -> AsyncIterator[None]:
    """Make the API server call a webhook that does not exist for each pod of a namespace, for a while."""
    here = {"matchLabels": {"kubernetes.io/metadata.name": storm.namespace}}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    hook: dict[str, Any] = {
        "name": "dead.backoff-ctrl.dev",
        "clientConfig": {"url": DEAD},
        "namespaceSelector": here,
        "rules": [pods],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    made = await storm.admin.post(HOOKS, {"metadata": {"name": "dead"}, "webhooks": [hook]})
    assert made.status == 201, made.text
    trial = {"metadata": {"generateName": "trial-"}, "spec": {"containers": [{"name": "main", "image": "busybox:1"}]}}
    pods_path = f"/api/v1/namespaces/{storm.namespace}/pods"
    try:
        async with asyncio.timeout(PATIENCE):
            while (await storm.admin.post(pods_path, trial, params={"dryRun": "All"})).status != 500:
                pass
        yield
    finally:
        await storm.admin.delete(f"{HOOKS}/dead")
