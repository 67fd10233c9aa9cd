"""What is read of ``ownerReferences``: whoever may create a pod writes them as they like."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.gate.observing.gangs import owners_of, path_of
from tests.gating.gangs.test_owned_pods import owner


@pytest.mark.parametrize(
    "broken",
    [
        owner("u", name="../../secrets/token"),
        owner("u", name="x/log"),
        owner("u", version="v1/namespaces/other/x"),
        owner("u", version="/v1"),
        owner(""),
        {"uid": "u", "kind": "Job", "name": 5, "apiVersion": "batch/v1"},
        "text",
    ],
)
def test_owners_that_make_no_path_are_left_out(broken: Any) -> None:
    """Whoever may create a pod writes them as they like."""
    assert owners_of({"ownerReferences": [broken, owner("good")]})[0].uid == "good"
    assert len(owners_of({"ownerReferences": [broken, owner("good")]})) == 1
    assert owners_of({"ownerReferences": broken}) == ()


def test_the_path_of_an_owner() -> None:
    """Groups and the core group; the controller comes first."""
    others = {**owner("b", "ReplicationController", "r", "v1"), "controller": False}
    first, second = owners_of({"ownerReferences": [others, owner("a", "RayCluster", "ray", "ray.io/v1")]})
    assert path_of(first, "team") == "/apis/ray.io/v1/namespaces/team/rayclusters/ray"
    assert path_of(second, "team") == "/api/v1/namespaces/team/replicationcontrollers/r"
    (odd,) = owners_of({"ownerReferences": [owner("u", kind="Pod?watch=1", version="v1", name="x")]})
    assert path_of(odd, "team") == "/api/v1/namespaces/team/pod%3Fwatch%3D1s/x"
