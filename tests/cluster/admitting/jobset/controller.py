"""JobSet's controller manager beside a real API server: its definition, its reconcilers, and its webhooks on loopback.

The program is the one that its project ships. Its webhooks default and validate JobSets as in any cluster, but are
called at an address of this machine instead of through a Service, with a certificate of the test's own.
"""

from __future__ import annotations

import asyncio
import base64
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.guardian import Guardian
from tests.cluster.custom_kinds import define_operators_kind
from tests.cluster.objects import made
from tests.cluster.proxying.crowd import free_port
from tests.cluster.talking import MERGE, Api
from tests.proxying.passing.certificates import Pair, make_pair

JSON = dict[str, Any]
GROUP: Final = "jobset.x-k8s.io/v1alpha2"
NAME_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
"""The label that its pods carry."""
_HOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
_PATIENCE: Final = 60.0
"""Seconds until a manager that is not ready is given up."""
_POLL: Final = 0.05
_TAIL: Final = 2000


@asynccontextmanager
async def managed(api: Api, programs: GoPrograms, folder: Path) -> AsyncIterator[None]:
    """Have JobSets of this server defined, defaulted, validated and carried out; the log is in the folder."""
    await define_operators_kind(api, "jobsets", f"/apis/{GROUP}/jobsets")
    ports, pair = (free_port(), free_port()), make_pair(folder / "certs")
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_configuration(ports, pair)))
    log = folder / "manager.log"
    command = (programs.path("manager"), f"--config={config}", f"--kubeconfig={api.server.kubeconfig('admin')}")
    with Guardian(folder / "certs") as guardian, log.open("wb") as words:
        process = await asyncio.create_subprocess_exec(*command, stdout=words, stderr=words, start_new_session=True)
        guardian.watch(process.pid)
        try:
            if not await _is_ready(process, f"http://127.0.0.1:{ports[1]}/readyz"):
                raise RuntimeError(f"JobSet's manager has ended: {_last_words(log)}")
            await _called(api, ports[0], pair)
            yield
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            guardian.forget(process.pid)


def _configuration(ports: tuple[int, int], pair: Pair) -> JSON:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": ports[0], "certDir": str(pair.certificate.parent)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports[1]}"},
        "metrics": {"bindAddress": "0"},
    }


async def _is_ready(process: Process, url: str) -> bool:
    """Wait until it is ready, or has ended."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(_PATIENCE):
        while process.returncode is None:
            with suppress(aiohttp.ClientError):
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return True
            await asyncio.sleep(_POLL)
    return False


def _last_words(log: Path) -> str:
    return log.read_text()[-_TAIL:]


async def _called(api: Api, port: int, pair: Pair) -> None:
    """Have the API server call the webhooks, those of pods for the pods of JobSets alone, and wait until it does."""
    for kind, verb in (("Mutating", "mutate"), ("Validating", "validate")):
        hooks = [
            _webhook(f"{verb[0]}jobset.kb.io", f"/{verb}-jobset-x-k8s-io-v1alpha2-jobset", port, pair),
            _webhook(f"{verb[0]}pod.kb.io", f"/{verb}--v1-pod", port, pair),
        ]
        path = f"{_HOOKS}/{kind.lower()}webhookconfigurations"
        if (await api.get(f"{path}/jobset")).status == 200:
            made(await api.patch(f"{path}/jobset", {"webhooks": hooks}, MERGE))
        else:
            made(await api.post(path, {"metadata": {"name": "jobset"}, "webhooks": hooks}))
    probe = {"apiVersion": GROUP, "kind": "JobSet", "metadata": {"name": "probe"}, "spec": {}}
    async with asyncio.timeout(_PATIENCE):
        while True:
            answer = await api.post(f"/apis/{GROUP}/namespaces/default/jobsets", probe, params={"dryRun": "All"})
            if answer.status == 201 and answer.json["spec"].get("network"):  # what the webhook's defaults set
                return
            await asyncio.sleep(_POLL)


def _webhook(name: str, path: str, port: int, pair: Pair) -> JSON:
    of_pods = "pod" in name
    group, version, resource = ("", "v1", "pods") if of_pods else (*GROUP.split("/"), "jobsets")
    verbs = ["CREATE"] if of_pods or name.startswith("m") else ["CREATE", "UPDATE"]
    named = {"matchExpressions": [{"key": NAME_LABEL, "operator": "Exists"}]}
    return {
        "name": name,
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}{path}",
            "caBundle": base64.b64encode(pair.certificate.read_bytes()).decode(),
        },
        "rules": [{"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": verbs}],
        "objectSelector": named if of_pods else {},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
