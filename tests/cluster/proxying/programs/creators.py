"""Creators in Go, built once per machine: a client-go program and a controller-runtime operator."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.cluster.control_plane.go_programs import GoPrograms

CREATORS: Final = GoPrograms(
    title="Go creators",
    source=Path(__file__).parent,
    packages={"creator": "./creator", "operator": "./operator"},
    variable="BACKOFF_CTRL_CREATORS",
    takes="both take a minute",
)
