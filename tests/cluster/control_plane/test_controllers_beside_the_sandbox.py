"""A real kube-controller-manager works beside the sandbox, which runs no controllers for Jobs and Deployments."""

from __future__ import annotations

import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.lab.replay.jobs import PLAIN, make_jobs, run_jobs
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.cluster.control_plane.bed import CONTROLLERS
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.control_plane.guardian import Guardian
from tests.cluster.control_plane.servers import Server
from tests.cluster.quotas.quota_room import Room, container
from tests.cluster.talking import MERGE, Api
from tests.replaying.test_jobs import check

WANTED = "job-controller,replicaset-controller,deployment-controller,serviceaccount-controller"


@contextmanager
def controllers(binaries: Binaries, server: Server, folder: Path) -> Iterator[None]:
    """A kube-controller-manager that follows the server for the length of the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "guarded").mkdir()
    log = folder / "controllers.log"
    with Guardian(folder / "guarded") as guardian, log.open("wb") as out:
        flags = [f"--kubeconfig={server.kubeconfig('admin')}", f"--controllers={WANTED}", "--leader-elect=false"]
        place = ["--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={folder / 'certs'}"]
        process = subprocess.Popen([binaries.path(CONTROLLERS), *flags, *place], stdout=out, stderr=out)
        guardian.watch(process.pid)
        try:
            yield
            assert process.poll() is None, log.read_text()[-2000:]
        finally:
            process.kill()
            process.wait()
            guardian.forget(process.pid)


async def of_owner(room: Room, kind: str) -> list[dict[str, Any]]:
    """The pods that objects of this kind own."""
    pods = (await room.api.get(room.path("pods"))).json["items"]
    return [pod for pod in pods if pod["metadata"].get("ownerReferences", [{}])[0].get("kind") == kind]


def has_finished(pods: int, job: dict[str, Any]) -> bool:
    """Whether so many of the Job's pods have."""
    return bool(job.get("status", {}).get("succeeded") == pods)


@pytest.mark.long
async def test_real_controllers_run_jobs_and_deployments_on_the_sandbox(binaries: Binaries, tmp_path: Path) -> None:
    """A Job's pods wait for quota, finish, and complete it; a Deployment gets its ReplicaSet and its pod."""
    with running_sandbox(seed=3) as running:
        server = Server("sandbox", 36, running.url, None, tmp_path, {"admin": "admin"}, lambda: None)
        with controllers(binaries, server, tmp_path):
            async with Api(server, "admin") as api:
                await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
                room = Room(api, "team")
                await room.quota("q", {"pods": "1"})
                once = {"restartPolicy": "Never", "containers": [container()]}
                spec = {"completions": 2, "parallelism": 2, "template": {"spec": once}}
                await room.create("jobs.batch", {"metadata": {"name": "work"}, "spec": spec})
                for finished in (1, 2):
                    await room.until_used({"pods": "1"})
                    (pod,) = [each for each in await of_owner(room, "Job") if each["status"]["phase"] == "Pending"]
                    path = room.path("pods", pod["metadata"]["name"], "status")
                    assert (await api.patch(path, {"status": {"phase": "Succeeded"}}, MERGE)).status == 200
                    await api.until(room.path("jobs.batch", "work"), partial(has_finished, finished))
                await api.until(
                    room.path("jobs.batch", "work"),
                    lambda job: "Complete" in [each["type"] for each in job["status"].get("conditions", [])],
                )
                labels = {"app": "web"}
                template = {"metadata": {"labels": labels}, "spec": {"containers": [container()]}}
                spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
                await room.create("deployments.apps", {"metadata": {"name": "web"}, "spec": spec})
                await room.until_used({"pods": "1"})
                assert len(await of_owner(room, "ReplicaSet")) == 1


@pytest.mark.long
def test_the_simulated_job_controller_keeps_the_pace_of_the_real_one(binaries: Binaries) -> None:
    """The same Jobs under the same quota: about as many refusals, each of which makes its Job wait twice as long."""
    simulated, real = (
        run_jobs(make_jobs(9, 1), seed=1, program=program) for program in (None, binaries.path(CONTROLLERS))
    )
    for run in (simulated, real):
        check(run, 9)
    assert real.controller == f"kube-controller-manager v{binaries.recipe.version} (--kube-api-qps=200)"
    assert 0.5 <= simulated.sides[PLAIN].refused / real.sides[PLAIN].refused <= 2
    for run in (simulated, real):
        plain = run.sides[PLAIN]
        before = Counter(name for when, name in plain.refusals if when < plain.began[name])
        assert before
        for name, times in before.items():
            assert plain.began[name] - plain.created[name] > 2**times - 1.1
