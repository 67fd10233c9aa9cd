"""A program that creates pods from an executor, to be ended by a Ctrl-C: ``... URL BOOK``.

It writes to its book what it begins and what has come. A line that is written outlives the process.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from kubernetes import client

from backoff_ctrl import GatedApiClient
from tests.gating.storm.plans import pod
from tests.gating.storm.server import NAMESPACE

THREADS: Final = 4
JOBS: Final = 60
"""Those that have not begun yet at the Ctrl-C are begun after it: Python has it so."""


def main(url: str, path: str) -> None:
    """Create the pods."""
    book = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    core: Any = client.CoreV1Api(GatedApiClient(client.Configuration(host=url)))

    def work(number: int) -> None:
        row = f"i-{number}"
        os.write(book, f"begun {row}\n".encode())
        if number == THREADS:
            sys.stdout.write("begun\n")
            sys.stdout.flush()
        try:
            core.create_namespaced_pod(NAMESPACE, pod(row))
        except client.ApiException as error:
            os.write(book, f"{type(error).__name__} {row}\n".encode())
        else:
            os.write(book, f"in {row}\n".encode())

    with ThreadPoolExecutor(THREADS) as pool:
        for job in [pool.submit(work, number) for number in range(JOBS)]:
            job.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
