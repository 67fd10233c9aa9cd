"""Writes ``tests/data/spellings.jsonl``: what a real API server makes of each way to spell a create.

``python -m tests.cluster.proxying.record_spellings`` starts a control plane, and rewrites the record.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.sidecar import asked
from tests.cluster.talking import Api
from tests.kit.spellings import PODS, RECORD, TARGETS, Spelling

_JOBS = "/apis/batch/v1/namespaces/team/jobs"


async def spelt(api: Api) -> list[Spelling]:
    """Send every target as it is written, and see what is stored."""
    for namespace in ("team", "v2"):
        assert (await api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})).status in {201, 409}
    return [await _spelt(api, target, f"spelt-{number}") for number, target in enumerate(TARGETS)]


async def _spelt(api: Api, target: str, name: str) -> Spelling:
    body, token = _job(name) if "obs" in target else _pod(name), api.server.token("tester")
    status = (await asked(api.server.url, target, token, body, api.server.ssl())).status
    if status >= 300:
        return Spelling(target, "refused", status)
    stored = [f"{path}/{name}" for path in (PODS, _JOBS)]
    gone = [await api.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}) for path in stored]
    return Spelling(target, "stored" if any(each.status == 200 for each in gone) else "tried", status)


def _pod(name: str) -> Any:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _job(name: str) -> Any:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    spec = {"suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


async def record(server: Server) -> str:
    async with Api(server) as api:
        found = await spelt(api)
        version = (await api.get("/version")).json["gitVersion"]
    head = json.dumps({"server": version, "how": "python -m tests.cluster.proxying.record_spellings"})
    return "\n".join([head, *(each.written() for each in found), ""])


def main() -> None:
    with Bed(wanted(), say=print) as bed:
        RECORD.write_text(asyncio.run(record(bed.server)))
    print(f"{len(TARGETS)} spellings written to {RECORD}")  # noqa: T201


if __name__ == "__main__":
    main()
