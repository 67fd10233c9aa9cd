"""The sandbox as a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def sandbox_process(folder: Path, *words: str) -> Iterator[str]:
    """Run ``backoff-ctrl`` with these words in a folder until the end of the block; give its URL once it says that."""
    with subprocess.Popen(
        [sys.executable, "-m", "backoff_ctrl", *words], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            urls = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stdout)
            yield next(url[0] for url in urls if url)
        finally:
            process.terminate()
