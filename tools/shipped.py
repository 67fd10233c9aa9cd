"""What is shipped beside our own code: its licences, and the list of it that others can read (an SBOM).

``python -m tools.shipped`` writes docs/licences.md anew; ``--check`` only compares; ``--sbom FILE`` writes a CycloneDX
document; ``--pins FILE`` writes requirements for an audit. What counts as shipped is what the image contains: the
distributions that ``backoff-ctrl[connector,proxy,serve,tasks]`` needs, as they are installed beside this script.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS: Final = "backoff-ctrl"
EXTRAS: Final = frozenset({"connector", "proxy", "serve", "tasks"})
PAGE: Final = Path(__file__).parents[1] / "docs" / "licences.md"
ALLOWED: Final = frozenset(
    {
        "Apache-2.0",
        "Apache-2.0 AND MIT",
        "Apache-2.0 OR BSD-3-Clause",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT OR Apache-2.0",
        "MPL-2.0",
        "PSF-2.0",
        "0BSD",
    }
)
"""Licences under which others' code may be shipped beside ours, unchanged: SPDX expressions."""
_SPDX: Final = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache License Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD 3-Clause": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "The MIT License (MIT)": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}
_HEAD: Final = """\
# Licences of what is shipped

The image contains these distributions beside backoff-ctrl itself (Apache-2.0), as their authors published them; each
brings the text of its licence. The wheel contains backoff-ctrl alone. Written by `python -m tools.shipped` from their
metadata; `make check` refuses a licence that is not in its list.

| distribution | version | licence |
|---|---|---|
"""


class LicenceError(Exception):
    """A distribution whose licence is not known, or not allowed. The message names it."""


@dataclass(frozen=True)
class Part:
    """A distribution that is shipped. ``licence`` is an SPDX expression, or what its author wrote."""

    name: str
    version: str
    licence: str
    direct: tuple[str, ...]
    """What it needs itself, by name."""


def shipped() -> list[Part]:
    """Return all distributions that ours needs, by name; ours is none of them."""
    found: dict[str, Part] = {}
    left = list(_needed(OURS, EXTRAS))
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        if name not in found:
            distribution = importlib.metadata.distribution(name)
            needs = list(_needed(name, requirement.extras))
            direct = tuple(sorted({canonicalize_name(each.name) for each in needs}))
            found[name] = Part(name, distribution.version, licence_of(distribution.metadata), direct)
            left += needs
    return [found[name] for name in sorted(found)]


def _needed(name: str, extras: frozenset[str] | set[str]) -> list[Requirement]:
    """Return the requirements of an installed distribution that count here."""
    wanted = [Requirement(text) for text in importlib.metadata.requires(name) or ()]
    return [
        each
        for each in wanted
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def licence_of(metadata: importlib.metadata.PackageMetadata) -> str:
    """Return the licence that a distribution's metadata names: its expression, else its field, else its classifier."""
    classifiers = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or () if "License ::" in each]
    named: list[str] = [text for name in ("License-Expression", "License") for text in metadata.get_all(name) or ()]
    said: list[str] = [each.strip() for each in (*named, *classifiers)]
    for each in said:
        if each and "\n" not in each and _SPDX.get(each, each) in ALLOWED:
            return _SPDX.get(each, each)
    return next((each.partition("\n")[0] for each in said if each), "")


def check(parts: list[Part]) -> None:
    """Raise ``LicenceError`` for a licence that is not allowed."""
    wrong = [f"{each.name} ({each.licence or 'it names none'})" for each in parts if each.licence not in ALLOWED]
    if wrong:
        raise LicenceError(
            f"not shipped without a decision: {', '.join(wrong)}. Read the licence; then allow it in tools/shipped.py, "
            "or do without"
        )


def page(parts: list[Part]) -> str:
    """Return the page."""
    return _HEAD + "".join(f"| {each.name} | {each.version} | {each.licence} |\n" for each in parts)


def sbom(parts: list[Part]) -> str:
    """Return a CycloneDX document without anything that differs from run to run."""
    licences = LicenseFactory()

    def component(name: str, version: str, licence: str, kind: ComponentType = ComponentType.LIBRARY) -> Component:
        purl = PackageURL("pypi", name=name, version=version)
        made = licences.make_from_string(licence)
        return Component(name=name, version=version, type=kind, purl=purl, bom_ref=str(purl), licenses=[made])

    made = {each.name: component(each.name, each.version, each.licence) for each in parts}
    ours = component(OURS, importlib.metadata.version(OURS), "Apache-2.0", ComponentType.APPLICATION)
    bom = Bom(components=made.values(), serial_number=None, version=1)
    bom.metadata.component = ours
    direct = {canonicalize_name(each.name) for each in _needed(OURS, EXTRAS)}
    bom.register_dependency(ours, [made[name] for name in sorted(direct)])
    for each in parts:
        bom.register_dependency(made[each.name], [made[name] for name in each.direct])
    return _dateless(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"


def _dateless(text: str) -> str:
    """Take the time and the random number out: the same content is the same document."""
    document = json.loads(text)
    document.pop("serialNumber", None)
    document["metadata"].pop("timestamp", None)
    return json.dumps(document, indent=2, sort_keys=True)


def main() -> int:
    """Do as the command line says. Returns the exit code."""
    reader = argparse.ArgumentParser(prog="python -m tools.shipped", description=__doc__)
    reader.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is not current")
    reader.add_argument("--sbom", type=Path, metavar="FILE")
    reader.add_argument("--pins", type=Path, metavar="FILE")
    asked = reader.parse_args()
    parts = shipped()
    try:
        check(parts)
    except LicenceError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for path, text in ((asked.sbom, sbom), (asked.pins, _pins)):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text(parts), encoding="utf-8")
    current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page(parts)
    if asked.check and not current:
        sys.stderr.write("docs/licences.md is not current: run python -m tools.shipped\n")
        return 1
    if not asked.check:
        PAGE.write_text(page(parts), encoding="utf-8")
    return 0


def _pins(parts: list[Part]) -> str:
    return "".join(f"{each.name}=={each.version}\n" for each in parts)


if __name__ == "__main__":
    sys.exit(main())
