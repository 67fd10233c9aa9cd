"""What a machine must have for a node, and how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.node.traces import CGROUPS, hierarchies

PROGRAMS: Final = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ip": "iproute2",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "runc": "runc",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "busybox": "busybox-static",
}
"""By the package of Debian and Ubuntu that has it."""
PLUGINS: Final = Path("/usr/lib/cni")


def lacks() -> str:
    """Say what this machine lacks, or return nothing."""
    if sys.platform != "linux":
        return "a node needs Linux"
    if os.geteuid() != 0:
        return "a node needs root: it makes network namespaces and cgroups"
    return _lacks_packages() or _lacks_namespaces() or _lacks_cgroups()


def _lacks_packages() -> str:
    packages = {package for program, package in PROGRAMS.items() if not shutil.which(program)}
    if not (PLUGINS / "ptp").exists():
        packages.add("containernetworking-plugins")
    return f"missing: apt-get install --no-install-recommends {' '.join(sorted(packages))}" if packages else ""


def _lacks_namespaces() -> str:
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"a network namespace can't be had: {tried.stderr.strip()}" if tried.returncode else ""


def _lacks_cgroups() -> str:
    found = hierarchies()
    probe = f"backoff-ctrl-probe-{os.getpid()}"
    try:
        for root in found:
            (root / probe).mkdir()
            (root / probe).rmdir()
    except OSError as error:
        return f"a cgroup can't be had: {error}"
    return "" if found else f"there is no cgroup hierarchy in {CGROUPS}"
