"""JobSet's controller manager beside a real API server: its definition, its reconcilers, and its webhooks on loopback.

The program is the one that its project ships. Its webhooks default and validate JobSets as in any cluster, but are
called at an address of this machine instead of through a Service, with a certificate of the test's own.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.admitting.managers import POLL, running
from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.custom_kinds import define_operators_kind
from tests.cluster.objects import made
from tests.cluster.proxying.crowd import free_port
from tests.cluster.talking import MERGE, Api
from tests.kit.patience import PATIENCE
from tests.proxying.passing.certificates import Pair, make_pair

JSON = dict[str, Any]
GROUP: Final = "jobset.x-k8s.io/v1alpha2"
NAME_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
"""The label that its pods carry."""
_HOOKS: Final = "/apis/admissionregistration.k8s.io/v1"


@asynccontextmanager
async def managed(api: Api, programs: GoPrograms, folder: Path) -> AsyncIterator[None]:
    """Have JobSets of this server defined, defaulted, validated and carried out; the log is in the folder."""
    await define_operators_kind(api, "jobsets", f"/apis/{GROUP}/jobsets")
    ports, pair = (free_port(), free_port()), make_pair(folder / "certs")
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_configuration(ports, pair)))
    command = (programs.path("manager"), f"--config={config}", f"--kubeconfig={api.server.kubeconfig('admin')}")
    async with running("jobset", command, ports[1], folder):
        await _called(api, ports[0], pair)
        yield


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
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await api.post(f"/apis/{GROUP}/namespaces/default/jobsets", probe, params={"dryRun": "All"})
            if answer.status == 201 and answer.json["spec"].get("network"):  # what the webhook's defaults set
                return
            await asyncio.sleep(POLL)


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
