"""Large Jobs of one namespace leave the operator's memory to others; what it does not keep stays on the object."""

from __future__ import annotations

import secrets
from typing import Any, Final

import pytest

from backoff_ctrl.k8s.gate.creates.naming import GANG_LABEL
from backoff_ctrl.k8s.workloads.admitting.admitting import Admitting
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, JOB, JOB_SET
from tests.admitting.test_shapes import values_in
from tests.cluster.admitting.jobs_at_work import Jobs, admitting, job
from tests.cluster.admitting.trains_at_work import served
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made
from tests.cluster.talking import Api

pytestmark = pytest.mark.long

JSON = dict[str, Any]
ENTRIES: Final = 10_000
LARGE_JOBS: Final = 8
OF_ONE_JOB: Final = 100
"""Values that may be kept of a Job with one container."""
MORE: Final = {
    "env": [{"name": "A", "value": "1"}],
    "args": ["--a"],
    "image": "busybox:1",
    "livenessProbe": {"exec": {"command": ["true"]}},
}


def of_the_user(name: str) -> JSON:
    """Return a Job with fields that the operator does not keep."""
    body = job(name, annotations={"example.com/a": "b"})
    body["metadata"]["labels"]["app"] = "a"
    spec = body["spec"]["template"]["spec"]
    spec["containers"][0].update(MORE)
    spec |= {"volumes": [{"name": "v", "emptyDir": {}}], "tolerations": [{"key": "a", "operator": "Exists"}]}
    return body


def holds(whole: Any, part: Any) -> bool:
    """Return whether all that was written is there; a server adds defaults."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(name in whole and holds(whole[name], part[name]) for name in part)
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(holds, whole, part))
    return bool(whole == part)


def kept_by(found: Admitting) -> int:
    """Return how many values the caches and the cases of an operator have."""
    bodies = [each.body for _, cache in found._caches for each in cache.everything()]
    return values_in([*bodies, *(case.subject.body for case in found._cases.values())])


async def test_large_jobs_of_one_namespace_are_not_kept_whole_and_others_start(
    api: Api, server: Server, namespace: str
) -> None:
    """Labelled or not; while they wait, are let in, and run."""
    jobs = Jobs(api, namespace)
    await jobs.limit(LARGE_JOBS)
    env = [{"name": f"a{each}"} for each in range(ENTRIES)]
    for number in range(LARGE_JOBS):
        body = job(f"large{number}", asks=number % 2 == 0)
        body["spec"]["template"]["spec"]["containers"][0]["env"] = env
        await jobs.create(body)
    async with admitting(server, namespaces=(namespace,), kinds=(JOB,)) as found:
        await jobs.create(job("small"))
        await jobs.until("small", lambda body: ADMITTED in body["metadata"].get("annotations", {}))
        for number in range(0, LARGE_JOBS, 2):
            stored = await jobs.until(f"large{number}", lambda body: body["spec"]["suspend"] is False)
            assert len(stored["spec"]["template"]["spec"]["containers"][0]["env"]) == ENTRIES
        assert len(list(found._caches[0][1].everything())) == LARGE_JOBS + 1
        assert kept_by(found) < 2 * (LARGE_JOBS + 1) * OF_ONE_JOB


async def test_a_job_that_is_let_in_keeps_what_is_not_read(api: Api, server: Server, namespace: str) -> None:
    """The patch that resumes it leaves its env, args, volumes and labels as they are."""
    jobs = Jobs(api, namespace)
    await jobs.limit(1)
    written = of_the_user("full")
    async with admitting(server, namespaces=(namespace,), kinds=(JOB,)):
        await jobs.create(written)
        stored = await jobs.until("full", lambda body: body["spec"]["suspend"] is False)
    written["spec"]["suspend"] = False
    assert holds(stored, written)
    assert stored["spec"]["template"]["metadata"]["labels"][GANG_LABEL]


async def test_a_patch_that_replaces_a_list_keeps_what_is_not_read(sandbox: Server) -> None:
    """The label of a JobSet's pods is in a list of templates, which a merge patch replaces as a whole."""
    template = {"spec": of_the_user("a")["spec"]}
    parts = [{"name": name, "replicas": 1, "template": template} for name in ("a", "b")]
    written = {**job("whole"), "apiVersion": JOB_SET.api_version, "kind": JOB_SET.kind}
    written["spec"] = {"suspend": True, "replicatedJobs": parts}
    namespace = f"test-{secrets.token_hex(5)}"
    async with Api(sandbox) as api:
        made(await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}}))
        sets = await served(api, namespace, JOB_SET)
        await Jobs(api, namespace).limit(5)
        async with admitting(sandbox, namespaces=(namespace,), kinds=(JOB_SET,)):
            await sets.create(written)
            stored = await sets.until("whole", lambda body: body["spec"]["suspend"] is False)
    written["spec"]["suspend"] = False
    assert holds(stored, written)
    labels = [each["template"]["spec"]["template"]["metadata"]["labels"] for each in stored["spec"]["replicatedJobs"]]
    assert len({each[GANG_LABEL] for each in labels}) == 1
