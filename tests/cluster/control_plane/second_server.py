"""A second kube-apiserver on the etcd of a bed: a control plane of two, as most clusters have."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.cluster.control_plane.bed import API, Bed, BedError
from tests.cluster.control_plane.guardian import Guardian
from tests.cluster.control_plane.servers import Server
from tests.kit.patience import PATIENCE


@contextmanager
def second_server(bed: Bed) -> Iterator[Server]:
    """Start it, give the handle of it, end it. Raises ``BedError``."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = [each for each in bed.flags(API) if not each.startswith("--secure-port=")]
    folder = bed.server.folder / f"second-{port}"
    folder.mkdir()
    server = replace(bed.server, url=f"https://127.0.0.1:{port}", folder=folder)
    with Guardian(folder) as guardian:
        process = subprocess.Popen(
            [bed.binaries.path(API), *flags, f"--secure-port={port}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
        )
        guardian.watch(process.pid)
        try:
            _wait(process, server)
            yield server
        finally:
            process.kill()
            process.wait()
            guardian.forget(process.pid)


def _wait(process: subprocess.Popen[bytes], server: Server) -> None:
    deadline = time.monotonic() + PATIENCE
    while not _is_ready(server):
        if process.poll() is not None or time.monotonic() > deadline:
            raise BedError(f"the second API server is not ready (exit code {process.poll()})")
        time.sleep(0.05)


def _is_ready(server: Server) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/readyz", timeout=5, context=server.ssl()) as answer:
            return bool(answer.status == 200)
    except OSError:  # not yet
        return False
