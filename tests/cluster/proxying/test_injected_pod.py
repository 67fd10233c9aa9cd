"""The containers of an injected pod, run as processes: an unmodified creator in Go, and one in Python, are gated."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import Process
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.api.webhooks.mutation import inject, with_account
from backoff_ctrl.api.webhooks.sidecar import SidecarSettings
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.servers import Server
from tests.cluster.injecting.mounted import executed, sidecar_and_creator, started, volumes
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import JSON, MERGE, Api
from tests.kit.patience import PATIENCE

pytestmark = pytest.mark.long
CREATES: list[JSON] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["list", "watch"]},
]
"""The rights of an account that creates pods, and no more."""
HELD = ("--hold=600", "--hold-total=600")
ROTATED = 3
"""Certificates that creators must have met: the first one was replaced twice."""
ON_AND_ON = """
import json, os, ssl, sys
from hashlib import sha256
from kubernetes import client, config
config.load_incluster_config()
namespace, ends = sys.argv[1:]
address = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
trusted = client.Configuration.get_default_copy().ssl_ca_cert

def leaf():
    return sha256(ssl.get_server_certificate(address, ca_certs=trusted).encode()).hexdigest()

while not os.path.exists(ends):
    pod = {"metadata": {"generateName": "python-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    before = leaf()
    with client.ApiClient() as connection:
        made = client.CoreV1Api(connection).create_namespaced_pod(namespace, pod).metadata
    told = {"what": "created", "uid": made.uid, "leaf": before if before == leaf() else None}
    print(json.dumps(told), flush=True)
"""
PYTHON = """
import json, sys
from kubernetes import client, config
config.load_incluster_config()
core = client.CoreV1Api()
for number in range(3):
    pod = {"metadata": {"generateName": "python-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    print(json.dumps(core.create_namespaced_pod(sys.argv[1], pod).metadata.name), flush=True)
"""


async def test_an_injected_pod_gates_its_creator_which_nobody_changed(
    kubernetes: Server, creators: GoPrograms, real_namespace: str, tmp_path: Path
) -> None:
    """Its in-cluster configuration leads to the sidecar: the address, whom to trust, and its own token.

    One pod fits, two wait, and are created once the quota has room; none is refused to its creator.
    """
    async with Api(kubernetes, "admin") as api:
        base = f"/api/v1/namespaces/{real_namespace}"
        await Room(api, real_namespace).quota("q", {"pods": "1"})
        pod = await injected(api, real_namespace, "--hold=60", "--hold-total=60", taken=(6443, 9096))
        folders = await volumes(api, kubernetes, pod, tmp_path)
        sidecar, main = sidecar_and_creator(pod)
        gate = [sys.executable, "-m", "backoff_ctrl"]
        async with started(sidecar, folders, gate, kubernetes, tmp_path / "sidecar.log") as process:
            assert process.stdout is not None
            said = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode()
            assert said.startswith("listening on https://127.0.0.1:6444"), (tmp_path / "sidecar.log").read_text()
            go = [str(creators.path("creator")), "-namespace", real_namespace, "-count=3", "-parallel=3"]
            for first, program in ((1, [*go, "-prefix=go-"]), (4, [sys.executable, "-c", PYTHON, real_namespace])):
                await limit(api, real_namespace, first)
                async with started(main, folders, program, kubernetes, tmp_path / "creator.log") as creator:
                    await api.until(f"{base}/resourcequotas/q", partial(uses, first))
                    await limit(api, real_namespace, first + 2)
                    output, _ = await asyncio.wait_for(creator.communicate(), PATIENCE)
                    assert creator.returncode == 0, (tmp_path / "creator.log").read_text() + output.decode()
                assert refusals(output.decode()) == []
            pods = (await api.get(f"{base}/pods")).json["items"]
            assert len(pods) == 6
            assert all("backoff-ctrl.dev/create-id" in each["metadata"]["annotations"] for each in pods)
            process.terminate()
            assert await process.wait() == 0


async def test_who_waits_in_a_pod_is_asked_in_its_sidecar_and_shown_on_the_pod(
    kubernetes: Server, real_namespace: str, tmp_path: Path
) -> None:
    """``kubectl exec POD -c backoff-ctrl -- backoff-ctrl waiting``, with nothing set; also what needs the token.

    After half a minute an event of the pod says so, and another one that its create was created.
    """
    async with Api(kubernetes, "admin") as api:
        base = f"/api/v1/namespaces/{real_namespace}"
        await Room(api, real_namespace).quota("q", {"pods": "1"})
        pod = await injected(
            api, real_namespace, "--hold=600", "--hold-total=600", taken=(6443, 6444, *range(9096, 9099))
        )
        stored = await api.post(f"{base}/pods", pod)
        assert stored.status == 201, stored.text
        pod = stored.json
        await api.until(f"{base}/resourcequotas/q", lambda found: found["status"].get("used", {}).get("pods") == "1")
        folders = await volumes(api, kubernetes, pod, tmp_path)
        sidecar, main = sidecar_and_creator(pod)
        gate = [sys.executable, "-m", "backoff_ctrl"]
        log = tmp_path / "sidecar.log"
        async with started(sidecar, folders, gate, kubernetes, log, pod) as process:
            assert process.stdout is not None
            said = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode()
            assert said.startswith("listening on "), log.read_text()
            program = [sys.executable, "-c", PYTHON, real_namespace]
            async with started(main, folders, program, kubernetes, tmp_path / "creator.log") as creator:

                async def line() -> str:
                    return await executed(process, sidecar, pod, *gate, "waiting")

                async with asyncio.timeout(PATIENCE):
                    while "pods/python-" not in (found := await line()):
                        assert process.returncode is None, log.read_text()
                        await asyncio.sleep(0.2)
                assert "q pods: asked 1, left 0" in found
                said = await executed(process, sidecar, pod, *gate, "holders", "--json")
                assert said.startswith("{"), said
                held = json.loads(said)
                assert held["namespace"] == real_namespace  # as kubectl there: its own
                acted = await executed(process, sidecar, pod, *gate, "act", "pause", real_namespace)
                assert "wait until you resume it" in acted, acted
                assert "paused by operator" in await line()
                await executed(process, sidecar, pod, *gate, "act", "resume", real_namespace)
                events = f"{base}/events"
                about = {"fieldSelector": f"involvedObject.uid={pod['metadata']['uid']},reason=WaitingForQuota"}
                async with asyncio.timeout(PATIENCE):
                    while not (told := (await api.get(events, params=about)).json["items"]):  # noqa: ASYNC110
                        await asyncio.sleep(0.5)
                assert "pods python-* is waiting: it requests pods=1, but quota q has 0 of 1 left" in told[0]["message"]
                await limit(api, real_namespace, 9)
                await asyncio.wait_for(creator.communicate(), PATIENCE)
                assert creator.returncode == 0, (tmp_path / "creator.log").read_text()
            process.terminate()
            assert await process.wait() == 0
        assert "not served" not in log.read_text()


async def test_an_account_without_the_right_to_events_waits_all_the_same(
    kubernetes: Server, real_namespace: str, tmp_path: Path
) -> None:
    """It is said once in the log of the sidecar, and what waits is created once there is room."""
    async with Api(kubernetes, "admin") as api:
        base = f"/api/v1/namespaces/{real_namespace}"
        await Room(api, real_namespace).quota("q", {"pods": "1"})
        pod = await injected(
            api,
            real_namespace,
            "--hold=600",
            "--hold-total=600",
            taken=(*range(6443, 6446), *range(9096, 9101)),
            rules=CREATES,
        )
        pod = (await api.post(f"{base}/pods", pod)).json
        await api.until(f"{base}/resourcequotas/q", lambda found: found["status"].get("used", {}).get("pods") == "1")
        folders = await volumes(api, kubernetes, pod, tmp_path)
        sidecar, main = sidecar_and_creator(pod)
        log = tmp_path / "sidecar.log"
        async with started(sidecar, folders, [sys.executable, "-m", "backoff_ctrl"], kubernetes, log, pod) as process:
            assert process.stdout is not None
            await asyncio.wait_for(process.stdout.readline(), PATIENCE)
            program = [sys.executable, "-c", PYTHON, real_namespace]
            async with started(main, folders, program, kubernetes, tmp_path / "creator.log") as creator:
                async with asyncio.timeout(PATIENCE):
                    while "not allowed to write Kubernetes events" not in log.read_text():
                        assert process.returncode is None, log.read_text()
                        await asyncio.sleep(0.5)
                await limit(api, real_namespace, 9)
                await asyncio.wait_for(creator.communicate(), PATIENCE)
                assert creator.returncode == 0, (tmp_path / "creator.log").read_text()
            process.terminate()
            assert await process.wait() == 0
        assert log.read_text().count("not allowed to write") == 1


async def test_certificates_that_change_under_load_lose_and_double_no_create(
    kubernetes: Server, creators: GoPrograms, real_namespace: str, tmp_path: Path
) -> None:
    """A creator in Go keeps its connections, one in Python makes a new one for each create: nobody hears a refusal.

    Both go on, through a quota that makes room for one pod after the other, until the sidecar's certificate was
    replaced twice, once at least under open connections of Go. What they were told is what the server has.
    """
    async with Api(kubernetes, "admin") as api:
        base = f"/api/v1/namespaces/{real_namespace}"
        await Room(api, real_namespace).quota("q", {"pods": "1"})
        options = ("--hold=60", "--hold-total=60", "--tls-leaf-life=10")
        pod = await injected(api, real_namespace, *options, taken=(6443, 6444, 9096, 9097))
        folders = await volumes(api, kubernetes, pod, tmp_path)
        sidecar, main = sidecar_and_creator(pod)
        ends, log = tmp_path / "ends", tmp_path / "python.log"
        go = [str(creators.path("creator")), "-namespace", real_namespace, "-count=30", "-parallel=6"]
        python = [sys.executable, "-c", ON_AND_ON, real_namespace, str(ends)]
        told: list[JSON] = []
        async with started(
            sidecar, folders, [sys.executable, "-m", "backoff_ctrl"], kubernetes, tmp_path / "log"
        ) as gate:
            assert gate.stdout is not None
            assert (await asyncio.wait_for(gate.stdout.readline(), PATIENCE)).startswith(
                b"listening on https://127.0.0.1:6445"
            )
            async with (
                started(main, folders, python, kubernetes, log) as creator,
                asyncio.timeout(PATIENCE),
                asyncio.TaskGroup() as group,
            ):
                room = group.create_task(one_by_one(api, real_namespace))
                hearing = group.create_task(heard(creator, told, log))
                spanned = False
                while not spanned or len(leaves(told)) < ROTATED:
                    before = leaves(told)
                    async with started(main, folders, go, kubernetes, tmp_path / "go.log") as crowd:
                        said = await heard(crowd, [], tmp_path / "go.log")
                    words = [line["what"] for line in said if line["what"] != "seen"]
                    assert words == ["synced", *["created"] * 30, "done"]
                    told += said
                    spanned |= bool(before) and leaves(told) > before
                ends.touch()
                await hearing
                room.cancel()
            stored = [each["metadata"]["uid"] for each in (await api.get(f"{base}/pods")).json["items"]]
            assert sorted(stored) == sorted(line["uid"] for line in told if line["what"] == "created")
            gate.terminate()
            assert await gate.wait() == 0


async def one_by_one(api: Api, namespace: str) -> None:
    """Make room for another pod each time that the quota is full, so that there is always a create that waits."""
    pods = 1
    while True:
        await api.until(f"/api/v1/namespaces/{namespace}/resourcequotas/q", partial(uses, pods))
        pods += 1
        await limit(api, namespace, pods)


async def heard(creator: Process, told: list[JSON], log: Path) -> list[JSON]:
    """Add each line that a creator prints; return them all once it has ended, and ended well."""
    assert creator.stdout is not None
    async for line in creator.stdout:
        told.append(json.loads(line))  # noqa: PERF401 - others look at it meanwhile
    assert await creator.wait() == 0, await asyncio.to_thread(log.read_text)
    return told


def leaves(told: list[JSON]) -> set[str]:
    """Return the certificates under which creates have got their connection."""
    return {line["leaf"] for line in told if line.get("leaf")}


def uses(pods: int, quota: JSON) -> bool:
    return bool(quota["status"]["used"]["pods"] == str(pods))


async def limit(api: Api, namespace: str, pods: int) -> None:
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/q"
    reply = await api.patch(path, {"spec": {"hard": {"pods": str(pods)}}}, MERGE)
    assert reply.status == 200, reply.text


async def injected(
    api: Api, namespace: str, *args: str, taken: tuple[int, ...] = (), rules: list[JSON] | None = None
) -> JSON:
    """Return a pod as it is stored with its sidecar, of an account that may edit, or has these ``rules`` alone.

    ``taken``: ports that its creator listens on itself. The sidecar has others: here pods share those of the machine.
    """
    account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    binding = {
        "metadata": {"name": "creator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [account],
    }
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    if rules is not None:
        assert (await api.post(f"{path}/roles", {"metadata": {"name": "creator"}, "rules": rules})).status == 201
        binding["roleRef"] = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "creator"}
    assert (await api.post(f"{path}/rolebindings", binding)).status == 201
    await api.until(f"/api/v1/namespaces/{namespace}/serviceaccounts/default", bool)
    manifest: dict[str, Any] = {"metadata": {"name": "creator", "namespace": namespace}}
    main = {"name": "main", "image": "i", "ports": [{"containerPort": port} for port in taken]}
    manifest["spec"] = {"serviceAccountName": "default", "containers": [main]}
    what = inject(with_account(manifest), SidecarSettings(args=args))
    assert what.pod is not None
    return what.pod


def refusals(output: str) -> list[object]:
    lines = [json.loads(line) for line in output.splitlines()]
    return [line for line in lines if isinstance(line, dict) and line["what"] == "failed"]
