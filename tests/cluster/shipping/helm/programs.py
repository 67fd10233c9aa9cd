"""Helm, built once per machine; ``BACKOFF_TEST_HELM=FOLDER`` takes a ready made one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.cluster.control_plane.go_programs import GoPrograms

_MODULE: Final = "helm.sh/helm/v4"

HELM: Final = GoPrograms(
    title="Helm",
    source=Path(__file__).parent,
    packages={"helm": f"{_MODULE}/cmd/helm"},
    variable="BACKOFF_TEST_HELM",
    takes="it takes 2 minutes",
    versioned=_MODULE,
)
