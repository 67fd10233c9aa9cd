"""What a tenant says is made of another's Job, in a namespace of his own, counts as nothing of that Job."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from backoff_ctrl.k8s.kube.answers.objects import object_of
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.kube.watching.status import WatchRecord
from backoff_ctrl.k8s.lab.sandbox import Sandbox
from backoff_ctrl.k8s.workloads.admitting.admitting import Admitting
from backoff_ctrl.k8s.workloads.admitting.children import Children
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB, controller_of
from tests.cluster.admitting.jobs_at_work import job
from tests.kit.patience import PATIENCE

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def with_claim(name: str) -> dict[str, Any]:
    body = job(name)
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}}
    body["spec"]["template"]["spec"]["volumes"] = [volume]
    return body


async def until(holds: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is asked has no event
            await asyncio.sleep(0.01)


async def test_a_claim_in_another_namespace_takes_no_room_of_a_job_that_it_names() -> None:
    """It would count as the Job's own, which then would need more than it had asked for: the next one would wait."""
    async with Sandbox() as sandbox:
        for namespace in ("team", "tenant"):
            sandbox.create_namespace(namespace)
        sandbox.create_quota("team", "q", {"persistentvolumeclaims": "2"})
        jobs, claims = sandbox.kind("jobs", "batch"), sandbox.kind("persistentvolumeclaims")
        first = sandbox.create(jobs, "team", with_claim("a-first"))
        place = find_place(sandbox.url, None, None, "team")
        async with Admitting(place.configuration, kinds=(JOB,), events=False) as admitting:
            leading = asyncio.create_task(admitting.lead())
            await until(lambda: admitting.counts.admitted)
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "a-first", "uid": first["metadata"]["uid"]}
            metadata = {"ownerReferences": [{**owner, "controller": True}]}
            for namespace, name in (("tenant", "forged"), ("team", "real")):
                body = {"metadata": {**metadata, "name": name}, "spec": CLAIM}
                uid = sandbox.create(claims, namespace, body)["metadata"]["uid"]
                await until(lambda uid=uid: admitting._children.find(uid))
            sandbox.create(jobs, "team", with_claim("b-next"))
            # Not at once: for a second after the watch of quotas has begun, room of members is doubted.
            await until(lambda: admitting.counts.admitted.total() > 1)
            assert admitting.waiting() == []
            leading.cancel()
            with suppress(asyncio.CancelledError):
                await leading


def test_what_is_made_of_an_object_is_in_its_namespace() -> None:
    """A Service that a tenant says is a JobSet's would count as made: no room would be kept for the real one."""
    place = find_place("http://localhost", None, None, "team")
    source = ClusterSource(ClusterSession(place.configuration))
    children = Children(source, WatchRecord(), [None], ["services"], lambda *_: None)
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": "u", "controller": True}
    for namespace in ("team", "tenant"):
        metadata = {"uid": namespace, "namespace": namespace, "name": "s", "ownerReferences": [owner]}
        body = {"metadata": metadata}
        children.note("services", object_of(body), controller_of(body), gone=False)
    assert [child.uid for child in children.below("team", "u")] == ["team"]
    children.remove("team")
    assert not list(children.below("team", "u"))


def quota_of(waits: dict[str, Any]) -> Any:
    return waits.get("quota")
