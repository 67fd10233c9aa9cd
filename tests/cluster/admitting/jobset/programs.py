"""JobSet's own controller manager, built once per machine; ``BACKOFF_CTRL_JOBSET=FOLDER`` takes a ready made one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.cluster.control_plane.go_programs import GoPrograms

_MODULE: Final = "sigs.k8s.io/jobset"

JOBSET: Final = GoPrograms(
    title="JobSet",
    source=Path(__file__).parent,
    packages={"manager": _MODULE},
    variable="BACKOFF_CTRL_JOBSET",
    takes="it takes 2 to 4 minutes",
    versioned=_MODULE,
)
