"""What test_survivors.py and test_left_out.py run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


@pytest.fixture
def clings() -> Iterator[None]:
    """Tears down for ever, deaf to Ctrl-C, if the environment says so."""
    yield
    while "BACKOFF_TEST_CLINGS" in os.environ:
        with suppress(KeyboardInterrupt):
            time.sleep(600)


def test_that_leaves_a_server_behind(clings: None) -> None:
    """In a session of its own, deaf to polite signals, with a child that nobody waits for; then it hangs."""
    command = [sys.executable, "-c", STUBBORN]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    orphan = subprocess.run(
        ["/bin/sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    assert server.stdout is not None
    server.stdout.readline()
    Path(os.environ["BACKOFF_TEST_NOTE"]).write_text(f"{server.pid} {orphan.stdout.strip()}")
    if "BACKOFF_TEST_HANGS" in os.environ:
        time.sleep(600)  # Ctrl-C ends it


def test_that_is_skipped() -> None:
    pytest.skip("there is no moon tonight")


@pytest.mark.go
def test_that_needs_helm() -> None:
    raise AssertionError
