"""No Job is stopped in silence: whatever suspends one, it runs in the end, or people are told what to do.

Its file is applied once more, replaced, or restored from a backup, as people and their tools do it: with kubectl.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID, GANG_LABEL
from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.workloads.admitting.jobs import list_jobs, release
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, JOB, STAY_SUSPENDED, WAIT, WAITS_FOR
from tests.cluster.admitting.jobs_at_work import Jobs, admitting, job
from tests.cluster.admitting.test_told_by_events import told
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.objects import made, of_core
from tests.cluster.talking import MERGE

pytestmark = pytest.mark.long


class Kubectl:
    """kubectl with the file of one Job."""

    def __init__(self, bed: Bed, binaries: Binaries, jobs: Jobs, folder: Path) -> None:
        self._words = [str(binaries.kubectl), f"--kubeconfig={bed.server.kubeconfig('tester')}", "-n", jobs.namespace]
        self.file = folder / "job.json"

    def write(self, body: dict[str, Any]) -> None:
        self.file.write_text(json.dumps(body), encoding="utf-8")

    async def __call__(self, *words: str) -> str:
        done = await asyncio.to_thread(subprocess.run, [*self._words, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def apply(self, *words: str) -> None:
        await self("apply", "-f", str(self.file), *words)


@pytest.fixture
def kubectl(bed: Bed, binaries: Binaries, jobs: Jobs, tmp_path: Path) -> Kubectl:
    return Kubectl(bed, binaries, jobs, tmp_path)


async def again(jobs: Jobs, name: str, before: dict[str, Any]) -> dict[str, Any]:
    """Wait until a Job has been let in once more, and its pod is another one."""
    old = before["metadata"]["annotations"][ADMITTED]

    def let_in(body: dict[str, Any]) -> bool:
        return not body["spec"]["suspend"] and body["metadata"]["annotations"].get(ADMITTED) != old

    seen = await jobs.until(name, let_in)
    await jobs.pods_of(name, 1)
    return seen


async def test_a_job_that_is_applied_again_and_again_runs_once_more_and_then_says_who_stops_it(
    bed: Bed, jobs: Jobs, kubectl: Kubectl
) -> None:
    """Its file says that it is suspended. What was let in before keeps its room, and gets it when its turn comes."""
    await jobs.limit(1)
    kubectl.write(job("train"))
    configuration = find_place(None, str(bed.server.kubeconfig("tester")), None, None).configuration
    here = (jobs.namespace,)
    async with admitting(bed.server, namespaces=here, kinds=(JOB,)) as found:
        await kubectl.apply()
        first = await jobs.until("train", lambda body: not body["spec"]["suspend"])
        await jobs.pods_of("train", 1)
        await kubectl.apply()
        said = await told(jobs, "train", "SuspendedAgain")
        assert "the field manager kubectl-client-side-apply has suspended it after it was let in" in said
        assert f'{STAY_SUSPENDED}: "true"' in said
        second = await again(jobs, "train", first)
        await jobs.create(job("next"))
        await kubectl.apply()
        said = await told(jobs, "train", "NotLetInAgain")
        assert "kubectl-client-side-apply has suspended it twice within 10 minutes" in said
        await jobs.pods_of("next", 1)  # it holds no room
        held = await jobs.until("train", lambda body: "refused" in body["metadata"]["annotations"].get(WAITS_FOR, ""))
        assert "leave spec.suspend out of the file" in held["metadata"]["annotations"][WAITS_FOR]
        (row,) = (await list_jobs(configuration, namespaces=here, kinds=(JOB,))).jobs
        assert "leave spec.suspend out of the file" in row.waits_for["message"]
        await jobs.limit(2)
        await kubectl.apply()  # nothing of it changes
        await jobs.create(job("last"))
        await jobs.pods_of("last", 1)
        assert await jobs.running() == ["last", "next"]
        assert [each["name"] for each in found.waiting()] == ["train"]
    async with admitting(bed.server, namespaces=here, kinds=(JOB,)) as found:  # whoever leads next knows it, too
        await found._read.wait()
        await jobs.limit(3)
        await jobs.create(job("later"))
        await jobs.pods_of("later", 1)
        assert await jobs.running() == ["last", "later", "next"]
        await jobs.limit(4)
        await jobs.patch("train", {"spec": {"backoffLimit": 5}})
        await again(jobs, "train", second)
    assert [message for message in await jobs.refusals() if "quota" in message] == []


async def test_what_is_not_let_in_again_is_let_in_once_its_annotation_is_removed_and_is_released(
    bed: Bed, jobs: Jobs
) -> None:
    """``jobs release --all``, and so ``uninstall``, let it go as what waits."""
    await jobs.limit(5)
    configuration = find_place(None, str(bed.server.kubeconfig("tester")), None, None).configuration
    for name in ("removed", "released"):
        await jobs.create(job(name))
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        for name in ("removed", "released"):
            seen = await jobs.until(name, lambda body: not body["spec"]["suspend"])
            await jobs.patch(name, {"spec": {"suspend": True}})
            await again(jobs, name, seen)
            await jobs.patch(name, {"spec": {"suspend": True}})
            await told(jobs, name, "NotLetInAgain")
        await jobs.patch("removed", {"metadata": {"annotations": {ADMITTED: None}}})
        await jobs.pods_of("removed", 1)
        assert await jobs.running() == ["removed"]
    (freed,) = await release(configuration, by="uninstall", namespaces=(jobs.namespace,), kinds=(JOB,))
    assert (freed.label, freed.error) == (f"Job {jobs.namespace}/released", "")
    assert await jobs.running() == ["released", "removed"]


async def test_a_job_that_is_replaced_or_restored_with_all_its_annotations_waits_as_a_new_one(
    bed: Bed, jobs: Jobs, kubectl: Kubectl
) -> None:
    """The webhook is away: what is noted on it names another object."""
    await jobs.limit(1)
    await jobs.create(job("train"))
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        seen = await jobs.until("train", lambda body: not body["spec"]["suspend"])
        backup = json.loads(await kubectl("get", "job", "train", "-o", "json"))
        assert ADMITTED in backup["metadata"]["annotations"]
        spec = {name: value for name, value in backup["spec"].items() if name != "selector"}
        labels = backup["spec"]["template"]["metadata"]["labels"]
        ours = {name: value for name, value in labels.items() if name == GANG_LABEL}
        spec["template"] = {**spec["template"], "metadata": {"labels": ours}}
        metadata = {name: backup["metadata"][name] for name in ("name", "namespace", "annotations")}
        restored = {**backup, "metadata": {**metadata, "labels": {WAIT: "true"}}, "spec": {**spec, "suspend": True}}
        kubectl.write(restored)
        await kubectl("replace", "--force", "-f", str(kubectl.file))
        after = await again(jobs, "train", seen)
        assert after["metadata"]["uid"] != seen["metadata"]["uid"]
        await jobs.create(job("next"))
        await jobs.until("next", lambda body: WAITS_FOR in body["metadata"].get("annotations", {}))
        (pod,) = await jobs.pods_of("train", 1)
        await jobs.end(pod)
        await jobs.pods_of("next", 1)


async def test_the_label_of_a_namespace_counts_without_the_webhook(bed: Bed, jobs: Jobs) -> None:
    """What is suspended there is let in, and listed; of what was never suspended an event says so."""
    path = f"/api/v1/namespaces/{jobs.namespace}"
    configuration = find_place(None, str(bed.server.kubeconfig("tester")), None, None).configuration
    await jobs.limit(2)
    await jobs.create(job("early", asks=False))
    await jobs.create(job("kept", asks=False, annotations={STAY_SUSPENDED: "true"}))
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        await jobs.create(job("asks"))
        await jobs.pods_of("asks", 1)
        assert await jobs.running() == ["asks"]
        made(await jobs.api.patch(path, {"metadata": {"labels": {WAIT: "true"}}}, MERGE))
        await jobs.pods_of("early", 1)
        await jobs.create(job("late", asks=False))
        await jobs.until("late", lambda body: WAITS_FOR in body["metadata"].get("annotations", {}))
        for places in ((jobs.namespace,), ()):
            listed = (await list_jobs(configuration, namespaces=places, kinds=(JOB,))).jobs
            assert [each.name for each in listed if each.namespace == jobs.namespace] == ["late"]
        await jobs.create(job("runs", asks=False, suspend=False))
        assert "it was created without spec.suspend" in await told(jobs, "runs", "NotWaiting")
        assert await jobs.running() == ["asks", "early", "runs"]


async def test_a_labelled_job_that_was_never_suspended_is_told_so(bed: Bed, jobs: Jobs) -> None:
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        await jobs.create(job("runs", suspend=False))
        said = await told(jobs, "runs", "NotWaiting")
        assert "create it with spec.suspend: true" in said
        await jobs.until("runs", lambda body: ADMITTED in body["metadata"].get("annotations", {}))


async def test_the_marks_of_a_gate_leave_no_job_out_of_the_line(bed: Bed, jobs: Jobs) -> None:
    """Whoever exports a Job that a gate has created, and applies it, has a Job with that gate's marks."""
    await jobs.limit(1)
    for name, mark in (("a", {"annotations": {CREATE_ID: "x"}}), ("b", {"labels": {WAIT: "true", GANG_LABEL: "x"}})):
        body = job(name)
        body["metadata"].update(mark)
        await jobs.create(body)
        await asyncio.sleep(1.05)  # the server's times have whole seconds
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        (pod,) = await jobs.pods_of("a", 1)
        await jobs.until("b", lambda seen: WAITS_FOR in seen["metadata"].get("annotations", {}))
        await jobs.end(pod)
        await jobs.pods_of("b", 1)


