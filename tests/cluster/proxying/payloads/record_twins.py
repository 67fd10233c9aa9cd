"""Writes ``tests/data/protobuf_twins.jsonl``: objects and refusals of a real Kubernetes, in JSON and in protobuf.

``python -m tests.cluster.proxying.payloads.record_twins`` starts a control plane, creates the manifests of
``tests/data/charged`` and reads them back in both forms.
"""

from __future__ import annotations

import asyncio
import json

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.payloads.twins import RECORD, space_of, twins_of_objects, twins_of_refusals
from tests.cluster.quotas.charging import prepare
from tests.cluster.talking import Api


async def record(server: Server) -> str:
    async with Api(server) as api:
        await prepare(api)
        space = await space_of(api)
        twins = [*await twins_of_objects(api, space), *await twins_of_refusals(api, space)]
        version = (await api.get("/version")).json["gitVersion"]
    head = json.dumps({"server": version, "how": "python -m tests.cluster.proxying.payloads.record_twins"})
    return "\n".join([head, *(twin.written() for twin in twins), ""])


def main() -> None:
    with Bed(wanted(), say=print, kcm_qps=500) as bed:
        RECORD.write_text(asyncio.run(record(bed.server)))
    print(f"{len(RECORD.read_text().splitlines()) - 1} twins written to {RECORD}")  # noqa: T201


if __name__ == "__main__":
    main()
