"""The Go programs of a node that the other tests do not build, and Helm 3: built once per machine.

``BACKOFF_TEST_NODE_PROGRAMS=FOLDER`` and ``BACKOFF_TEST_HELM3=FOLDER`` take ready made ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.cluster.control_plane.binaries import Recipe
from tests.cluster.control_plane.go_programs import GoPrograms

HERE: Final = Path(__file__).parent
_HELM: Final = "helm.sh/helm/v3"

NODE_PROGRAMS: Final = GoPrograms(
    title="Kubernetes node",
    source=HERE / "binaries",
    packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kubelet", "kube-proxy", "kube-scheduler")},
    variable="BACKOFF_TEST_NODE_PROGRAMS",
    takes="all take 2 to 25 minutes",
    versioned="k8s.io/kubernetes",
    flags=Recipe(HERE / "binaries" / "go.mod").flags[-1:],  # the version that each says it has
)
HELM3: Final = GoPrograms(
    title="Helm 3",
    source=HERE / "helm3",
    packages={"helm": f"{_HELM}/cmd/helm"},
    variable="BACKOFF_TEST_HELM3",
    takes="it takes 2 minutes",
    versioned=_HELM,
)
