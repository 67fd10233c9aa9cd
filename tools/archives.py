"""Everything of a release but the image, in dist/: ``python -m tools.archives --helm PROGRAM [--out FOLDER]``.

The same commit makes the same bytes: dates are ``SOURCE_DATE_EPOCH``, by default that of the last commit.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from .installer import CHART, installer
from .shipped import check, sbom, shipped

ROOT: Final = Path(__file__).parents[1]


def epoch() -> int:
    """Return the date that all archives get."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    command = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    return int(done.stdout)


def python_archives(out: Path, date: int, source: Path = ROOT) -> list[Path]:
    """Build sdist and wheel, without network access. Returns their paths."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(date)}
    subprocess.run(command, env=environment, check=True, capture_output=True)  # noqa: S603
    return sorted([*out.glob("*.whl"), *out.glob("*.tar.gz")])


def chart_archive(helm: str, out: Path, date: int, chart: Path = CHART) -> Path:
    """Pack the chart with helm, and again with fixed dates and owners, since helm keeps those of the files."""
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([helm, "package", str(chart), "--destination", made], check=True, capture_output=True)  # noqa: S603
        (packed,) = Path(made).iterdir()
        target = out / packed.name
        target.write_bytes(dated(packed.read_bytes(), date))
    return target


def dated(archive: bytes, date: int) -> bytes:
    """Return a ``.tar.gz`` with the same files, in the order of their names, all of this date and of nobody."""
    found = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as source,
        gzip.GzipFile(fileobj=found, mode="wb", mtime=date, compresslevel=9, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda each: each.name):
            member.mtime, member.mode, member.uid, member.gid, member.uname, member.gname = date, 0o644, 0, 0, "", ""
            member.pax_headers = {}
            target.addfile(member, source.extractfile(member))
    return found.getvalue()


def main() -> int:
    """Do as the command line says. Returns the exit code."""
    reader = argparse.ArgumentParser(prog="python -m tools.archives", description=__doc__)
    reader.add_argument("--helm", default="helm", help="the program")
    reader.add_argument("--out", type=Path, default=ROOT / "dist")
    asked = reader.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    date = epoch()
    parts = shipped()
    check(parts)
    python_archives(asked.out, date)
    chart_archive(asked.helm, asked.out, date)
    (asked.out / "install.yaml").write_text(installer(asked.helm), encoding="utf-8")
    (asked.out / "sbom.cdx.json").write_text(sbom(parts), encoding="utf-8")
    for path in sorted(asked.out.iterdir()):
        sys.stdout.write(f"{path.stat().st_size:>10,}  {path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
