"""The demo on a real cluster: it compares in namespaces of its own, and deletes them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backoff_ctrl.k8s.lab.replay.rooms import RUN_LABEL
from tests.cluster.control_plane.servers import Server
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long

CLIENTS = {"plain", "ancestor", "gate_learning", "gate_observing"}
COLUMNS = "name,cpu_milli,memory_mib,num_gpu,qos,creation_time,deletion_time,scheduled_time"


def trace(folder: Path, *, pods: int, run_time: int) -> Path:
    """Write a trace of equal pods that arrive together, in two namespaces; two of them request no memory."""
    rows = [
        f"p{i},1000,{1024 if i > 1 else 0},0,{'LS' if i % 2 else 'Guaranteed'},{i},{1000 + run_time},1000"
        for i in range(pods)
    ]
    path = folder / "trace.csv"
    path.write_text("\n".join([COLUMNS, *rows]) + "\n")
    return path


@contextmanager
def demo(kubeconfig: Path, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command in its own process, with its stdout and stderr."""
    command = [sys.executable, "-m", "backoff_ctrl", "demo", "--kubeconfig", str(kubeconfig), *arguments]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait until it ends; returns exit code, stdout, stderr."""
    out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    return process.returncode, out, err


async def of_demos(api: Api) -> dict[str, str]:
    listed = (await api.get("/api/v1/namespaces", params={"labelSelector": RUN_LABEL})).json
    return {each["metadata"]["name"]: each["status"]["phase"] for each in listed["items"]}


async def contents(api: Api, namespaces: set[str]) -> dict[str, str]:
    """The resource versions of these namespaces and of the objects in them."""
    found = {}
    for name in namespaces:
        found[name] = (await api.get(f"/api/v1/namespaces/{name}")).json["metadata"]["resourceVersion"]
        for resource in ("pods", "resourcequotas", "configmaps"):
            for each in (await api.get(f"/api/v1/namespaces/{name}/{resource}")).json["items"]:
                found[f"{name}/{resource}/{each['metadata']['name']}"] = each["metadata"]["resourceVersion"]
    return found


@pytest.fixture
async def before(real_api: Api) -> set[str]:
    """The namespaces of earlier demos, which the cluster may still be deleting."""
    return set(await of_demos(real_api))


async def until_demo_runs(api: Api, before: set[str], process: subprocess.Popen[str]) -> str:
    """Wait until the demo has a pod; returns its namespace."""
    async with asyncio.timeout(PATIENCE):
        while True:
            assert process.poll() is None, process.communicate()
            for namespace in set(await of_demos(api)) - before:
                if (await api.get(f"/api/v1/namespaces/{namespace}/pods")).json["items"]:
                    return namespace
            await asyncio.sleep(0.05)  # between two reads from the server


async def until_deleted(api: Api, namespace: str, process: subprocess.Popen[str]) -> None:
    """Wait until the demo has deleted its namespaces."""
    async with asyncio.timeout(PATIENCE):
        while (await of_demos(api)).get(namespace) != "Terminating":
            assert process.poll() is None, process.communicate()
            await asyncio.sleep(0.05)  # between two reads from the server


async def test_the_comparison_runs_on_a_cluster_and_leaves_nothing_behind(
    kubernetes: Server, real_api: Api, real_namespace: str, before: set[str], tmp_path: Path
) -> None:
    """One JSON document; every client creates every pod once; its namespaces are deleted, all others are untouched."""
    await real_api.post(
        f"/api/v1/namespaces/{real_namespace}/resourcequotas",
        {"metadata": {"name": "theirs"}, "spec": {"hard": {"pods": "1"}}},
    )
    path = f"/api/v1/namespaces/{real_namespace}/resourcequotas/theirs"
    await real_api.until(path, lambda quota: quota.get("status", {}).get("hard"))
    for made in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):  # by controllers, a moment later
        await real_api.until(f"/api/v1/namespaces/{real_namespace}/{made}", bool)
    theirs = {real_namespace, "default", "kube-system"}
    untouched = await contents(real_api, theirs)

    rows = trace(tmp_path, pods=12, run_time=30)
    with demo(kubernetes.kubeconfig(), tmp_path, "--trace", str(rows), "--pods", "12", "--json") as process:
        code, out, err = await ended(process)
    document = json.loads(out)

    assert code == 0, err
    assert document["virtual"] is False
    assert set(document["clients"]) == CLIENTS
    for result in document["clients"].values():
        assert (result["admitted"], result["lost"], result["duplicated"]) == (12, 0, 0)
        assert result["creates_sent"] >= 12
    assert set(await of_demos(real_api)) <= before
    assert await contents(real_api, theirs) == untouched


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda stop: stop.name)
async def test_a_demo_that_is_stopped_cleans_up(
    kubernetes: Server, real_api: Api, before: set[str], tmp_path: Path, stop: signal.Signals
) -> None:
    """In the middle of a run with pods: no traceback, and all its namespaces are deleted."""
    rows = trace(tmp_path, pods=12, run_time=600)
    with demo(kubernetes.kubeconfig(), tmp_path, "--trace", str(rows), "--pods", "12") as process:
        namespace = await until_demo_runs(real_api, before, process)
        process.send_signal(stop)
        code, out, err = await ended(process)

    assert code == 1
    assert "Traceback" not in out + err
    assert "stopped" in err
    left = {name: phase for name, phase in (await of_demos(real_api)).items() if name not in before}
    assert set(left.values()) <= {"Terminating"}, (namespace, left)


async def test_no_node_ever_runs_the_demos_pods(
    kubernetes: Server, real_api: Api, before: set[str], tmp_path: Path
) -> None:
    """Their scheduler and their scheduling gate do not exist; they meet the strictest Pod Security Standard."""
    rows = trace(tmp_path, pods=12, run_time=600)
    with demo(kubernetes.kubeconfig(), tmp_path, "--trace", str(rows), "--pods", "12") as process:
        namespace = await until_demo_runs(real_api, before, process)
        pod = (await real_api.get(f"/api/v1/namespaces/{namespace}/pods")).json["items"][0]
        strict = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
        await real_api.patch(f"/api/v1/namespaces/{namespace}", strict, "application/merge-patch+json")
        again = {"metadata": {"name": "again"}, "spec": pod["spec"]}
        welcome = await real_api.post(f"/api/v1/namespaces/{namespace}/pods", again, params={"dryRun": "All"})
        process.send_signal(signal.SIGINT)
        await ended(process)

    assert pod["spec"]["schedulerName"] == "backoff-ctrl-demo"
    assert pod["spec"]["schedulingGates"] == [{"name": RUN_LABEL}]
    assert "nodeName" not in pod["spec"]
    assert welcome.status == 201 or "exceeded quota" in welcome.text, welcome.text


async def test_a_namespace_that_lost_its_label_is_left_alone(
    kubernetes: Server, real_api: Api, before: set[str], tmp_path: Path
) -> None:
    """Removing the label is a way to keep a namespace: the demo deletes only what is certainly its own."""
    rows = trace(tmp_path, pods=12, run_time=600)
    with demo(kubernetes.kubeconfig(), tmp_path, "--trace", str(rows), "--pods", "12") as process:
        namespace = await until_demo_runs(real_api, before, process)
        kept = {"metadata": {"labels": {RUN_LABEL: None}}}
        await real_api.patch(f"/api/v1/namespaces/{namespace}", kept, "application/merge-patch+json")
        process.send_signal(signal.SIGINT)
        await ended(process)
    found = (await real_api.get(f"/api/v1/namespaces/{namespace}")).json
    await real_api.delete(f"/api/v1/namespaces/{namespace}")

    assert found["status"]["phase"] == "Active"


async def test_an_interrupt_during_the_clean_up_does_not_lose_the_results(
    server: Server, api: Api, tmp_path: Path
) -> None:
    """The finished comparison is printed; only the wait for the last namespace, kept by a finalizer, is cut short."""
    before = set(await of_demos(api))
    rows = trace(tmp_path, pods=12, run_time=30)
    with demo(server.kubeconfig(), tmp_path, "--trace", str(rows), "--pods", "12", "--json") as process:
        namespace = await until_demo_runs(api, before, process)
        held = {"metadata": {"name": "held", "finalizers": ["example.com/held"]}}
        made = await api.post(f"/api/v1/namespaces/{namespace}/configmaps", held)
        await until_deleted(api, namespace, process)
        process.send_signal(signal.SIGINT)
        code, out, err = await ended(process)
    path = f"/api/v1/namespaces/{namespace}/configmaps/held"
    await api.patch(path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")

    assert made.status == 201, made.text
    assert code == 0, err
    assert set(json.loads(out)["clients"]) == CLIENTS
    assert namespace in err.partition("still being deleted by the cluster: ")[2]
