"""The same commands as a plugin of kubectl: ``kubectl backoff ...``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.control_plane.binaries import Binaries
from tests.status.asking import Crowd

PROGRAMS = Path(sys.executable).parent


def test_the_plugin_is_the_same_program_under_its_own_name() -> None:
    """Its help says what to type."""
    done = subprocess.run(
        [str(PROGRAMS / "kubectl-backoff"), "ceilings", "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: kubectl backoff ceilings [OPTIONS]")


def test_a_real_kubectl_finds_and_completes_it(
    crowd: Crowd,
    binaries: Binaries,
    tmp_path: Path,
) -> None:
    """On the PATH, as kubectl looks for plugins; its completion program, too."""
    for name in ("kubectl-backoff", "kubectl_complete-backoff"):
        (tmp_path / name).symlink_to(PROGRAMS / name)
    variables = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}

    def kubectl(*words: str) -> str:
        done = subprocess.run(
            [str(binaries.kubectl), *words], env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    crowd.wait_with("second")
    listed = json.loads(kubectl("backoff", "waiting", "--gate", crowd.url, "--json"))
    assert [each["name"] for each in listed["items"]] == ["second"]
    assert str(tmp_path / "kubectl-backoff") in kubectl("plugin", "list")
    completed = kubectl("__complete", "backoff", "wai").splitlines()
    assert completed[0].partition("\t")[0] == "waiting"
    assert completed[-1] == ":4"
