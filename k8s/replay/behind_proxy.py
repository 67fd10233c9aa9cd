"""Runs the sidecar in front of a sandbox, in a process of its own, for a client that knows nothing of it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PROXY: Final = "proxy"
"""The client of the demo that retries plainly, behind the sidecar."""
HOLD: Final = 600.0
"""Seconds of the trace that one request is held: what docs/sidecar.md says for clients without a limit of their own."""
HOLD_TOTAL: Final = 86_400.0
_STOP_SECONDS: Final = 5.0


def has_proxy() -> bool:
    """Say whether the packages of the extra ``proxy`` are installed."""
    return find_spec("httptools") is not None


@contextmanager
def proxy_process(upstream: str, factor: float) -> Iterator[str]:
    """Run ``backoff-ctrl proxy`` before ``upstream`` while the block runs; yields its URL.

    Its holds are divided by ``factor``, as all durations are. Raises ``OSError`` if it does not start.
    """
    holds = ("--hold", str(HOLD / factor), "--hold-total", str(HOLD_TOTAL / factor), "--drain", "0")
    command = [sys.executable, "-m", "backoff_ctrl", PROXY, "--listen", "127.0.0.1:0", "--upstream", upstream, *holds]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603 - ourselves
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said.startswith("listening on "):
                assert process.stderr is not None
                raise OSError(f"the proxy did not start: {process.stderr.read().strip()}")
            yield said.split()[-1]
        finally:
            process.terminate()
            try:
                process.communicate(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
