"""The programs of other projects that carry out what waits: built once per machine from the go.mod in their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.cluster.control_plane.go_programs import GoPrograms


def _manager(title: str, package: str) -> GoPrograms:
    """Describe one whose go.mod is in the folder named after it; ``BACKOFF_TEST_TITLE`` takes a ready made one."""
    return GoPrograms(
        title=title,
        source=Path(__file__).parent / title.lower(),
        packages={"manager": package},
        variable=f"BACKOFF_TEST_{title.upper()}",
        takes="it takes 2 to 4 minutes",
        versioned="" if package == "." else package,
    )


JOBSET: Final = _manager("JobSet", "sigs.k8s.io/jobset")
KUBERAY: Final = _manager("KubeRay", "github.com/ray-project/kuberay/ray-operator")
TRAINER: Final = _manager("Trainer", ".")
"""Kubeflow's: its reconcilers, without its webhooks."""
KUBEFLOW: Final = _manager("Kubeflow", ".")
"""The training operator's reconcilers, without its webhooks, and the MPI operator's controller."""
SPARK: Final = _manager("Spark", ".")
"""The Spark operator's controller, without its webhooks."""
