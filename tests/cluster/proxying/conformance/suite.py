"""Kubernetes' own end-to-end suite, of which the conformance tests are a part, and those that need no nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster.control_plane.go_programs import GoPrograms

SUITE: Final = GoPrograms(
    title="Kubernetes conformance",
    source=Path(__file__).parent,
    packages={"e2e.test": "k8s.io/kubernetes/test/e2e"},
    variable="BACKOFF_TEST_CONFORMANCE",
    takes="it takes 2 to 5 minutes",
    versioned="k8s.io/kubernetes",
    command=("test", "-c"),
)

WITHOUT_NODES: Final = (
    "ResourceQuota should create a ResourceQuota and capture the life of a pod",
    "ResourceQuota should create a ResourceQuota and capture the life of a service",
    "ResourceQuota should create a ResourceQuota and capture the life of a replica set",
    "ResourceQuota should manage the lifecycle of a ResourceQuota",
    "ResourceQuota should be able to update and delete ResourceQuota",
    "ResourceQuota should verify ResourceQuota with best effort scope",
    "Watchers should be able to restart watching from the last resource version",
    "Watchers should receive events on concurrent watches in same order",
    "Servers with support for Table transformation should return a 406",
    "FieldValidation should detect unknown metadata fields",
    "FieldValidation should create/apply a valid CR",
    "Events API should ensure that an event can be fetched, patched, deleted, and listed",
    "API priority and fairness should support FlowSchema API operations",
    "server version should find the server version",
    "Lease lease API should be available",
    "ConfigMap should run through a ConfigMap lifecycle",
    "Secrets should patch a secret",
    "Ingress API should support creating Ingress API operations",
)
"""Conformance tests about the API alone, by the beginning of their names: short ones, of each kind of conversation."""


@dataclass(frozen=True)
class Report:
    """What a run told: each test that ran, and why those failed that did."""

    passed: Sequence[str]
    failed: Sequence[str]
    output: str


async def run(
    suite: Path, kubeconfig: Path, focus: Sequence[str], folder: Path, within: float, *, conformance: bool = True
) -> Report:
    """Run the tests of the suite whose names contain one of ``focus``; ``folder`` is for the report.

    ``conformance``: those alone that every Kubernetes must pass.
    """
    report = folder / "report.json"
    wanted, mark = "|".join(f"({each})" for each in focus), ".*\\[Conformance\\]" if conformance else ""
    program = await asyncio.create_subprocess_exec(
        suite,
        f"-kubeconfig={kubeconfig}",
        "-provider=skeleton",
        "-disable-log-dump",
        "-ginkgo.no-color",
        "-ginkgo.silence-skips",
        f"-ginkgo.focus=({wanted}){mark}",
        f"-ginkgo.json-report={report}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(within):
            output, _ = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    specs: list[dict[str, Any]] = json.loads(report.read_text())[0]["SpecReports"] if report.exists() else []
    ran = [spec for spec in specs if spec["State"] != "skipped" and spec["LeafNodeType"] == "It"]
    names = {id(spec): " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]]) for spec in ran}
    return Report(
        [names[id(spec)] for spec in ran if spec["State"] == "passed"],
        [
            f"{names[id(spec)]}: {spec.get('Failure', {}).get('Message', '')[:500]}"
            for spec in ran
            if spec["State"] != "passed"
        ],
        output.decode(errors="replace"),
    )
