"""What is shipped: its licences, its list, and archives that come out the same every time."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools.archives import dated, python_archives
from tools.shipped import LicenceError, check, licence_of, sbom, shipped

if TYPE_CHECKING:
    from importlib.metadata import PackageMetadata

ROOT = Path(__file__).parents[2]
LATER = 1_700_000_000


def pinned() -> dict[str, str]:
    """Return the versions of constraints.txt."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("==", 1) for line in lines)


def test_all_that_is_shipped_is_pinned_and_its_licence_allowed() -> None:
    """With what that needs in turn; nothing of the tests."""
    parts = shipped()
    check(parts)
    assert {each.name: each.version for each in parts}.items() <= pinned().items()
    names = {each.name for each in parts}
    assert {"kubernetes", "cryptography", "uvicorn", "yarl"} <= names
    assert not {"pytest", "hatchling", "pip", "backoff-ctrl"} & names


def test_the_page_of_licences_is_current() -> None:
    """`python -m tools.shipped` writes it anew."""
    command = [sys.executable, "-m", "tools.shipped", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License-Expression": "MIT"}, "MIT"),
        ({"License": "Apache License 2.0"}, "Apache-2.0"),
        ({"License": "MIT License\n\nCopyright ...", "Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"Classifier": "License :: OSI Approved :: Python Software Foundation License"}, "PSF-2.0"),
        ({"License-Expression": "GPL-3.0-only"}, "GPL-3.0-only"),
        ({"License": "as you like it\nbut"}, "as you like it"),
        ({}, ""),
    ],
)
def test_a_licence_is_read_as_it_is_named(fields: dict[str, str], licence: str) -> None:
    """In the new way, in the old field, or by a classifier; one that nobody allowed is shown as it is."""
    metadata = Message()
    for name, value in fields.items():
        metadata[name] = value
    read: PackageMetadata = metadata  # type: ignore[assignment]  # as importlib.metadata reads it
    assert licence_of(read) == licence


def test_another_licence_is_refused_by_name() -> None:
    """Nobody ships it by accident."""
    wrong = [replace(each, licence="GPL-3.0-only") if each.name == "yarl" else each for each in shipped()]
    with pytest.raises(LicenceError, match=r"yarl \(GPL-3.0-only\)"):
        check(wrong)


def test_the_list_names_every_part_and_what_needs_it() -> None:
    """CycloneDX 1.6; the same each time."""
    parts = shipped()
    document = json.loads(sbom(parts))
    assert sbom(parts) == sbom(parts)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["component"]["name"] == "backoff-ctrl"
    assert {each["purl"] for each in document["components"]} == {f"pkg:pypi/{p.name}@{p.version}" for p in parts}
    assert all(each["licenses"] for each in document["components"])
    needs = {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}
    (ours,) = [ref for ref in needs if ref.startswith("pkg:pypi/backoff-ctrl@")]
    reached, left = set[str](), [ours]
    while left:
        found = set(needs[left.pop()]) - reached
        reached |= found
        left += found
    assert reached == {each["purl"] for each in document["components"]}


@pytest.mark.long
def test_wheel_and_sdist_are_the_same_every_time(tmp_path: Path) -> None:
    """Built in two places, from files of other dates and modes."""
    built = []
    for name in ("one", "two"):
        source = tmp_path / name / "source"
        names = ("backoff_ctrl", "k8s", "api", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
        source.mkdir(parents=True)
        for each in names:
            if (ROOT / each).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / each, source / each, symlinks=True, ignore=ignored)
            else:
                shutil.copy(ROOT / each, source / each)
        if name == "two":
            for path in source.rglob("*.py"):
                path.chmod(0o600)
                os.utime(path, (LATER + 86_400, LATER + 86_400))
        built.append(python_archives(tmp_path / name, LATER, source))
    assert [path.name for path in built[0]] == [path.name for path in built[1]]
    assert len(built[0]) == 2
    for first, second in zip(*built, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_an_archive_loses_dates_owners_and_order() -> None:
    """But no content."""

    def packed(names: list[str], date: int) -> bytes:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w:gz") as archive:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.uid, member.uname = len(name), date, date, f"user{date}"
                archive.addfile(member, io.BytesIO(name.encode()))
        return made.getvalue()

    first, second = dated(packed(["b", "a"], 1), LATER), dated(packed(["a", "b"], 2), LATER)
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        content = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        assert {name: file.read() for name, file in content.items() if file} == {"a": b"a", "b": b"b"}
        assert {member.mtime for member in archive.getmembers()} == {LATER}