async def test_pods_that_still_end_take_nothing_of_the_room_of_those_that_follow(bed: Bed, jobs: Jobs) -> None:
    """A Job that is suspended again is let in while its pods have their grace period: their room comes back."""
    await jobs.limit(2)
    body = job("train")
    body["spec"]["template"]["spec"]["nodeName"] = "nowhere"  # what has no node ends at once
    await jobs.create(body)
    async with admitting(bed.server, namespaces=(jobs.namespace,), kinds=(JOB,)):
        (old,) = await jobs.pods_of("train", 1)
        seen = await jobs.get("train")
        await jobs.patch("train", {"spec": {"suspend": True}})
        noted = seen["metadata"]["annotations"][ADMITTED]
        await jobs.until("train", lambda body: body["metadata"]["annotations"][ADMITTED] != noted)
        await jobs.until("train", lambda body: not body["spec"]["suspend"])
        path = of_core(jobs.namespace, "pods", old["metadata"]["name"])
        for number in range(20):  # as its kubelet does
            made(await jobs.api.patch(f"{path}/status", {"status": {"message": f"{number}"}}, MERGE))
        await jobs.pods_of("train", 2)
        await jobs.create(job("next"))
        await jobs.until("next", lambda body: WAITS_FOR in body["metadata"].get("annotations", {}))
        made(await jobs.api.delete(path, {"gracePeriodSeconds": 0}))
        await jobs.pods_of("next", 1)
    assert [message for message in await jobs.refusals() if "quota" in message] == []
