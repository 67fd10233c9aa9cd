"""``make node``: the product on a node with real containers; ``NAME=helm`` plays one part, ``NAME=up`` starts it only.

The programs and images are built once per machine. The tests run in the network of the node.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.cluster.control_plane import binaries
from tests.cluster.control_plane.binaries import BinariesError
from tests.cluster.control_plane.compiling import one_at_a_time
from tests.cluster.control_plane.go_programs import ProgramsError
from tests.cluster.shipping.helm.programs import HELM
from tests.node.images import ImageError, cache, images
from tests.node.needs import lacks
from tests.node.node import ROOT, Node, NodeError
from tests.node.programs import HELM3, NODE_PROGRAMS

PARTS: Final = ("readme", "helm", "operator", "sidecar", "quota", "tasks", "serve")
"""In the order in which they are played."""


def main() -> int:
    """Build, start the node, play the parts. Returns the exit code."""
    name, *more = [each for each in sys.argv[1:] if each] or [""]
    if name not in ("", "up", *PARTS):
        _tell(f"there is no part {name!r}: NAME is one of {', '.join(PARTS)}, or up")
        return 2
    if why := lacks():
        _tell(f"make node can't run here, and nothing was played: {why}")
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's `&` has the first ignored
        signal.signal(number, signal.default_int_handler)
    try:
        binaries.build(binaries.wanted(), _tell)
        for each in (NODE_PROGRAMS, HELM, HELM3):
            each.build(_tell)
        found = images(_tell)
        lock = cache() / "node-lock"
        lock.mkdir(exist_ok=True)
        with one_at_a_time(lock, _tell), Node(NODE_PROGRAMS, found, _tell) as node:
            node.offer(4, HELM.path("helm"))
            node.offer(3, HELM3.path("helm"))
            if name == "up":
                return _stay(node)
            return _play(node, [name] if name else [*PARTS], more)
    except KeyboardInterrupt:
        _tell("\nstopped")
        return 130
    except (BinariesError, ProgramsError, ImageError, NodeError) as error:
        _tell(str(error))
        return 1


def _play(node: Node, parts: list[str], more: list[str]) -> int:
    files = [str(Path(__file__).parent / f"test_{each}.py") for each in parts]
    left_out = node.folder / "left-out.txt"
    ends_with_us = ("setpriv", "--pdeathsig=TERM")
    tests = (sys.executable, "-m", "pytest", "-m", "node", "-p", "no:randomly", *files, *more)
    command = node.entered(*ends_with_us, *tests)
    environment = {
        **os.environ,
        "BACKOFF_TEST_NODE": str(node.folder),
        "BACKOFF_TEST_LEFT_OUT": str(left_out),
    }
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        return process.wait()
    except KeyboardInterrupt:  # the tests have had Ctrl-C, too
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()
        raise
    finally:
        if process.returncode:
            _tell(f"the logs of the node are in {node.keep_logs()}")


def _stay(node: Node) -> int:
    command = " ".join(node.entered("sh", "-c", f"'KUBECONFIG={node.kubeconfig} exec bash'"))
    _tell(f"Ctrl-C stops it and deletes everything in it. In another terminal:\n\n{command}\n")
    print(f"export BACKOFF_TEST_NODE={node.folder}", flush=True)
    signal.pause()
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
