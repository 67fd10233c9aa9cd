"""Manifests and what a real Kubernetes charged for them: access to the data for tests.

``tests/data/charged/*.yaml`` contain the manifests, each under a sentence that says what it shows, and ``cluster/``
the objects that they refer to. ``tests/data/charges.json`` records what the server charged. Only
``python -m tests.cluster.quotas.record_charges`` writes that file.
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

DATA: Final = Path(__file__).parents[1] / "data"
RECORD: Final = DATA / "charges.json"


@dataclass(frozen=True)
class Case:
    """One manifest, the name of its file (``theme``), and what it shows."""

    theme: str
    shows: str
    written: JSON

    @property
    def manifest(self) -> JSON:
        """A copy of the manifest, which the caller may change."""
        return copy.deepcopy(self.written)

    @property
    def alone(self) -> bool:
        """Whether the amounts are too large to be added to those of other cases."""
        return self.theme == "huge"

    @property
    def key(self) -> str:
        """The name of the case in the record."""
        return f"{self.theme}: {self.shows}"


@dataclass(frozen=True)
class Charged:
    """What a server charged for one object.

    ``amounts``: the increase of each quota resource, as quantity strings, without zeros. ``must_specify``: resources
    that a quota must not limit, or it would reject the object; their ``amounts`` are what the quota controller counts
    once the object exists. ``held_by``: the quotas of ``scoped_quotas.yaml`` that charged the object.
    """

    amounts: dict[str, str]
    must_specify: tuple[str, ...] = ()
    held_by: tuple[str, ...] = ()

    def written(self) -> JSON:
        """Return the JSON form used in the record."""
        rest = {"must_specify": list(self.must_specify), "held_by": list(self.held_by)}
        return {"amounts": self.amounts} | {key: names for key, names in rest.items() if names}


@cache
def cases() -> tuple[Case, ...]:
    """Return all cases; custom kinds last, because the quota controller takes up to 30 s to discover them."""
    found = []
    for file in (DATA / "charged").glob("*.yaml"):
        manifests = yaml.safe_load(file.read_text())
        found += [Case(file.stem, shows, manifest) for shows, manifest in manifests.items()]
    return tuple(sorted(found, key=lambda case: (case.theme == "custom", case.key)))


@cache
def cluster_objects(file: str) -> tuple[JSON, ...]:
    """Return the objects in a file of ``cluster/``: ``classes`` or ``scoped_quotas``."""
    return tuple(yaml.safe_load_all((DATA / "charged" / "cluster" / f"{file}.yaml").read_text()))


@cache
def recorded() -> dict[str, Charged]:
    """Return what the real server charged for each case, by the case's key."""
    return {
        key: Charged(charge["amounts"], tuple(charge.get("must_specify", ())), tuple(charge.get("held_by", ())))
        for key, charge in json.loads(RECORD.read_text())["charges"].items()
    }
