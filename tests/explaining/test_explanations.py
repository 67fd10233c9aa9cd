"""What would happen to a manifest, by the quotas and LimitRanges of its namespace."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.charges.device_claims import Devices
from backoff_ctrl.k8s.status import explaining
from backoff_ctrl.k8s.status.asked import ProblemError
from tests.explaining.asking import JSON, explain, job, limit_range, pod, quota


def verdicts(manifest: JSON, *quotas: JSON, ranges: list[JSON] | None = None) -> dict[str, str]:
    """The verdict of each part."""
    return {part.part: part.verdict for part in explain(manifest, *quotas, ranges=ranges or []).parts}


@pytest.mark.parametrize(
    ("cpu", "verdict"), [("1", "now"), ("2", "now"), ("2001m", "wait"), ("4", "wait"), ("4001m", "never")]
)
def test_a_pod_against_one_quota(cpu: str, verdict: str) -> None:
    """Equal to what is left goes in; equal to the limit may go in some day."""
    found = explain(pod({"cpu": cpu}), quota("q", {"requests.cpu": "4"}, {"requests.cpu": "2"}), ranges=[])
    assert found.verdict == verdict
    named = [(b.quota, b.resource, b.asked, b.left, b.limited) for b in found.blockers]
    assert named == ([] if verdict == "now" else [("q", "requests.cpu", cpu, "2", "4")])
    assert found.note is None


def test_every_quota_without_room_is_a_blocker() -> None:
    """Not only the first, which is all that a refusal names."""
    full = [quota(name, {"pods": "1"}, {"pods": "1"}) for name in ("a", "b")]
    found = explain(pod(), *full, quota("c", {"pods": "2"}, {"pods": "1"}))
    assert [blocker.quota for blocker in found.blockers] == ["a", "b"]


def test_a_quota_with_scopes_counts_for_those_that_it_selects() -> None:
    """A pod without amounts is BestEffort."""
    full = quota("q", {"pods": "0"}, scopes=["BestEffort"])
    assert verdicts(pod(), full) == {"create": "wait"}
    assert verdicts(pod({"cpu": "1"}), full) == {"create": "now"}


def test_what_every_container_has_to_specify() -> None:
    """A quota on cpu or memory refuses pods that leave it open, full or not."""
    found = explain(
        pod({"cpu": "1"}), quota("q", {"requests.memory": "4Gi", "limits.cpu": "4", "pods": "0"}), ranges=[]
    )
    assert (found.verdict, found.blockers) == ("refused", [])
    assert found.parts[0].why == [
        "spec.containers[0].resources: quota q limits limits.cpu, requests.memory, so every container must specify it"
    ]


@pytest.mark.parametrize(
    ("requests", "limits"),
    [
        ({"cpu": "1", "memory": "1"}, {"cpu": "1"}),
        ({"memory": "1"}, {"cpu": "1"}),
        ({"cpu": "0", "memory": 0}, {"cpu": 0}),
    ],
)
def test_a_limit_specifies_its_request_and_zero_is_specified(requests: JSON, limits: JSON) -> None:
    """What is given counts, not how much."""
    full = quota("q", {"cpu": "4", "memory": "4Gi", "limits.cpu": "4"})
    assert verdicts(pod(requests, limits), full) == {"create": "now"}


def test_defaults_of_a_limit_range_are_charged() -> None:
    """They are what quota admission sees: the footprint has them, too."""
    ranges = [limit_range("l", {"type": "Container", "default": {"cpu": "3"}, "defaultRequest": {"cpu": "2"}})]
    found = explain(pod(), quota("q", {"requests.cpu": "1", "limits.cpu": "4"}), ranges=ranges)
    assert found.verdict == "never"
    assert {key: found.footprint.amounts[key] for key in ("requests.cpu", "limits.cpu")} == {
        "requests.cpu": "2",
        "limits.cpu": "3",
    }


def test_own_amounts_come_before_defaults() -> None:
    """A limit is also the request, before any LimitRange looks."""
    ranges = [limit_range("l", {"type": "Container", "default": {"cpu": "9"}, "defaultRequest": {"cpu": "9"}})]
    found = explain(pod(limits={"cpu": "1"}), quota("q", {"requests.cpu": "1"}), ranges=ranges)
    assert (found.verdict, found.footprint.amounts["requests.cpu"]) == ("now", "1")


@pytest.mark.parametrize(
    ("item", "manifest", "refused"),
    [
        ({"type": "Container", "max": {"cpu": "1"}}, pod({"cpu": "1"}, {"cpu": "1"}), False),
        ({"type": "Container", "max": {"cpu": "1"}}, pod({"cpu": "1"}, {"cpu": "1001m"}), True),
        ({"type": "Container", "max": {"cpu": "1"}}, pod({"cpu": "1"}), True),
        ({"type": "Container", "min": {"cpu": "1"}}, pod({"cpu": "1"}), False),
        ({"type": "Container", "min": {"cpu": "1"}}, pod({"cpu": "999m"}), True),
        ({"type": "Container", "min": {"cpu": "1"}}, pod(), True),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}, pod({"cpu": "1"}, {"cpu": "2"}), False),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}, pod({"cpu": "1"}, {"cpu": "3"}), True),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}, pod({"cpu": "1"}), True),
        ({"type": "Pod", "max": {"memory": "1Gi"}}, pod({"memory": "1Gi"}, {"memory": "1Gi"}), False),
        ({"type": "Pod", "max": {"memory": "1Gi"}}, pod({"memory": "2Gi"}, {"memory": "2Gi"}), True),
        ({"type": "Pod", "min": {"memory": "1Gi"}}, pod({"memory": "1Mi"}), True),
        ({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, pod(), False),
    ],
)  # fmt: skip
def test_what_a_limit_range_refuses(item: JSON, manifest: JSON, refused: bool) -> None:
    """Whatever room there is."""
    found = explain(manifest, ranges=[limit_range("l", item)])
    assert found.verdict == ("refused" if refused else "now"), found.parts[0].why
    assert all(why.startswith("LimitRange: ") for why in found.parts[0].why)


def test_a_claim_has_a_limit_range_too() -> None:
    """Its requests alone count."""
    claim: JSON = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "team"},
        "spec": {"resources": {"requests": {"storage": "2Gi"}}},
    }
    ranges = [limit_range("l", {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}})]
    assert verdicts(claim, ranges=ranges) == {"create": "refused"}
    assert verdicts(claim, quota("q", {"requests.storage": "1Gi"})) == {"create": "never"}


def test_a_request_above_its_limit_is_invalid() -> None:
    """Also one that a default makes so."""
    assert verdicts(pod({"cpu": "2"}, {"cpu": "1"})) == {"create": "refused"}
    ranges = [limit_range("l", {"type": "Container", "default": {"cpu": "1"}})]
    assert verdicts(pod({"cpu": "2"}), ranges=ranges) == {"create": "refused"}


def test_the_create_of_a_job_and_its_pods_are_told_apart() -> None:
    """The Job goes in at once, and its pods wait."""
    room = quota("q", {"requests.cpu": "4", "count/jobs.batch": "1"}, {"requests.cpu": "2"})
    found = explain(job(3, {"cpu": "1"}), room, ranges=[])
    assert (found.verdict, found.blockers) == ("now", [])
    assert [(part.part, part.verdict) for part in found.parts] == [("create", "now"), ("pods", "wait")]
    assert [(b.resource, b.asked, b.left) for b in found.parts[1].blockers] == [("requests.cpu", "3", "2")]
    assert [(part.kind, part.count, part.made_by) for part in found.footprint.parts] == [("Pod", 3, "Job")]


@pytest.mark.parametrize(
    ("manifest", "verdict"),
    [
        (job(2, {"cpu": "1"}), "now"),
        (job(8, {"cpu": "1"}), "wait"),  # in turns
        (job(1, {"cpu": "5"}), "never"),
        (job(1), "refused"),
        (job(8, {"cpu": "1"}, suspend=True), "wait"),  # once it is resumed
        (job(2, {"cpu": "1"}, suspend=True), "now"),
        (job(1, {"cpu": "5"}, suspend=True), "never"),
    ],
)
def test_what_becomes_of_the_pods_of_a_job(manifest: JSON, verdict: str) -> None:
    """By their number, by a single one of them, and by what their template leaves open."""
    found = explain(manifest, quota("q", {"requests.cpu": "4"}, {"requests.cpu": "2"}), ranges=[])
    assert {part.part: part.verdict for part in found.parts} == {"create": "now", "pods": verdict}
    assert ("resumed" in (found.note or "")) == bool(manifest["spec"].get("suspend"))


def test_defaults_go_into_pod_templates() -> None:
    """The pods that a Job makes are defaulted as others are."""
    ranges = [limit_range("l", {"type": "Container", "defaultRequest": {"cpu": "3"}})]
    found = explain(job(1), quota("q", {"requests.cpu": "2"}), ranges=ranges)
    assert found.parts[1].verdict == "never"


def test_of_a_daemon_set_one_pod_is_counted() -> None:
    """How many there will be, nobody knows; the note says so."""
    template = job(1, {"cpu": "1"})["spec"]["template"]
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d", "namespace": "team"},
        "spec": {"template": template},
    }
    found = explain(manifest, quota("q", {"requests.cpu": "1"}, {"requests.cpu": "1"}), ranges=[])
    assert found.parts[1].verdict == "wait"
    assert found.note == "only the cluster knows how many Pods DaemonSet makes: one of each is counted"


def test_unknown_limit_ranges_are_said() -> None:
    """For what has pods; nothing else has defaults."""
    assert explain(pod()).note == "LimitRange defaults are not known here and are left out"
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "team"}}
    assert explain(config).note is None


def test_a_quota_that_cannot_be_read_leaves_it_open() -> None:
    """It may be in the way."""
    broken = {"metadata": {"name": "b"}, "spec": {"scopes": "all"}}
    found = explain(pod(), broken, ranges=[])
    assert found.verdict == "unknown"
    assert "there may be more quotas" in (found.note or "")


def test_the_manifest_stays_as_it_was() -> None:
    """Defaults are filled into a copy."""
    manifest = job(1)
    before = copy.deepcopy(manifest)
    explain(manifest, ranges=[limit_range("l", {"type": "Container", "default": {"cpu": "1"}})])
    assert manifest == before


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "x"}}}]}},
         "#/body/spec/containers/0/resources/limits/nvidia.com~1gpu"),
        ({"spec": {"containers": [{"resources": 5}]}}, "#/body/spec/containers/0/resources"),
        ({"spec": {"containers": []}}, "#/body/spec/containers"),
        ({"spec": None}, "#/body/spec"),
        ({"kind": None}, "#/body/kind"),
    ],
)  # fmt: skip
def test_a_malformed_field_is_pointed_at(change: dict[str, Any], pointer: str) -> None:
    """A JSON Pointer into the body, also for keys with dots and slashes."""
    with pytest.raises(ProblemError) as caught:
        explain({**pod(), **change})
    assert caught.value.problem.status == 422
    assert [each.pointer for each in caught.value.problem.errors] == [pointer]


def test_of_a_job_that_waits_it_is_said_whether_it_fits_as_one() -> None:
    """By its label: others run in turns. One that is suspended is weighed as it will be once it is resumed."""
    room = quota("q", {"requests.cpu": "4"})
    said = "as one it never fits: the gang asks requests.cpu=8 (8 x 1 for the Pods of Job j), but quota q allows 4"
    for spec in ({}, {"suspend": True}):
        waits = job(8, {"cpu": "1"}, **spec)
        waits["metadata"]["labels"] = {"backoff-ctrl.dev/wait": "true"}
        assert said in (explain(waits, room, ranges=[]).note or "")
        assert "as one" not in (explain(job(8, {"cpu": "1"}, **spec), room, ranges=[]).note or "")
    fits = job(4, {"cpu": "1"})
    fits["metadata"]["labels"] = {"backoff-ctrl.dev/wait": "true"}
    assert "as one" not in (explain(fits, room, ranges=[]).note or "")


def with_claims(template: str) -> JSON:
    """A Job of two pods, each with a ResourceClaim made from this template."""
    manifest = job(2, {"cpu": "1"})
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    manifest["spec"]["template"]["spec"]["resourceClaims"] = claims
    return manifest


def devices_of(device_class: str, count: int) -> JSON:
    """The spec of a ResourceClaim."""
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": device_class, "count": count}}]}}


def test_devices_that_can_t_be_read_are_left_out_and_named() -> None:
    found = explain(with_claims("two"), quota("q", {"requests.cpu": "4"}), ranges=[])
    assert "ResourceClaimTemplates are not known here and are left out: two" in (found.note or "")
    assert explaining.CLASSES in (found.note or "")


def test_devices_count_under_the_extended_resource_of_their_class() -> None:
    """Those of a claim itself, and those of the claims that a Job's pods bring; nothing is noted as left out."""
    known = Devices({"two": devices_of("gpu", 2)}, {"gpu": "example.com/device"})
    room = quota("q", {"requests.example.com/device": "3"})
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "team"},
        "spec": devices_of("gpu", 4),
    }
    by_job, itself = explain(with_claims("two"), room, ranges=[], devices=known), explain(claim, room, devices=known)
    assert [each.verdict for each in by_job.parts] == ["now", "wait"]
    assert [(each.resource, each.asked) for each in by_job.parts[1].blockers] == [("requests.example.com/device", "4")]
    assert by_job.note is None
    assert (itself.verdict, itself.note) == ("never", None)


def test_devices_are_asked_for_only_where_claims_are_made() -> None:
    assert explain(job(2, {"cpu": "1"}), quota("q", {"requests.cpu": "4"}), ranges=[], devices=None).verdict == "now"
