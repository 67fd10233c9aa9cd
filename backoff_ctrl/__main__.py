"""The console script's guard: see that the rooms are ours, then start the command line by its name.

Other distributions install packages named ``k8s`` and ``api`` too, and pip lays them over ours in silence
(docs/decisions/import-names.md). So before anything of those rooms is imported, they are compared with what
our wheel installed. Not part of the engine: the one module that may read files and load what stands above it.
"""

from __future__ import annotations

import sys
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOMS: Final = ("backoff_ctrl", "k8s", "api")
DISTRIBUTION: Final = "backoff-ctrl"
REMEDY: Final = "install backoff-ctrl into a virtual environment of its own"


def intrusions(home: Path | None = None, name: str = DISTRIBUTION) -> list[str]:
    """Return a sentence for each room that is not, or not only, what backoff-ctrl installed.

    ``home`` is the folder of the rooms, by default where this module is; ``name`` the distribution.
    """
    home = home or Path(__file__).resolve().parent.parent
    found = []
    for room in ROOMS[1:]:
        spec = find_spec(room)
        if spec is None or spec.origin is None:  # a folder without __init__.py is nobody's package
            found.append(f"the package {room} is missing: {REMEDY}")
        elif (origin := Path(spec.origin).resolve().parent.parent) != home:
            found.append(f"the import name {room} leads to {origin}, not to ours{_claimants(room)}: {REMEDY}")
    return found or _overlaid(home, name)


def _overlaid(home: Path, name: str) -> list[str]:
    """Compare the rooms with the RECORD of the wheel; a checkout has none and is taken as it is."""
    recorded = _recorded(home, name)
    found = []
    for room in ROOMS if recorded else ():
        present = {path.relative_to(home).as_posix() for path in (home / room).rglob("*.py")}
        ours = {path for path in recorded if path.startswith(f"{room}/")}
        changed = {path for path in present & ours if recorded[path] != _digest(home / path)}
        if odd := sorted(changed | (present ^ ours)):
            found.append(f"{odd[0]} is not as backoff-ctrl installed it{_claimants(room)}: {REMEDY}")
    return found


def _recorded(home: Path, name: str) -> dict[str, str]:
    """Return the digests of our modules by path; empty for a checkout, installed as editable or not at all."""
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        return {}
    if Path(str(installed.locate_file(""))).resolve() != home:
        return {}
    files = installed.files or ()
    ours = (file for file in files if file.suffix == ".py" and file.parts[0] in ROOMS)
    return {file.as_posix(): file.hash.value for file in ours if file.hash}


def _digest(path: Path) -> str:
    """Return the digest of a file as RECORD writes it."""
    return urlsafe_b64encode(sha256(path.read_bytes()).digest()).rstrip(b"=").decode("ascii")


def _claimants(room: str) -> str:
    """Name the other distributions that install a package of this name."""
    others = sorted(set(packages_distributions().get(room, ())) - {DISTRIBUTION})
    return f" (installed by {', '.join(others)} too)" if others else ""


def main() -> None:
    """Start the command line, or say in a sentence why it would not be ours."""
    found = intrusions()
    if found:
        sys.stderr.write("".join(f"backoff-ctrl: {sentence}\n" for sentence in found))
        sys.exit(2)
    try:
        import_module("api.main").main()
    except KeyboardInterrupt:  # while the command line loads; from then on it sees to that itself
        sys.stderr.write("backoff-ctrl: stopped\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
