"""The first process of a node's namespaces: ``python first.py ADDRESS FOLDER...``; the node ends with it.

It prepares the network, hides folders of the machine behind empty ones, says ``ready``, and reaps what is left to it
until its input ends. Then the kernel ends all processes of the node; its mounts and devices go with the namespaces.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


def main() -> None:
    address, *hidden = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _run("mount", "--make-rshared", "/")  # in the mounts of the node alone: pods see what the kubelet mounts
    for folder in hidden:
        _run("mount", "-t", "tmpfs", "node", folder)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node1")  # some kernels have no dummy device
    _run("ip", "address", "add", f"{address}/24", "dev", "node0")
    _run("ip", "link", "set", "node0", "up")
    _run("ip", "link", "set", "node1", "up")
    _run("ip", "route", "add", "default", "via", address, "dev", "node0")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
