"""Runs the containers of a stored pod as processes: the same mounts, environment and arguments, as a kubelet would.

Each process has a mount namespace of its own, in which its volumes lie where its manifest says.
"""

from __future__ import annotations

import asyncio
import shlex
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from backoff_ctrl.api.webhooks.sidecar import NAME
from tests.cluster.control_plane.servers import Server
from tests.cluster.talking import JSON, Api


async def volumes(api: Api, server: Server, pod: JSON, folder: Path) -> dict[str, Path]:
    """Write a pod's volumes; return their folders by name."""
    namespace = pod["metadata"]["namespace"]
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/{pod['spec']['serviceAccountName']}"
    found = {}
    for volume in pod["spec"]["volumes"]:
        found[volume["name"]] = path = folder / volume["name"]
        path.mkdir()
        for source in volume.get("projected", {}).get("sources", ()):
            if wanted := source.get("serviceAccountToken"):
                asked = {"spec": {"audiences": [], "expirationSeconds": wanted["expirationSeconds"]}}
                token = (await api.post(f"{account}/token", asked)).json["status"]["token"]
                (path / wanted["path"]).write_text(token)
            for item in source.get("configMap", {}).get("items", ()):
                assert server.certificate is not None
                (path / item["path"]).write_bytes(server.certificate.read_bytes())
            for item in source.get("downwardAPI", {}).get("items", ()):
                (path / item["path"]).write_text(namespace)
    return found


@asynccontextmanager
async def started(
    container: JSON, folders: dict[str, Path], program: list[str], server: Server, log: Path, pod: JSON | None = None
) -> AsyncIterator[Process]:
    """Run a container, and end it. It finds the API server as the kubelet tells, unless its manifest says otherwise."""
    port = server.url.rpartition(":")[2]
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(log.parent)}
    environment |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    environment |= {entry["name"]: entry.get("value", "") for entry in container.get("env", ())}
    environment |= of_pod(container, pod or {})
    lines = ["set -e", "mount -t tmpfs none /var/run"]
    for mount in container["volumeMounts"]:
        path, source = shlex.quote(mount["mountPath"]), shlex.quote(str(folders[mount["name"]]))
        lines += [f"mkdir -p {path}", f"mount --bind {source} {path}"]
        if mount.get("readOnly"):
            lines.append(f"mount -o remount,bind,ro {path}")
    lines.append(f"exec {shlex.join([*program, *container.get('args', ())])}")
    command = ["unshare", "--mount", "sh", "-c", "\n".join(lines)]
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def of_pod(container: JSON, pod: JSON) -> dict[str, str]:
    """The variables that a container takes from its pod."""
    refs = {each["name"]: each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for each in container["env"]}
    about = pod.get("metadata", {})
    return {name: about.get(field.removeprefix("metadata."), "") for name, field in refs.items() if field}


async def executed(process: Process, container: JSON, pod: JSON, *words: str) -> str:
    """Run a command in a container that runs, as ``kubectl exec`` does: its environment, its files."""
    given = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry} | of_pod(container, pod)
    given |= service_of(process)
    asked = await asyncio.create_subprocess_exec(
        "nsenter", "--mount", f"--target={process.pid}", *words,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **given},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asked.communicate()
    return output.decode()


def service_of(process: Process) -> dict[str, str]:
    """Return where the kubelet has told a container that the API server is."""
    found = (each.partition("=") for each in Path(f"/proc/{process.pid}/environ").read_text().split("\0"))
    return {name: value for name, _, value in found if name.startswith("KUBERNETES_SERVICE_")}


def sidecar_and_creator(pod: JSON) -> tuple[JSON, JSON]:
    first, second = pod["spec"]["initContainers"][0], pod["spec"]["containers"][0]
    assert first["name"] == NAME
    return first, second
