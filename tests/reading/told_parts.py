"""Parts of manifests as lines that a person can check: ``2 Pod < Job @ spec.template: requests.cpu=1 [scopes]``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from backoff_ctrl.k8s.kube.charges.parts import Part, makes_others, parts_of
from backoff_ctrl.k8s.kube.charges.resources import resource_of
from backoff_ctrl.k8s.status.amounts import quantity_text
from backoff_ctrl.k8s.workloads.admitting.kinds import KINDS
from backoff_ctrl.k8s.workloads.admitting.shape import shaped

EXAMPLES: Final = Path(__file__).parents[1] / "data" / "parts"
_SHORT: Final = {"pods", "services", "configmaps", "secrets", "cpu", "memory", "ephemeral-storage"}


def told(manifest: dict[str, Any]) -> list[str]:
    """Return the parts of a manifest, a line each; aliases and the names that count objects are left out.

    What the operator keeps of such an object makes the same: each field that is read here is in its shape.
    """
    parts = parts_of(manifest)
    for kind in KINDS:
        if (kind.api_version, kind.kind) == (manifest.get("apiVersion"), manifest.get("kind")):
            assert parts_of(shaped(kind, manifest)) == parts
    return [line(part) for part in parts]


def line(part: Part) -> str:
    """Return one part: count, kind, maker, place of the pod template, amounts of one object, scopes."""
    amounts = {
        name: quantity_text(name, amount)
        for name, amount in part.demand.amounts.items()
        if name not in _SHORT and not name.startswith("count/")
    }
    place = f" @ {part.template}" if part.template else ""
    charged = ":" + "".join(f" {name}={amount}" for name, amount in amounts.items()) if amounts else ""
    scopes = f" [{', '.join(sorted(part.demand.scopes))}]" if part.demand.scopes else ""
    waits = " suspended" if part.suspended else ""
    return f"{part.count} {part.kind} < {part.made_by}{place}{charged}{scopes}{waits}"


def example(name: str) -> dict[str, Any]:
    """Return the one manifest of an example that makes other objects."""
    documents = yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    (found,) = [each for each in documents if each and makes_others(resource_of(each))]
    return dict(found)


def load(text: str) -> dict[str, Any]:
    """Return a manifest that is written as YAML."""
    return dict(yaml.safe_load(text))
