"""A kind that no program knows, described as the page on Jobs that wait does it, and objects of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from backoff_ctrl.k8s.workloads.admitting.kinds import WAIT
from tests.kit.pages import blocks

DESCRIPTION: Final = next(
    each.text for each in blocks("docs/how-to/jobs-that-wait.md", "yaml") if "id: train" in each.text
)


def written(folder: Path, text: str = DESCRIPTION) -> Path:
    path = folder / "trains.yaml"
    path.write_text(text)
    return path


def train(name: str, *counts: int, halted: bool = True, **spec: Any) -> dict[str, Any]:
    """A labelled Train with so many pods of 1 CPU in each wagon."""
    container = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    wagons = [{"count": count, "template": template} for count in counts]
    return {
        "apiVersion": "example.com/v1",
        "kind": "Train",
        "metadata": {"name": name, "labels": {WAIT: "true"}},
        "spec": {"halted": halted, "wagons": wagons, **spec},
    }
