"""What a program tells the run, on its standard output: that it waits, and at the end what its create has cost."""

from __future__ import annotations

import json
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from backoff_ctrl import waiting

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

PATIENCE = 300.0
"""Seconds that a create may wait: longer than any run."""


class Telling:
    """One program's report. ``packages``: those whose versions it shows."""

    def __init__(self, *packages: str) -> None:
        """Begin."""
        self._versions = {name: version(name) for name in packages}
        self._began = time.monotonic()
        self._waits_since: float | None = None
        self._waited = 0.0

    def waits(self) -> AbstractContextManager[None]:
        """Options for a create: the run is told when it waits, and makes room then."""
        return waiting(**self.options)

    @property
    def options(self) -> dict[str, Any]:
        """The same options, for a create of one's own."""
        return {"on_wait": self._on_wait, "timeout": PATIENCE}

    def _on_wait(self, wait: Any) -> None:
        if self._waits_since is None:
            self._waits_since = time.monotonic()
            print(json.dumps({"waits_for": f"{wait.resource} of quota {wait.quota}"}), flush=True)

    def is_in(self) -> None:
        """Note that the create has returned."""
        self._waited = 0.0 if self._waits_since is None else time.monotonic() - self._waits_since

    def end(self, client: Any, pod: str) -> None:
        """Report. ``client`` is the gated client; ``pod`` is the name of what it created."""
        counts = client.gate.counts
        report = {
            "versions": self._versions,
            "pod": pod,
            "creates": counts.sent,
            "refused": sum(counts.refused.values()),
            "waited_s": round(self._waited, 2),
            "failed_open": counts.failed_open,
        }
        print(json.dumps(report), flush=True)


def pod_manifest(name: str) -> dict[str, Any]:
    """Return a pod that no node runs."""
    spec = {"containers": [{"name": "c", "image": "busybox"}], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
