"""The trace as tasks of four types on a real API server, with and without kills; and what 1,000 tasks in flight cost.

Usage: python -m benchmarks.task_load [--tasks 400] [--kills 5] [--speed 20] [--in-flight 1000]
A container, a Job, a custom resource and one whose operator makes pods, in turn; `backoff-ctrl serve --store` carries
them out, and is killed with SIGKILL so often on the way. Refusals are counted at the server, those of the Job
controller and of the operator included. Writes build/tasks.json; exits with 1 if a task did not succeed, or an object
was made twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from backoff_ctrl.k8s.lab.replay.workload import make_workload, read_trace
from benchmarks.task_load.in_flight import in_flight
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.tasks.workload.four_types import made_for
from tests.tasks.workload.running import Outcome, run_workload

WITHIN = 1800.0


def main() -> int:
    """Run the workload, then the tasks in flight, and print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=400, help="tasks of the trace; 0: leave that out")
    parser.add_argument("--kills", type=int, default=5, help="SIGKILLs of the manager in the second run")
    parser.add_argument("--speed", type=float, default=20.0, help="how many times faster than the recipe")
    parser.add_argument("--in-flight", type=int, default=1000, help="tasks in flight; 0: leave that out")
    given = parser.parse_args()
    report: dict[str, Any] = {}
    good = True
    for kills in (0, given.kills) if given.tasks else ():
        most = made_for(make_workload(read_trace(), pods=given.tasks))
        out = traced(given.tasks, given.speed, kills)
        print(out, flush=True)
        report[f"{kills} kills"] = {**vars(out), "per_1000": 1000 * out.refused_by.total() / out.made.total()}
        good = (
            good
            and out.phases == {"Success": given.tasks}
            and all(made <= most[kind] for kind, made in out.made.items())
        )
    if given.in_flight:
        report["in_flight"] = found = asyncio.run(in_flight(given.in_flight))
        print(", ".join(f"{name} {value:g}" for name, value in found.items()))
    Path("build").mkdir(exist_ok=True)
    Path("build/tasks.json").write_text(json.dumps(report, indent=2), encoding="utf-8")
    return 0 if good else 1


def traced(tasks: int, speed: float, kills: int) -> Outcome:
    """Run the workload once, on a control plane of its own."""
    workload = make_workload(read_trace(), pods=tasks).faster(speed)
    with tempfile.TemporaryDirectory() as folder, Bed(wanted(), kcm_qps=500) as bed:
        return asyncio.run(run_workload(bed, workload, Path(folder), kills=kills, within=WITHIN))


if __name__ == "__main__":
    sys.exit(main())
