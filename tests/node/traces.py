"""Takes away what a node leaves outside its namespaces, however it ended: ``python traces.py FOLDER NAME``.

It is a process of its own that makes the node's cgroups and says ``ready``. Then it reads the pid of the node's first
process, and waits for the end of its input, which comes when its writer ends, too. It kills that process, sets back
the sysctls that the kubelet has set, and removes the node's cgroups and its folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

SYSCTLS: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""What a kubelet sets for the whole machine."""
HIDDEN: Final = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers", "/var/log/pods")
"""Where a node's programs write whatever their flags say: a node has folders of memory there."""
CGROUPS: Final = Path("/sys/fs/cgroup")
_WEIGHTS: Final = {"cpu.shares": "8192", "cpu.weight": "800"}
"""As much CPU as eight processes get: with the default, all pods together would get as much as one."""
_PATIENCE: Final = 60.0
_POLL: Final = 0.05


def hierarchies() -> list[Path]:
    """Return the roots in which a node has its cgroup: one of version 2, or one for each controller of version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [each for each in sorted(CGROUPS.iterdir()) if (each / "tasks").exists() and not each.is_symlink()]


def make_cgroups(name: str) -> None:
    """Make the node's cgroup in each hierarchy. Raises ``OSError``."""
    for root in hierarchies():
        if root == CGROUPS:
            controllers = (root / "cgroup.controllers").read_text().split()
            (root / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in controllers))
        own = root / name
        own.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (root / "tasks").exists() and (root / setting).exists():
                (own / setting).write_text((root / setting).read_text())
        for setting, weight in _WEIGHTS.items():
            if (own / setting).exists():
                (own / setting).write_text(weight)


def sysctls() -> dict[str, str]:
    return {each: (Path("/proc/sys") / each).read_text() for each in SYSCTLS}


def _remove_cgroups(name: str) -> None:
    """Remove the node's cgroups, the deepest first; the kernel takes a moment to empty those of killed processes."""
    deadline = time.monotonic() + _PATIENCE
    for root in [CGROUPS, *CGROUPS.iterdir()]:  # beside those of version 1, one of version 2 may have got it, too
        for each in _deepest_first(root / name):
            while each.exists() and time.monotonic() < deadline:
                try:
                    each.rmdir()
                except OSError:
                    time.sleep(_POLL)


def _deepest_first(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        for each in folder.iterdir():
            if each.is_dir():
                yield from _deepest_first(each)
        yield folder


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    before = sysctls()
    made = [each for each in map(Path, HIDDEN) if not each.exists()]
    for each in made:
        each.mkdir(parents=True)
    make_cgroups(name)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    first = sys.stdin.readline()
    process = os.pidfd_open(int(first)) if first else None
    sys.stdin.read()
    if process is not None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    _remove_cgroups(name)
    for setting, value in before.items():
        if (Path("/proc/sys") / setting).read_text() != value:
            (Path("/proc/sys") / setting).write_text(value)
    for each in made:
        with suppress(OSError):  # another program uses it now
            each.rmdir()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
