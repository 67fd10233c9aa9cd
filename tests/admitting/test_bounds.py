"""What the operator keeps of the objects of one namespace is bounded; what is beyond that is known by what it is."""

from __future__ import annotations

from typing import Any, Final

import pytest

from backoff_ctrl.k8s.kube.answers.objects import object_of
from backoff_ctrl.k8s.kube.operators.states import Stands
from backoff_ctrl.k8s.kube.watching.shares import BESIDE, OBJECT_MAX, Beyond, Shares, size_of
from backoff_ctrl.k8s.workloads.admitting.kinds import (
    ADMITTED,
    JOB,
    JOB_SET,
    KINDS,
    STAY_SUSPENDED,
    AdmissibleKind,
    Left,
    controller_of,
    left_waiting,
    subject_of,
)
from backoff_ctrl.k8s.workloads.admitting.life import Seen, seen_of
from backoff_ctrl.k8s.workloads.admitting.shape import IDENTIFIED_MAX, identified, shaped
from backoff_ctrl.k8s.workloads.admitting.stubs import Kept, Stub
from tests.cluster.admitting.jobs_at_work import job

JSON = dict[str, Any]
MANY: Final = 20_000
LARGE: Final = {
    "containers": lambda spec: spec.update(containers=[{"name": f"c{each}"} for each in range(MANY)]),
    "volumes": lambda spec: spec.update(volumes=[{"name": f"v{each}", "emptyDir": {}} for each in range(MANY)]),
    "claims": lambda spec: spec.update(volumes=[volume(each) for each in range(MANY // 10)]),
    "devices": lambda spec: spec.update(resourceClaims=[{"resourceClaimTemplateName": "t" * 60}] * MANY),
    "selectors": lambda spec: spec.update(affinity=affinity()),
    "ports": lambda spec: spec["containers"][0].update(ports=[{"name": f"p{each}"} for each in range(MANY)]),
    "requests": lambda spec: spec["containers"][0].update(
        resources={"requests": {f"example.com/r{each}": "1" for each in range(MANY)}}
    ),
}


def volume(number: int) -> JSON:
    claim = {"spec": {"resources": {"requests": {"storage": f"{number + 1}Gi"}}}}
    return {"name": f"v{number}", "ephemeral": {"volumeClaimTemplate": claim}}


def affinity() -> JSON:
    selector = {"matchLabels": {f"a{each}": "b" for each in range(MANY)}}
    term = {"topologyKey": "zone", "namespaceSelector": selector}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def stored(name: str, namespace: str = "team", **metadata: Any) -> JSON:
    body = job(name)
    body["metadata"] |= {"namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": "1", **metadata}
    return body


def large(sort: str, name: str = "large") -> JSON:
    body = stored(name)
    LARGE[sort](body["spec"]["template"]["spec"])
    return body


def kept(body: JSON, shares: Shares, kind: AdmissibleKind = JOB) -> JSON:
    keeping = Kept(kind, shares)
    return keeping.keep(object_of(keeping.trim(body))).body


def size(value: object) -> int:
    return size_of(value, 1 << 40)


# -- of one object ---------


@pytest.mark.parametrize("sort", LARGE)
def test_of_an_object_beyond_the_bound_only_a_stub_is_kept(sort: str) -> None:
    shares = Shares()
    found = kept(large(sort), shares)
    assert size(shaped(JOB, large(sort))) > OBJECT_MAX
    assert isinstance(found, Stub)
    assert found.beyond is Beyond.OBJECT
    assert size(found) < IDENTIFIED_MAX
    assert shares.of("team") == 0
    assert "split it, or release it" in found.sentence


def test_a_stub_is_suspended_and_ours_as_the_whole_object_is() -> None:
    body = large("containers")
    for each in (body, kept(body, Shares())):
        assert seen_of(subject_of(JOB, each), left_waiting(subject_of(JOB, each))) is Seen.SUSPENDED
    body["metadata"]["annotations"][STAY_SUSPENDED] = "true"
    assert left_waiting(subject_of(JOB, kept(body, Shares()))) is Left.HELD
    body["spec"]["suspend"] = False
    assert not JOB.is_suspended(kept(body, Shares()))
    owner = {"apiVersion": JOB_SET.api_version, "kind": "JobSet", "name": "s", "uid": "u", "controller": True}
    body["metadata"]["ownerReferences"] = [owner]
    assert left_waiting(subject_of(JOB, kept(body, Shares()))) is Left.PART


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_what_identifies_an_object_is_small_whatever_is_written(kind: AdmissibleKind) -> None:
    """Of kinds without a shape, too, and with a status that its user may write."""
    text = "x" * 200_000
    body: JSON = stored("a", annotations={ADMITTED: text, STAY_SUSPENDED: "true", "example.com/a": text})
    body["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "A", "name": text, "uid": "u"}] * 100
    body["spec"] = dict.fromkeys(("managedBy", "clusterSelector", "other"), text) | {"suspend": True}
    body["status"] = {"conditions": [{"type": "Other", "status": "True", "message": text}] * 5_000, "other": text}
    found = identified(kind, body)
    assert size(found) < IDENTIFIED_MAX
    assert found["metadata"]["annotations"] == {STAY_SUSPENDED: "true"}


ENDING: Final = [kind for kind in KINDS if Stands.ENDED in kind.states.values()]


@pytest.mark.parametrize("kind", ENDING, ids=lambda kind: kind.kind)
def test_of_what_has_ended_only_what_identifies_it_is_kept(kind: AdmissibleKind) -> None:
    """Thousands of ended Jobs may stay in a namespace that keeps them."""
    body = stored("a")
    state = next(name for name, stands in kind.states.items() if stands is Stands.ENDED)
    body["status"] = {"conditions": [{"type": state, "status": "True", "message": "x" * 100}]}
    assert kind.has_ended(body)
    found = kept(body, Shares(), kind)
    assert kind.has_ended(found)
    assert found.keys() == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert "template" not in found["spec"]


def test_what_has_ended_takes_no_share_from_what_waits() -> None:
    """A namespace may keep thousands of ended Jobs, and its new ones start."""
    shares = Shares(of_namespace=16 << 10, guaranteed=0)
    assert not isinstance(kept(stored("a"), shares), Stub)
    assert isinstance(kept(stored("b"), shares), Stub)
    for name in "acdefg":
        kept(stored(name) | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, shares)
    assert shares.of("team") == 0
    assert not isinstance(kept(stored("b"), shares), Stub)


@pytest.mark.parametrize("field", ["name", "uid", "apiVersion", "kind"])
def test_an_owner_that_is_called_by_a_megabyte_is_none(field: str) -> None:
    """Owners are remembered by their names, 2,048 of them."""
    owner = {"apiVersion": "batch/v1", "kind": "Flow", "name": "f", "uid": "u", "controller": True}
    assert controller_of({"metadata": {"ownerReferences": [owner]}}) is not None
    assert controller_of({"metadata": {"ownerReferences": [owner | {field: "x" * 1_000_000}]}}) is None


# -- of a namespace ---------


def test_the_objects_of_a_namespace_are_bounded_and_others_are_kept() -> None:
    each = size(shaped(JOB, stored("a"))) + BESIDE
    shares = Shares(of_namespace=3 * each, guaranteed=0)
    found = [kept(stored(name), shares) for name in "abcd"]
    assert [isinstance(body, Stub) for body in found] == [False, False, False, True]
    assert isinstance(found[3], Stub)
    assert found[3].beyond is Beyond.NAMESPACE
    assert "it waits until other objects have gone" in found[3].sentence
    assert not isinstance(kept(stored("a", "other"), shares), Stub)
    assert shares.of("team") <= 3 * each


def test_what_has_gone_makes_way_and_what_changes_counts_once() -> None:
    each = size(shaped(JOB, stored("a"))) + BESIDE
    shares = Shares(of_namespace=each, guaranteed=0)
    keeping = Kept(JOB, shares)
    for version in "123":
        assert not isinstance(kept(stored("a", resourceVersion=version), shares), Stub)
    stub = kept(stored("b"), shares)
    assert not keeping.has_room(object_of(stub))
    keeping.drop("team", "team-a")
    keeping.drop("team", "team-a")
    assert shares.of("team") == 0
    assert keeping.has_room(object_of(stub))
    assert not keeping.has_room(object_of(kept(large("containers"), shares))), (
        "to read it again would not make it smaller"
    )


def test_every_namespace_has_a_share_though_others_have_filled_the_whole() -> None:
    each = size(shaped(JOB, stored("a"))) + BESIDE
    shares = Shares(of_all=4 * each, guaranteed=each)
    for namespace in ("a", "b", "c", "d"):
        kept(stored("one", namespace), shares)
    assert isinstance(kept(stored("two", "a"), shares), Stub)
    assert not isinstance(kept(stored("one", "e"), shares), Stub)


def test_a_value_is_counted_with_all_that_is_in_it_and_not_far_beyond_the_limit() -> None:
    assert size({"a": ["x" * 1000, {"b" * 500: 1}]}) > 1500
    assert size([1, None, True, 2.5]) > 100
    assert 1000 < size_of([["x"] * 10] * 1_000_000, 1000) < 9_000_000
