"""Programs in Go, built once per machine: a client-go program, a controller-runtime operator, and a small kubelet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.cluster.control_plane.go_programs import GoPrograms

CREATORS: Final = GoPrograms(
    title="Go creators",
    source=Path(__file__).parent,
    packages={"creator": "./creator", "operator": "./operator", "kubelet": "./kubelet"},
    variable="BACKOFF_TEST_CREATORS",
    takes="all take a minute",
)
