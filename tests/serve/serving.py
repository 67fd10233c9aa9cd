"""Shared by the tests of ``serve``: the command in a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.kit.patience import PATIENCE
from tests.kit.watch_script import until as holds_in_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMAND = [sys.executable, "-m", "backoff_ctrl", "serve"]


@contextmanager
def serving(
    *arguments: str, listen: str = "127.0.0.1:0", quiet: bool = True, log: list[str] | None = None
) -> Iterator[str]:
    """Run ``serve`` until the end of the block; yields where it is. It has to end well; ``quiet``: to log nothing.

    ``log`` has the lines of its log after that.
    """
    command = [*COMMAND, "--listen", listen, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line.startswith("listening on "):
                process.terminate()
                raise AssertionError(process.communicate(timeout=PATIENCE))
            yield line.removeprefix("listening on ").strip()
        finally:
            process.terminate()
            rest, said = process.communicate(timeout=PATIENCE)
            if log is not None:
                log += said.splitlines()
        assert (process.returncode, rest) == (0, ""), said
        assert not (quiet and said), said


def fails(*arguments: str) -> str:
    """Return the one sentence with which ``serve`` ends, with exit code 2."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (2, ""), done
    (sentence,) = done.stderr.splitlines()
    return sentence


def until(holds: Callable[[], object]) -> None:
    """Poll until something holds."""
    asyncio.run(holds_in_time(holds))
