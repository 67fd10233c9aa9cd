"""What somebody with the role ``edit`` in one namespace can do to the operator of all: nothing that others notice."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time

import pytest

from backoff_ctrl.api.commands.bounded_log import AT_ONCE
from tests.cluster.admitting.jobs_at_work import Jobs, job
from tests.cluster.control_plane.bed import Bed
from tests.cluster.objects import made
from tests.cluster.operating.replicas import LEADS, begin
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long

ENDS_WITHIN = 30.0
"""Seconds that Kubernetes grants a pod."""


async def spaces(api: Api, user: str) -> tuple[Jobs, str]:
    """Return what works in one new namespace, and another that belongs to a user with the role ``edit``."""
    names = [f"test-{secrets.token_hex(5)}" for _ in range(2)]
    for name in names:
        made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{names[1]}/rolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    who = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    made(await api.post(rbac, {"metadata": {"name": user}, "roleRef": role, "subjects": [who]}))
    return Jobs(api, names[0]), names[1]


async def allowed(tenant: Api, namespace: str) -> Jobs:
    """Wait until the server has taken notice of the role."""
    async with asyncio.timeout(PATIENCE):
        while (await tenant.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")).status != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return Jobs(tenant, namespace)


async def test_what_a_tenant_writes_fills_no_log_of_the_operator(bed: Bed) -> None:
    """Each Job whose owner is of no kind that exists made a line, each time with another name."""
    async with Api(bed.server, "admin") as admin, Api(bed.server, "nobody") as tenant:
        others, taken = await spaces(admin, "nobody")
        mine, many = await allowed(tenant, taken), 2 * AT_ONCE
        replica = await begin(bed.server.kubeconfig("tester"), [others.namespace, taken])
        try:
            await replica.until("/metrics", LEADS)
            for number in range(many):
                owner = {"apiVersion": "odd.example/v1", "kind": "Odd", "name": f"odd-{number}", "uid": f"u{number}"}
                body = job(f"odd-{number}")
                body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
                await mine.create(body)
            for number in range(many):
                await mine.until(f"odd-{number}", lambda seen: not seen["spec"]["suspend"])
        finally:
            log = (await replica.end(signal.SIGTERM)).splitlines()
    lines = [each for each in log if "who controls" in each]
    assert AT_ONCE <= len(lines) < many, log[-3:]


async def test_owners_that_lead_out_of_a_path_stop_neither_jobs_nor_the_end(bed: Bed) -> None:
    """Eight of them took all places in which owners are looked up; then the operator neither worked nor ended."""
    async with Api(bed.server, "admin") as admin, Api(bed.server, "nobody") as tenant:
        others, taken = await spaces(admin, "nobody")
        mine = await allowed(tenant, taken)
        await others.limit(9)
        for number in range(10):
            owner = {"apiVersion": "batch/v1", "kind": "Flow", "name": "../" * 8 + "healthz", "uid": f"u{number}"}
            body = job(f"odd-{number}")
            body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
            await mine.create(body)
        replica = await begin(bed.server.kubeconfig("tester"), [others.namespace, taken])
        try:
            await replica.until("/metrics", LEADS)
            above = {"apiVersion": "batch/v1", "kind": "Flow", "name": "f", "uid": "u", "controller": True}
            body = job("owned")
            body["metadata"]["ownerReferences"] = [above]
            await others.create(body)
            await others.until("owned", lambda seen: not seen["spec"]["suspend"])
            assert (await replica.get("/livez"))[0] == 200
            began = time.monotonic()
            said = await replica.end(signal.SIGTERM)
            assert time.monotonic() - began < ENDS_WITHIN
            assert (replica.process.returncode, "Traceback" in said) == (0, False), said
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{others.namespace}/leases/backoff-ctrl-operator"
            assert made(await admin.get(lease))["spec"]["holderIdentity"] == ""
        finally:
            await replica.end(signal.SIGKILL)
