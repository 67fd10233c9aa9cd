"""What the operator keeps of an object: all that decides about it, and nothing of what its user may write at will."""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from backoff_ctrl.k8s.kube.charges.resources import resource_of
from backoff_ctrl.k8s.workloads.admitting.asking import made_before, parts_made
from backoff_ctrl.k8s.workloads.admitting.kinds import (
    ADMITTED,
    JOB,
    JOB_SET,
    KINDS,
    PRIORITY,
    WAIT,
    AdmissibleKind,
    Left,
    subject_of,
)
from backoff_ctrl.k8s.workloads.admitting.kinds import left_waiting as left
from backoff_ctrl.k8s.workloads.admitting.shape import SPECS, shaped
from tests.cluster.admitting.jobs_at_work import job
from tests.kit.charged import cases
from tests.reading.told_parts import EXAMPLES, example

JSON = dict[str, Any]
MANY: Final = 5_000
ENTRIES: Final = [{"name": f"a{each}"} for each in range(MANY)]
NAMES: Final = {f"example.com/a{each}": "a" for each in range(MANY)}
FEW: Final = 60
"""Values that are kept of a Job with one container."""

POD_SPECS: Final = {case.key: case.written["spec"] for case in cases() if resource_of(case.written) == "pods"}
KINDS_OF_EXAMPLES: Final = [
    (kind, file.stem)
    for file in sorted(EXAMPLES.glob("*.yaml"))
    for kind in KINDS
    if (kind.api_version, kind.kind) == (example(file.stem).get("apiVersion"), example(file.stem).get("kind"))
]


def values_in(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(values_in, value.values()))
    return 1 + sum(map(values_in, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize("key", POD_SPECS)
def test_a_job_and_a_job_set_are_charged_the_same_by_what_is_kept(key: str) -> None:
    """The pods are those whose charges a real Kubernetes has recorded."""
    template = {"metadata": {"labels": {"app": "a"}}, "spec": POD_SPECS[key]}
    one = job("one", template=template)
    jobs = [{"name": "a", "replicas": 2, "template": {"spec": one["spec"]}}]
    several = {"apiVersion": JOB_SET.api_version, "kind": "JobSet", "spec": {"suspend": True, "replicatedJobs": jobs}}
    for kind, body in ((JOB, one), (JOB_SET, several)):
        assert parts_made(kind, shaped(kind, body)) == parts_made(kind, body)


def test_a_claim_is_charged_to_its_class_by_what_is_kept() -> None:
    """The class may be in an annotation of the claim's own, as in Kubernetes 1.5."""
    claim = {
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "fast", **NAMES}},
        "spec": {"resources": {"requests": {"storage": "1Gi"}}, "volumeAttributesClassName": "gold"},
    }
    body = job("a")
    body["spec"]["template"]["spec"]["volumes"] = [{"name": "v", "ephemeral": {"volumeClaimTemplate": claim}}]
    assert parts_made(JOB, shaped(JOB, body)) == parts_made(JOB, body)
    assert "fast.storageclass.storage.k8s.io/requests.storage" in str(parts_made(JOB, body))
    assert values_in(shaped(JOB, body)) < FEW


@pytest.mark.parametrize(("kind", "name"), KINDS_OF_EXAMPLES, ids=[name for _, name in KINDS_OF_EXAMPLES])
def test_the_examples_of_other_operators_make_the_same_by_what_is_kept(kind: AdmissibleKind, name: str) -> None:
    body = example(name)
    kept = shaped(kind, body)
    assert parts_made(kind, kept) == parts_made(kind, body)
    assert made_before(kind, kept) == made_before(kind, body)
    if kind.resource in SPECS:
        assert values_in(kept) < values_in(body)


def test_every_kind_without_a_shape_is_known() -> None:
    assert [kind.resource for kind in KINDS if kind.resource not in SPECS] == ["sparkapplications.sparkoperator.k8s.io"]


@pytest.mark.parametrize("field", ["env", "envFrom", "args", "command", "volumeMounts", "livenessProbe"])
def test_what_a_container_has_beside_its_amounts_is_not_kept(field: str) -> None:
    body = job("large")
    body["spec"]["template"]["spec"]["containers"][0][field] = ENTRIES
    assert values_in(shaped(JOB, body)) < FEW


@pytest.mark.parametrize("field", ["tolerations", "hostAliases", "topologySpreadConstraints", "imagePullSecrets"])
def test_what_a_pod_has_beside_its_amounts_is_not_kept(field: str) -> None:
    body = job("large")
    body["spec"]["template"]["spec"][field] = ENTRIES
    assert values_in(shaped(JOB, body)) < FEW


@pytest.mark.parametrize("field", ["labels", "annotations", "managedFields", "finalizers"])
def test_metadata_that_is_not_ours_is_not_kept(field: str) -> None:
    body = job("large")
    body["metadata"][field] = ENTRIES if field in {"managedFields", "finalizers"} else NAMES
    body["spec"]["template"]["metadata"] = {"labels": NAMES, "annotations": NAMES}
    assert values_in(shaped(JOB, body)) < FEW


def test_what_a_condition_has_beside_its_type_is_not_kept() -> None:
    body = job("large") | {"status": {"conditions": [{"type": "Failed", "status": "True", "message": NAMES}]}}
    assert JOB.has_ended(shaped(JOB, body))
    assert values_in(shaped(JOB, body)) < FEW


def test_whose_an_object_is_is_known_by_what_is_kept() -> None:
    """The labels and annotations that ``left_waiting`` and the line read are there, as others wrote them."""
    owner = {"apiVersion": JOB_SET.api_version, "kind": "JobSet", "name": "s", "uid": "u", "controller": True}
    plain, queued, made = job("a", annotations={PRIORITY: "3", ADMITTED: "{}"}), job("a"), job("a")
    queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "q"
    made["metadata"]["ownerReferences"] = [owner]
    found = [left(subject_of(JOB, shaped(JOB, body))) for body in (plain, queued, made, job("a", asks=False))]
    assert found == [None, Left.KUEUE, Left.PART, Left.UNASKED]
    assert shaped(JOB, plain)["metadata"]["annotations"] == {PRIORITY: "3", ADMITTED: "{}"}
    assert shaped(JOB, plain)["metadata"]["labels"] == {WAIT: "true"}


def test_what_is_kept_is_kept_again_and_the_object_stays_as_it_is() -> None:
    body = job("a")
    before = copy.deepcopy(body)
    assert shaped(JOB, shaped(JOB, body)) == shaped(JOB, body)
    assert body == before


@pytest.mark.parametrize("wrong", ["a", 1, None, ["a"], {"a": 1}])
def test_a_field_of_another_type_is_the_same_error(wrong: object) -> None:
    """Kinds of a lax definition may have anything there: the sentence names the field as without a shape."""
    body = job("a")
    body["spec"]["template"]["spec"]["containers"] = wrong
    said = []
    for each in (body, shaped(JOB, body)):
        with pytest.raises(Exception) as error:  # noqa: PT011 - whichever it is, it is the same
            parts_made(JOB, each)
        said.append(repr(error.value))
    assert said[0] == said[1]
