"""The Trainer's reconcilers, built once per machine; ``BACKOFF_CTRL_TRAINER=FOLDER`` takes a ready made program."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.cluster.control_plane.go_programs import GoPrograms

TRAINER: Final = GoPrograms(
    title="Kubeflow Trainer",
    source=Path(__file__).parent,
    packages={"manager": "."},
    variable="BACKOFF_CTRL_TRAINER",
    takes="it takes 2 to 4 minutes",
)
