"""What is kept of the objects that controllers have made is bounded by namespace, too."""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.kube.answers.objects import object_of
from backoff_ctrl.k8s.kube.charges.resources import CLAIMS, DEVICE_CLAIMS
from backoff_ctrl.k8s.kube.watching.shares import size_of
from backoff_ctrl.k8s.kube.watching.status import WatchRecord
from backoff_ctrl.k8s.workloads.admitting import children as following
from backoff_ctrl.k8s.workloads.admitting.children import Children
from backoff_ctrl.k8s.workloads.admitting.kinds import controller_of

JSON = dict[str, Any]
LARGE: JSON = {"devices": {"requests": [{"name": f"r{each}"} for each in range(10_000)]}}


def child(number: int, namespace: str = "team", spec: JSON | None = None) -> JSON:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": f"{namespace}-pod", "controller": True}
    metadata = {"name": f"c{number}", "namespace": namespace, "uid": f"{namespace}-{number}"}
    return {
        "metadata": {**metadata, "ownerReferences": [owner], "annotations": {"a": "x" * 200_000}},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}, **(spec or {})},
    }


def children() -> Children:
    source: Any = None  # nothing is followed
    return Children(source, WatchRecord(), (None,), (), lambda *_: None)


def note(found: Children, resource: str, body: JSON, *, gone: bool) -> None:
    found.note(resource, object_of(body), controller_of(body), gone=gone)


def known(found: Children, namespace: str = "team") -> list[str]:
    return [each.name for each in found.below(namespace, f"{namespace}-pod")]


def test_of_a_child_its_charge_is_kept_however_large_it_is() -> None:
    found = children()
    note(found, CLAIMS, child(1, spec={"volumes": ["x" * 100] * 10_000}), gone=False)
    (kept,) = found.below("team", "team-pod")
    assert kept.charged is not None
    assert kept.charged.amounts["requests.storage"] == 2**30 * 10**9
    assert kept.devices is None


def test_a_claim_for_devices_that_is_too_large_counts_as_not_made() -> None:
    found = children()
    note(found, DEVICE_CLAIMS, child(1, spec=LARGE), gone=False)
    assert known(found) == []
    note(found, DEVICE_CLAIMS, child(2, spec={"devices": {"requests": []}}), gone=False)
    assert known(found) == ["c2"]
    (kept,) = found.below("team", "team-pod")
    assert size_of(kept.devices, 1 << 30) < following.SPEC_MAX


def test_the_children_of_a_namespace_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "OF_NAMESPACE", 3 * following.BESIDE)
    monkeypatch.setattr(following, "GUARANTEED", 0)
    found = children()
    for number in range(5):
        note(found, CLAIMS, child(number), gone=False)
    note(found, CLAIMS, child(1, "other"), gone=False)
    assert len(known(found)) == 2
    assert known(found, "other") == ["c1"]
    note(found, CLAIMS, child(0), gone=True)
    note(found, CLAIMS, child(4), gone=False)
    assert known(found) == ["c1", "c4"]
