"""Prometheus and promtool, built from Go modules once per machine and kept outside the checkout.

They lie in ``$XDG_CACHE_HOME/backoff-ctrl/prometheus-VERSION-HASH/``, by default ``~/.cache/backoff-ctrl/``; the hash
is that of go.mod, go.sum and how they are built. ``BACKOFF_CTRL_PROMETHEUS=FOLDER`` takes programs that are ready made.
"""

from __future__ import annotations

import os
import platform
import re
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cluster.control_plane.compiling import compiled, one_at_a_time
from tests.cluster.control_plane.guardian import Guardian
from tests.cluster.control_plane.toolchain import ToolchainError, find_go

if TYPE_CHECKING:
    from collections.abc import Callable

HERE: Final = Path(__file__).parent
NAMES: Final = ("promtool", "prometheus")
_MODULE: Final = "github.com/prometheus/prometheus"
_FLAGS: Final = ("-mod=readonly", "-buildvcs=false", "-trimpath", "-tags=remove_all_sd", "-ldflags=-s -w")
"""``remove_all_sd``: without the clouds' discoveries, whose libraries are most of it; files and fixed targets stay."""


class ProgramsError(RuntimeError):
    """A program that the tests need can't be had; the text says why, and what to do."""


@dataclass(frozen=True)
class Programs:
    """Where Prometheus and promtool are, or will be once ``build`` has run."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return a program. Raises ``ProgramsError`` where it is not there."""
        found = self.folder / name
        if not found.is_file():
            raise ProgramsError(f"{found} is not there: a test that runs {name} asks for the fixture `programs`")
        return found

    @property
    def missing(self) -> list[str]:
        """Those that are not there yet."""
        return [name for name in NAMES if not (self.folder / name).is_file()]


def wanted() -> Programs:
    """Return the programs as the environment wants them, built or not."""
    if ready := os.environ.get("BACKOFF_CTRL_PROMETHEUS"):
        return Programs(Path(ready).absolute())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backoff-ctrl"
    manner = " ".join([*_FLAGS, platform.system(), platform.machine()]).encode()
    key = sha256(b"\0".join([manner, *((HERE / name).read_bytes() for name in ("go.mod", "go.sum"))])).hexdigest()
    version = _said(rf"^require {_MODULE} v(\S+)$")
    return Programs(cache / f"prometheus-{version}-{key[:12]}")


def build(programs: Programs, say: Callable[[str], None]) -> None:
    """Build what is missing, which takes minutes the first time; two at once take turns. Raises ``ProgramsError``."""
    if not programs.missing:
        return
    if os.environ.get("BACKOFF_CTRL_PROMETHEUS"):
        absent = ", ".join(str(programs.folder / name) for name in programs.missing)
        raise ProgramsError(f"BACKOFF_CTRL_PROMETHEUS names a folder without {absent}: unset it to have them built")
    try:
        programs.folder.mkdir(parents=True, exist_ok=True)
        with (
            one_at_a_time(programs.folder, say),
            tempfile.TemporaryDirectory(prefix=".building-", dir=programs.folder) as made,
            Guardian(Path(made)) as guardian,
        ):
            if missing := programs.missing:  # another run may have built them meanwhile
                go = find_go(tuple(int(part) for part in _said(r"^go (\S+)$").split(".")), say)
                for name in missing:
                    command = [str(go), "build", *_FLAGS, "-o", str(Path(made) / name), f"{_MODULE}/cmd/{name}"]
                    said = compiled(command, HERE, f"{name} of Prometheus", "both take 3 to 5 minutes", say, guardian)
                    if said is not None:
                        raise ProgramsError(f"{name} can't be built: `go build` says:\n{said}")
                    (Path(made) / name).replace(programs.folder / name)
    except (OSError, ToolchainError) as error:
        raise ProgramsError(f"the Prometheus of the tests can't be built: {error}") from error


def _said(pattern: str) -> str:
    found = re.search(pattern, (HERE / "go.mod").read_text(), re.MULTILINE)
    assert found, f"go.mod has no line like {pattern}"
    return found[1]
