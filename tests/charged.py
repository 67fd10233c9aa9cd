"""Manifests with what a real Kubernetes charged them for: the data, and how tests read it.

``tests/data/charged/*.yaml`` hold the manifests, each under a sentence that says what it shows; ``cluster/`` beside
them the objects they refer to. ``tests/data/charges.json`` holds what the server charged: it is written by
``python -m tests.cluster.quotas.record_charges`` and by nobody else.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

JSON = dict[str, Any]

DATA: Final = Path(__file__).parent / "data"
RECORD: Final = DATA / "charges.json"


@dataclass(frozen=True)
class Case:
    """One manifest: the file it is from, and what it shows."""

    theme: str
    shows: str
    written: JSON

    @property
    def manifest(self) -> JSON:
        """A copy: reading must not change what others read."""
        return copy.deepcopy(self.written)

    @property
    def alone(self) -> bool:
        """Whether its amounts are too large to be added to those of others."""
        return self.theme == "huge"

    @property
    def key(self) -> str:
        """Its name in the record."""
        return f"{self.theme}: {self.shows}"


@dataclass(frozen=True)
class Charged:
    """What a server charged one object for.

    ``amounts``: what each quota resource rose by, as Quantities, those that rose only. ``must_specify``: the names
    that a quota must not have for the object to be let in at all: what stands for them in ``amounts`` is what the
    quota controller counts once the object is there. ``held_by``: which quotas of ``scoped_quotas.yaml`` rose.
    """

    amounts: dict[str, str]
    must_specify: tuple[str, ...] = ()
    held_by: tuple[str, ...] = ()

    def written(self) -> JSON:
        """As it stands in the record."""
        rest = {"must_specify": list(self.must_specify), "held_by": list(self.held_by)}
        return {"amounts": self.amounts} | {key: names for key, names in rest.items() if names}


@cache
def cases() -> tuple[Case, ...]:
    """All manifests; custom kinds last, since a quota controller takes up to 30 s to find them."""
    found = []
    for file in (DATA / "charged").glob("*.yaml"):
        manifests = yaml.safe_load(file.read_text())
        found += [Case(file.stem, shows, manifest) for shows, manifest in manifests.items()]
    return tuple(sorted(found, key=lambda case: (case.theme == "custom", case.key)))


@cache
def cluster_objects(file: str) -> tuple[JSON, ...]:
    """The objects of a file of ``cluster/``: ``classes`` or ``scoped_quotas``."""
    return tuple(yaml.safe_load_all((DATA / "charged" / "cluster" / f"{file}.yaml").read_text()))


@cache
def recorded() -> dict[str, Charged]:
    """What the real server charged for each case, by its key."""
    return {
        key: Charged(charge["amounts"], tuple(charge.get("must_specify", ())), tuple(charge.get("held_by", ())))
        for key, charge in json.loads(RECORD.read_text())["charges"].items()
    }
