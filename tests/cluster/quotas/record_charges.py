"""Writes ``tests/data/charges.json``: what a real Kubernetes charges for each manifest of ``tests/data/charged``.

``python -m tests.cluster.quotas.record_charges`` starts a control plane, measures every charge and rewrites the
record; the diff then shows what has changed.
"""

from __future__ import annotations

import asyncio
import json

from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.control_plane.servers import Server
from tests.cluster.quotas.charging import Meter, prepare
from tests.cluster.talking import Api
from tests.kit.charged import RECORD, cases

_HOW = "python -m tests.cluster.quotas.record_charges: the rise of status.used of quotas that name everything"


async def record(server: Server) -> str:
    """Charge every manifest and return the text of the record."""
    async with Api(server) as api:
        await prepare(api)
        meter = Meter(api)
        charges = {case.key: (await meter.charge(case.manifest, fresh=case.alone)).written() for case in cases()}
        version = (await api.get("/version")).json["gitVersion"]
    found = {"recorded": {"server": version, "how": _HOW}, "charges": charges}
    return json.dumps(found, indent=1) + "\n"


def main() -> None:
    """Record on a control plane of its own."""
    with Bed(wanted(), say=print, kcm_qps=500) as bed:
        RECORD.write_text(asyncio.run(record(bed.server)))
    print(f"{len(cases())} charges written to {RECORD}")  # noqa: T201


if __name__ == "__main__":
    main()
