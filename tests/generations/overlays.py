"""Other versions of the official clients, each in a folder that is laid over the virtual environment.

They are installed once per machine, into ``$XDG_CACHE_HOME/backoff-ctrl/clients/``, by default ``~/.cache/...``. The
name of a folder has a hash of all that it is made of: the versions, our constraints for everything else, and Python.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 540
"""Seconds for pip: a slow mirror must not hang the tests."""


@dataclass(frozen=True)
class Clients:
    """What a project has installed: the versions, and the package of the client for asyncio that it uses."""

    threads: str
    """The version of ``kubernetes``; empty: that of the virtual environment."""
    asyncio: str = ""
    """The version of ``kubernetes_asyncio``; empty: ``kubernetes.aio`` is used."""
    others: tuple[str, ...] = ()
    """Requirements for which they need another version than our constraints have."""

    @property
    def title(self) -> str:
        """How people call it."""
        threads = f"kubernetes {self.threads}" if self.threads else "kubernetes as installed"
        return f"{threads}, {f'kubernetes_asyncio {self.asyncio}' if self.asyncio else 'kubernetes.aio'}"

    @property
    def requirements(self) -> list[str]:
        """What pip installs."""
        asked = {"kubernetes": self.threads, "kubernetes_asyncio": self.asyncio}
        return [*(f"{name}=={version}" for name, version in asked.items() if version), *self.others]

    @property
    def folder(self) -> Path:
        """Where they are installed."""
        made_of = [*self.requirements, *self._constraints(), sys.version]
        key = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "backoff-ctrl" / "clients" / f"{self.threads or 'as-is'}-{self.asyncio or 'aio'}-{key}"

    def environment(self) -> Mapping[str, str]:
        """Return this process's environment with these clients in it, installed if need be."""
        aio = "kubernetes_asyncio" if self.asyncio else "kubernetes.aio"
        found = {**os.environ, "BACKOFF_TEST_AIO": aio, "BACKOFF_TEST_CLIENTS": " ".join(self.requirements)}
        if self.requirements:
            self.install()
            found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(self.folder), os.environ.get("PYTHONPATH")]))
        return found

    def run_tests(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run our tests with these clients, in a process of its own that ignores what their code is warned of."""
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning"]
        environment = {name: value for name, value in self.environment().items() if not name.startswith("PYTEST_XDIST")}
        command = [*pytest, *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    def install(self) -> None:
        """Have pip fill the folder, once: two at a time take turns. Raises ``RuntimeError`` with pip's own words."""
        if self.folder.exists():
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with (self.folder.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.folder.exists():
                return
            with tempfile.TemporaryDirectory(prefix=".installing-", dir=self.folder.parent) as made:
                constraints = Path(made) / "constraints.txt"
                constraints.write_text("\n".join(self._constraints()), "utf-8")
                target = Path(made) / "site"
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
                asked = [*pip, "--target", str(target), "-c", str(constraints), *self.requirements]
                done = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE, check=False)
                if done.returncode:
                    raise RuntimeError(f"pip cannot install {self.title}:\n{done.stderr.strip()}")
                target.rename(self.folder)

    def _constraints(self) -> list[str]:
        lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        apart = {"#", *(f"{each.partition('==')[0]}==" for each in ("kubernetes", *self.requirements))}
        return [line for line in lines if not line.startswith(tuple(apart))]


OLDEST: Final = Clients("31.0.0", "31.1.1")
NEWEST_ASYNCIO: Final = Clients("", "36.1.0")
"""The newest ``kubernetes`` and ``kubernetes.aio`` are those of the virtual environment, for all tests."""
MINORS: Final = (
    OLDEST,
    Clients("32.0.1", "32.3.2"),
    Clients("33.1.0", "33.3.0"),
    Clients("34.1.0", "34.3.3", ("urllib3==2.3.0",)),  # it pins urllib3 below 2.4
    Clients("35.0.0", "35.0.1"),
    Clients("36.0.3", "36.1.0"),
    Clients("36.0.3"),
    Clients(""),
)
