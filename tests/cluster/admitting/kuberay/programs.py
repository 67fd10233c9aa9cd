"""KubeRay's own operator, built once per machine; ``BACKOFF_CTRL_KUBERAY=FOLDER`` takes a ready made one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.cluster.control_plane.go_programs import GoPrograms

_MODULE: Final = "github.com/ray-project/kuberay/ray-operator"

KUBERAY: Final = GoPrograms(
    title="KubeRay",
    source=Path(__file__).parent,
    packages={"manager": _MODULE},
    variable="BACKOFF_CTRL_KUBERAY",
    takes="it takes 2 to 4 minutes",
    versioned=_MODULE,
)
