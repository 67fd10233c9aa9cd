"""Operators of the two custom resources: a simulation just takes its time; a cluster has a driver and workers as pods.

They do as operators do: a pod that the quota refuses is tried again after a while, and counts as refused.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, Self

from tests.cluster.talking import Api
from tests.tasks.workload.four_types import CLUSTERS, GROUP, SIMULATIONS

JSON = dict[str, Any]
LOOK: float = 0.1
"""Seconds between two looks at all objects."""
MERGE = "application/merge-patch+json"
OWNED = "example.com/cluster"


class FakeOperators:
    """Both operators, from the beginning of the block to its end."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._begun: dict[str, float] = {}
        self._made: set[str] = set()
        self.refused = 0
        """Pods of clusters that the quota refused."""

    async def __aenter__(self) -> Self:
        self._work = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._work.cancel()
        results = await asyncio.gather(self._work, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]

    async def _run(self) -> None:
        while True:
            for each in await self._all(f"/apis/{GROUP}/v1/{SIMULATIONS}"):
                await self._simulate(each)
            pods: dict[str, list[JSON]] = {}
            clusters = await self._all(f"/apis/{GROUP}/v1/{CLUSTERS}")
            if any(phase(each) != "Succeeded" for each in clusters):
                for pod in await self._all(f"/api/v1/pods?labelSelector={OWNED}"):
                    pods.setdefault(pod["metadata"]["labels"][OWNED], []).append(pod)
                for each in clusters:
                    await self._cluster(each, pods.get(each["metadata"]["name"], []))
            await asyncio.sleep(LOOK)

    async def _simulate(self, found: JSON) -> None:
        uid = found["metadata"]["uid"]
        if phase(found) == "":
            self._begun[uid] = time.monotonic()
            await self._set(SIMULATIONS, found, "Running")
        elif phase(found) == "Running" and time.monotonic() > self._begun[uid] + found["spec"]["seconds"]:
            await self._set(SIMULATIONS, found, "Succeeded")

    async def _cluster(self, found: JSON, pods: list[JSON]) -> None:
        if phase(found) == "Succeeded":
            return
        wanted = {"driver": found["spec"]["driver"]["template"], "worker": found["spec"]["workers"]["template"]}
        there = {pod["metadata"]["name"] for pod in pods}
        name = found["metadata"]["name"]
        for role, template in wanted.items():
            if f"{name}-{role}" not in there | self._made:
                await self._make(found, f"{name}-{role}", template)
        if len(pods) == len(wanted) and all(phase(pod) == "Succeeded" for pod in pods):
            await self._set(CLUSTERS, found, "Succeeded")
        elif phase(found) == "" and any(phase(pod) in ("Running", "Succeeded") for pod in pods):
            await self._set(CLUSTERS, found, "Running")

    async def _make(self, owner: JSON, name: str, template: JSON) -> None:
        metadata = owner["metadata"]
        reference = {"apiVersion": f"{GROUP}/v1", "kind": "Cluster", "name": metadata["name"], "uid": metadata["uid"],
                     "controller": True}  # fmt: skip
        given = template.get("metadata", {})
        labels = {**given.get("labels", {}), OWNED: metadata["name"]}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**given, "name": name, "labels": labels, "ownerReferences": [reference]},
            "spec": template["spec"],
        }
        answer = await self._api.post(f"/api/v1/namespaces/{metadata['namespace']}/pods", body)
        assert answer.status in (201, 403, 409), answer.text
        if answer.status == 403:
            self.refused += 1
        else:
            self._made.add(name)

    async def _set(self, plural: str, found: JSON, to: str) -> None:
        metadata = found["metadata"]
        path = f"/apis/{GROUP}/v1/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}/status"
        answer = await self._api.patch(path, {"status": {"phase": to}}, MERGE)
        assert answer.status in (200, 404), answer.text

    async def _all(self, path: str) -> list[JSON]:
        answer = await self._api.get(path)
        assert answer.status == 200, answer.text
        return list(answer.json["items"])


def phase(found: JSON) -> str:
    """The phase of an object; empty if it has none."""
    return str((found.get("status") or {}).get("phase") or "")
