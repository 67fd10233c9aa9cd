"""Trains on a server: their definition, and what a test does with those of a namespace."""

from __future__ import annotations

from typing import Any, Final

from backoff_ctrl.k8s.admitting.kinds import AdmissibleKind
from tests.cluster.admitting.jobs_at_work import Jobs
from tests.cluster.custom_kinds import DEFINITIONS, is_established
from tests.cluster.talking import Api

JSON = dict[str, Any]
OF: Final = "example.com/train"
ANYTHING: Final[JSON] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION: Final[JSON] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "trains.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "trains", "kind": "Train"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}},
                "subresources": {"status": {}},
            }
        ],
    },
}


async def trains_of(api: Api, namespace: str, kind: AdmissibleKind) -> Jobs:
    """Have Trains served, unless another test did."""
    assert (await api.post(DEFINITIONS, DEFINITION)).status in {201, 409}
    await api.until(f"{DEFINITIONS}/trains.example.com", is_established)
    found = Jobs(api, namespace, kind, OF)
    await api.until(found.path(), lambda listed: "items" in listed)
    return found
