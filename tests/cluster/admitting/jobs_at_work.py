"""Jobs and their like under a quota in a namespace, and somebody who finishes their pods: what admission is about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from backoff_ctrl.k8s.kube.cluster.finding import find_place
from backoff_ctrl.k8s.workloads.admitting.admitting import Admitting
from backoff_ctrl.k8s.workloads.admitting.kinds import JOB, KINDS, WAIT, AdmissibleKind
from tests.cluster.control_plane.servers import Server
from tests.cluster.objects import made, of_core, of_group
from tests.cluster.talking import MERGE, Api
from tests.kit.patience import PATIENCE

JSON = dict[str, Any]
BATCH: Final = "batch/v1"


def job(name: str, *, asks: bool = True, suspend: bool = True, annotations: JSON | None = None, **spec: Any) -> JSON:
    """A Job of one pod that asks for 1 CPU; ``asks``: it carries the label."""
    container = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    metadata: JSON = {"name": name, "labels": {WAIT: "true"} if asks else {}, "annotations": annotations or {}}
    return {
        "apiVersion": BATCH,
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": suspend, "backoffLimit": 6, "template": template, **spec},
    }


class Jobs:
    """What a test does with the objects of a kind in its namespace: Jobs, or what ``kind`` says.

    ``label`` is that of their pods with the name of the object.
    """

    def __init__(
        self, api: Api, namespace: str, kind: AdmissibleKind = JOB, label: str = "batch.kubernetes.io/job-name"
    ) -> None:
        self.api = api
        self.namespace = namespace
        self._kind = kind
        self._label = label

    async def limit(self, cpu: int, pods: int = 100) -> None:
        """Create the quota, or edit it, and wait until it holds."""
        path = of_core(self.namespace, "resourcequotas")
        hard = {"requests.cpu": str(cpu), "pods": str(pods)}
        if (await self.api.get(f"{path}/q")).status == 200:
            made(await self.api.patch(f"{path}/q", {"spec": {"hard": hard}}, MERGE))
        else:
            made(await self.api.post(path, {"metadata": {"name": "q"}, "spec": {"hard": hard}}))
        await self.api.until(f"{path}/q", lambda q: q.get("status", {}).get("hard") == hard and "used" in q["status"])

    def path(self, *name: str) -> str:
        return of_group(self._kind.api_version, self.namespace, self._kind.plural, *name)

    async def create(self, body: JSON) -> JSON:
        return made(await self.api.post(self.path(), body))

    async def patch(self, name: str, patch: JSON) -> None:
        made(await self.api.patch(self.path(name), patch, MERGE))

    async def get(self, name: str) -> JSON:
        return made(await self.api.get(self.path(name)))

    async def until(self, name: str, holds: Any) -> JSON:
        return await self.api.until(self.path(name), holds)

    async def ended(self, name: str) -> JSON:
        """Wait until one has ended, and its controller has said so."""
        return await self.until(name, self._kind.has_ended)

    async def running(self) -> list[str]:
        """Return the names of those that are not suspended, and have not ended."""
        found = made(await self.api.get(self.path()))["items"]
        kind = self._kind
        return sorted(
            each["metadata"]["name"] for each in found if not kind.is_suspended(each) and not kind.has_ended(each)
        )

    async def pods(self, name: str = "") -> list[JSON]:
        """Return the living pods, of one object."""
        params = {"labelSelector": f"{self._label}={name}"} if name else {}
        found = made(await self.api.get(of_core(self.namespace, "pods"), params=params))["items"]
        return [each for each in found if each["status"].get("phase") not in ("Succeeded", "Failed")]

    async def pods_of(self, name: str, number: int) -> list[JSON]:
        """Wait until one has so many living pods."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE
        while len(found := await self.pods(name)) != number:
            assert clock() < deadline, f"{name} has {len(found)} pods, not {number}: {await self.refusals()}"
            await asyncio.sleep(0.05)
        return found

    async def end(self, pod: JSON, phase: str = "Succeeded") -> None:
        path = of_core(self.namespace, "pods", pod["metadata"]["name"], "status")
        made(await self.api.patch(path, {"status": {"phase": phase}}, MERGE))

    async def refusals(self) -> list[str]:
        """Return what the Job controller was refused, and what the quota has refused to others."""
        found = made(await self.api.get(of_core(self.namespace, "events")))["items"]
        said = ((each["reason"], each["message"]) for each in found)
        return [message for reason, message in said if reason == "FailedCreate" or "exceeded quota" in message]


@asynccontextmanager
async def admitting(
    server: Server, *, namespaces: tuple[str, ...] = (), kinds: tuple[AdmissibleKind, ...] = KINDS, **options: Any
) -> AsyncIterator[Admitting]:
    """Somebody who leads, and is killed at the end of the block."""
    configuration = find_place(None, str(server.kubeconfig("tester")), None, None).configuration
    async with Admitting(configuration, namespaces=namespaces, kinds=kinds, **options) as found:
        leading = asyncio.create_task(found.lead())
        try:
            yield found
        finally:
            leading.cancel()
            with suppress(asyncio.CancelledError):
                await leading
