"""Programs that are built from Go modules once per machine and kept outside the checkout.

They lie in ``$XDG_CACHE_HOME/backoff-ctrl/NAME-HASH/``, by default ``~/.cache/backoff-ctrl/``; the hash is that of
go.mod, go.sum, the sources and how they are built. An environment variable of each set names a folder with programs
that are ready made.
"""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tests.cluster.control_plane.compiling import compiled, one_at_a_time
from tests.cluster.control_plane.guardian import Guardian
from tests.cluster.control_plane.toolchain import ToolchainError, find_go

_FLAGS = ("-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags=-s -w")


class ProgramsError(RuntimeError):
    """A program that the tests need can't be had; the text says why, and what to do."""


@dataclass(frozen=True)
class GoPrograms:
    """Programs of one go.mod: where they are, or will be once ``build`` has run."""

    title: str
    """What people call them."""
    source: Path
    """The folder of go.mod."""
    packages: Mapping[str, str]
    """The Go package of each program."""
    variable: str
    """The environment variable that names a folder with all of them."""
    takes: str
    """How long it takes to build them, for people."""
    versioned: str = ""
    """The module whose version is part of the folder's name."""
    flags: Sequence[str] = field(default=())
    command: Sequence[str] = ("build",)
    """Of ``go``: ``test -c`` makes programs of test packages."""

    @property
    def folder(self) -> Path:
        if ready := os.environ.get(self.variable):
            return Path(ready).absolute()
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backoff-ctrl"
        manner = " ".join([*_FLAGS, *self.flags, platform.system(), platform.machine()]).encode()
        sources = [self.source / "go.mod", self.source / "go.sum", *sorted(self.source.rglob("*.go"))]
        key = sha256(b"\0".join([manner, *(path.read_bytes() for path in sources)])).hexdigest()
        name = self.title.lower().replace(" ", "-")
        version = self._said(rf"^require {self.versioned} v(\S+)$") if self.versioned else ""
        return cache / "-".join(each for each in (name, version, key[:12]) if each)

    def path(self, name: str) -> Path:
        """Return a program. Raises ``ProgramsError`` where it is not there."""
        found = self.folder / name
        if not found.is_file():
            raise ProgramsError(f"{found} is not there: a test that runs {name} asks for the fixture of {self.title}")
        return found

    @property
    def is_ready_made(self) -> bool:
        return bool(os.environ.get(self.variable))

    @property
    def missing(self) -> list[str]:
        return [name for name in self.packages if not (self.folder / name).is_file()]

    def build(self, say: Callable[[str], None]) -> None:
        """Build what is missing, once per machine; two at once take turns. Raises ``ProgramsError``."""
        if not self.missing:
            return
        if os.environ.get(self.variable):
            absent = ", ".join(str(self.folder / name) for name in self.missing)
            raise ProgramsError(f"{self.variable} names a folder without {absent}: unset it to have them built")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (
                one_at_a_time(self.folder, say),
                tempfile.TemporaryDirectory(prefix=".building-", dir=self.folder) as made,
                Guardian(Path(made)) as guardian,
            ):
                if missing := self.missing:  # another run may have built them meanwhile
                    go = find_go(tuple(int(part) for part in self._said(r"^go (\S+)$").split(".")), say)
                    for name in missing:
                        self._build_one(go, name, Path(made) / name, say, guardian)
        except (OSError, ToolchainError) as error:
            raise ProgramsError(f"{self.title} can't be built: {error}") from error

    def _build_one(self, go: Path, name: str, target: Path, say: Callable[[str], None], guardian: Guardian) -> None:
        command = [str(go), *self.command, *_FLAGS, *self.flags, "-o", str(target), self.packages[name]]
        said = compiled(command, self.source, f"{name} of {self.title}", self.takes, say, guardian)
        if said is not None:
            raise ProgramsError(f"{name} can't be built: `go build` says:\n{said}")
        target.replace(self.folder / name)

    def _said(self, pattern: str) -> str:
        found = re.search(pattern, (self.source / "go.mod").read_text(), re.MULTILINE)
        assert found, f"{self.source}/go.mod has no line like {pattern}"
        return found[1]
