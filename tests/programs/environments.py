"""An environment for each program that is run: its own packages at its own pins, with ours beside them.

They are made once per machine, in ``$XDG_CACHE_HOME/backoff-ctrl/programs/``, by default ``~/.cache/...``. pip installs
our dependencies together with the program, as pyproject has them: a range that shuts the program out is an error here.
Our own code is that of the checkout.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parents[2]
INSTALLING: Final = 1800
"""Seconds for pip: Airflow brings two hundred packages."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with these packages. ``requirements``: what the program's users install.

    ``alone``: our dependencies are not installed beside it, since it is a server that we only call.
    """

    name: str
    requirements: tuple[str, ...]
    alone: bool = False

    @property
    def folder(self) -> Path:
        """Where it is, or will be. Its name has a hash of all that it is made of."""
        made_of = [*self.packages, sys.version]
        key = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "backoff-ctrl" / "programs" / f"{self.name}-{key}"

    @property
    def packages(self) -> tuple[str, ...]:
        """What pip installs."""
        return self.requirements if self.alone else (*self.requirements, *_ours())

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "bin" / "python"

    def make(self, say: Callable[[str], None]) -> None:
        """Make it, once; two at a time take turns. Raises ``RuntimeError`` with pip's own words."""
        done = self.folder / ".made"
        if done.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if done.exists():
                return
            say(f"installing {', '.join(self.requirements)}, once per machine ...")
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(self.folder)], check=True)
            pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            with tempfile.TemporaryFile("w+") as words:
                asked = [*pip, *self.packages]
                code = subprocess.run(asked, stdout=words, stderr=words, timeout=INSTALLING, check=False).returncode
                words.seek(0)
                if code:
                    raise RuntimeError(f"pip cannot install {self.name} beside backoff-ctrl:\n{words.read().strip()}")
            done.touch()


def _ours() -> list[str]:
    found: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    return found


AIRFLOW: Final = Environment("airflow", ("apache-airflow==3.3.2", "apache-airflow-providers-cncf-kubernetes==10.25.0"))
KOPF: Final = Environment("kopf", ("kopf==1.45.2", "kubernetes==35.0.0"))
OFFICIAL: Final = Environment("official", ("kubernetes==33.1.0",))
SPAWNER: Final = Environment("kubespawner", ("jupyterhub-kubespawner==7.1.0",))
FLYTEKIT: Final = Environment("flytekit", ("flytekit[connector]==1.16.31",), alone=True)
OTHERS: Final = Environment("others", ("lightkube==1.0.1", "kr8s==0.20.15"))
RAY: Final = Environment("ray", ("ray[default]==2.60.0",))
