"""Prometheus and promtool, built once per machine; ``BACKOFF_TEST_PROMETHEUS=FOLDER`` takes ready made ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.cluster.control_plane.go_programs import GoPrograms

_MODULE: Final = "github.com/prometheus/prometheus"

PROMETHEUS: Final = GoPrograms(
    title="Prometheus",
    source=Path(__file__).parent,
    packages={name: f"{_MODULE}/cmd/{name}" for name in ("promtool", "prometheus")},
    variable="BACKOFF_TEST_PROMETHEUS",
    takes="both take 3 to 5 minutes",
    versioned=_MODULE,
    flags=("-tags=remove_all_sd",),  # without the clouds' discoveries, most of its size; fixed targets stay
)
