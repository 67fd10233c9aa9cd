"""The programs of a Kubernetes control plane, built from Go modules once per machine and kept outside the checkout.

They lie in ``$XDG_CACHE_HOME/backoff-ctrl/VERSION-HASH/``, by default ``~/.cache/backoff-ctrl/``; the hash is that of
go.mod, go.sum and how they are built. ``BACKOFF_TEST_BED=oldest`` takes the oldest supported version,
``BACKOFF_TEST_BINARIES=FOLDER`` programs that are ready made.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.cluster.control_plane.compiling import compiled, one_at_a_time
from tests.cluster.control_plane.guardian import Guardian
from tests.cluster.control_plane.toolchain import ToolchainError, find_go

Say = Callable[[str], None]

HERE: Final = Path(__file__).parent
_BEDS: Final = {"": HERE / "go.mod", "oldest": HERE / "oldest" / "go.mod"}
"""The modules of the version that BACKOFF_TEST_BED names."""

PACKAGES: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "informers": "./informers",
}
_VERSIONS_IN: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
"""The Go packages that hold the version which a program says it has."""


class BinariesError(RuntimeError):
    """A program that the tests need can't be had; the text says why, and what to do."""


@dataclass(frozen=True)
class Recipe:
    """What is built: a go.mod with its go.sum."""

    modules: Path

    @property
    def version(self) -> str:
        return self._find(r"^require k8s\.io/kubernetes v(\S+)$")

    @property
    def go(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self._find(r"^go (\S+)$").split("."))

    @property
    def flags(self) -> list[str]:
        """How it is built: small, and saying its version as a released one does."""
        major, minor, _ = self.version.split(".")
        said = {"gitVersion": f"v{self.version}", "gitMajor": major, "gitMinor": minor}
        told = " ".join(f"-X {package}.{name}={value}" for package in _VERSIONS_IN for name, value in said.items())
        return ["-mod=readonly", f"-modfile={self.modules}", "-buildvcs=false", "-trimpath", f"-ldflags=-s -w {told}"]

    def key(self, *sources: Path) -> str:
        """Return what changes when the programs would: a hash of modules, flags, machine and sources."""
        files = (self.modules, self.modules.with_suffix(".sum"), *sources)
        texts = [path.read_bytes() for path in files]
        manner = " ".join([*self.flags[2:], platform.system(), platform.machine()]).encode()
        return sha256(b"\0".join([manner, *texts])).hexdigest()[:12]

    def _find(self, pattern: str) -> str:
        found = re.search(pattern, self.modules.read_text(), re.MULTILINE)
        assert found, f"{self.modules} has no line like {pattern}"
        return found[1]


@dataclass(frozen=True)
class Binaries:
    """Where the programs are, or will be once ``build`` has run."""

    recipe: Recipe
    programs: Mapping[str, Path]

    @property
    def missing(self) -> list[str]:
        return [name for name, path in self.programs.items() if not path.is_file()]

    def path(self, program: str) -> Path:
        """Return a program. Raises ``BinariesError`` where it is not there."""
        found = self.programs[program]
        if not found.is_file():
            raise BinariesError(
                f"{found} is not there: a test that runs {program} asks for the fixture `binaries`, or is marked "
                "`real`, so that it is built before"
            )
        return found

    @property
    def kubectl(self) -> Path:
        """The command line client, of the same version as the server."""
        return self.path("kubectl")

    @property
    def informers(self) -> Path:
        return self.path("informers")


def wanted() -> Binaries:
    """Return the programs as the environment wants them, built or not. Raises ``BinariesError`` on a misspelling."""
    recipe = _wanted_recipe()
    ready = os.environ.get("BACKOFF_TEST_BINARIES")
    if ready:
        return Binaries(recipe, {name: Path(ready).absolute() / name for name in PACKAGES})
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "backoff-ctrl"
    folder = cache / f"v{recipe.version}-{recipe.key()}"
    programs = {name: folder / name for name in PACKAGES}
    # Its source changes more often than the modules do: a name of its own, lest everything be built anew.
    programs["informers"] = folder / f"informers-{recipe.key(*sorted((HERE / 'informers').glob('*.go')))}"
    return Binaries(recipe, programs)


def is_ready_made() -> bool:
    """Say whether the environment names a folder with the programs."""
    return bool(os.environ.get("BACKOFF_TEST_BINARIES"))


def _wanted_recipe() -> Recipe:
    """Return what BACKOFF_TEST_BED names: a misspelt word must not pass for the newest version."""
    name = os.environ.get("BACKOFF_TEST_BED", "")
    if name not in _BEDS:
        raise BinariesError(f'BACKOFF_TEST_BED is {name!r}, but may only be "oldest", or empty or unset for the newest')
    return Recipe(_BEDS[name])


def build(binaries: Binaries, say: Say) -> None:
    """Build what is missing, which takes minutes the first time; two at once take turns. Raises ``BinariesError``."""
    if not binaries.missing:
        return
    if os.environ.get("BACKOFF_TEST_BINARIES"):
        absent = ", ".join(str(binaries.programs[name]) for name in binaries.missing)
        raise BinariesError(f"BACKOFF_TEST_BINARIES names a folder without {absent}: unset it to have them built")
    folder = binaries.programs["etcd"].parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            one_at_a_time(folder, say),
            tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as made,
            Guardian(Path(made)) as guardian,
        ):
            if missing := binaries.missing:  # another run may have built them meanwhile
                go = find_go(binaries.recipe.go, say)
                for name in missing:
                    _build_one(go, binaries.recipe, name, Path(made) / name, say, guardian)
                    (Path(made) / name).replace(binaries.programs[name])
    except (OSError, ToolchainError) as error:
        raise BinariesError(f"the Kubernetes server of the tests can't be built: {error}") from error


def _build_one(go: Path, recipe: Recipe, name: str, target: Path, say: Say, guardian: Guardian) -> None:
    command = [str(go), "build", *recipe.flags, "-o", str(target), PACKAGES[name]]
    what = f"{name} of Kubernetes v{recipe.version}"
    said = compiled(command, HERE, what, "all take 4 to 8 minutes", say, guardian)
    if said is not None:
        raise BinariesError(f"{what} can't be built: `go build` says:\n{said}")


if __name__ == "__main__":
    build(wanted(), lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
