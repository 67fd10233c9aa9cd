"""Trains on a server, and other kinds: their definitions, and what a test does with those of a namespace."""

from __future__ import annotations

from typing import Any, Final

from backoff_ctrl.k8s.workloads.admitting.kinds import AdmissibleKind
from tests.cluster.admitting.jobs_at_work import Jobs
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.talking import Api

JSON = dict[str, Any]
OF: Final = "example.com/train"
ANYTHING: Final[JSON] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(kind: AdmissibleKind) -> JSON:
    """Return a definition of a kind whose objects may have any fields."""
    version = kind.api_version.removeprefix(f"{kind.group}/")
    schema = {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}
    served = {"served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"plural": kind.plural, "kind": kind.kind},
            "versions": [{"name": version, **served}],
        },
    }


async def served(api: Api, namespace: str, kind: AdmissibleKind, label: str = OF) -> Jobs:
    """Have a kind served, unless another test did."""
    assert (await api.post(DEFINITIONS, definition(kind))).status in {201, 409}
    await api.until(f"{DEFINITIONS}/{kind.resource}", is_established)
    found = Jobs(api, namespace, kind, label)
    await api.until(found.path(), lambda listed: "items" in listed)
    return found
