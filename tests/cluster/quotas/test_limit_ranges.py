"""LimitRanges: defaults and refusals"""

from __future__ import annotations

from typing import Any

import pytest

from backoff_ctrl.k8s.kube.answers.rejections import Lane
from tests.cluster.quotas.quota_room import JSON, Room, claim, container, pod, told

ANNOTATION = "kubernetes.io/limit-ranger"
MAIN = "for container main"


def limits(kind: str, **bounds: Any) -> JSON:
    return {"metadata": {"name": "l"}, "spec": {"limits": [{"type": kind, **bounds}]}}


DEFAULTED = [
    pytest.param(
        limits("Container", default={"cpu": "500m", "memory": "64Mi"}, defaultRequest={"cpu": "250m"}),
        pod(),
        {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "250m", "memory": "64Mi"}},
        f"cpu, memory request {MAIN}; cpu, memory limit {MAIN}",
        id="all-that-is-missing",
    ),
    pytest.param(
        limits("Container", default={"cpu": "500m", "memory": "64Mi"}, defaultRequest={"cpu": "250m"}),
        pod(requests={"cpu": "100m"}),
        {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
        f"memory request {MAIN}; cpu, memory limit {MAIN}",
        id="what-is-said-stays",
    ),
    pytest.param(
        limits("Container", default={"cpu": "500m", "memory": "64Mi"}, defaultRequest={"cpu": "250m"}),
        pod(limits={"cpu": "2"}),
        {"limits": {"cpu": "2", "memory": "64Mi"}, "requests": {"cpu": "2", "memory": "64Mi"}},
        f"memory request {MAIN}; memory limit {MAIN}",
        id="a-limit-is-a-request-before",
    ),
    pytest.param(
        limits("Container", default={"cpu": "500m"}),
        pod(requests={"cpu": "0"}),
        {"limits": {"cpu": "500m"}, "requests": {"cpu": "0"}},
        f"cpu limit {MAIN}",
        id="zero-is-said",
    ),
    pytest.param(
        limits("Container", max={"cpu": "1"}),
        pod(),
        {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
        f"cpu request {MAIN}; cpu limit {MAIN}",
        id="a-maximum-is-a-default",
    ),
    pytest.param(
        limits("Container", min={"cpu": "100m", "memory": "1Mi"}),
        pod(),
        {"requests": {"cpu": "100m", "memory": "1Mi"}},
        f"cpu, memory request {MAIN}",
        id="a-minimum-is-a-default-request",
    ),
    pytest.param(
        limits("Container", default={"nvidia.com/gpu": "1"}),
        pod(),
        {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
        f"nvidia.com/gpu request {MAIN}; nvidia.com/gpu limit {MAIN}",
        id="extended-resources-too",
    ),
    pytest.param(
        limits("Container", default={"cpu": "0.5"}),
        pod(spec={"initContainers": [container("i")]}),
        {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}},
        f"cpu request {MAIN}; cpu limit {MAIN}; cpu request for init container i; cpu limit for init container i",
        id="init-containers-too",
    ),
]


@pytest.mark.parametrize(("given", "body", "resources", "said"), DEFAULTED)
async def test_a_limit_range_fills_in_missing_requests_and_limits(
    room: Room, given: JSON, body: JSON, resources: JSON, said: str
) -> None:
    """They get the defaults, and an annotation lists what was filled in."""
    await room.create("limitranges", given)
    made = await room.create("pods", body)

    assert made["spec"]["containers"][0]["resources"] == resources
    assert made["metadata"]["annotations"] == {ANNOTATION: f"LimitRanger plugin set: {said}"}


async def test_quota_charges_the_defaults_of_a_limit_range(room: Room) -> None:
    """Defaults apply before quota: a pod without requests is charged, and refused, for what it was given."""
    await room.create("limitranges", limits("Container", default={"cpu": "500m"}, defaultRequest={"cpu": "300m"}))
    await room.quota("q", {"requests.cpu": "500m", "limits.cpu": "2"})
    await room.create("pods", pod("a"))

    assert await room.used() == {"limits.cpu": "500m", "requests.cpu": "300m"}
    assert await room.refused("pods", pod("x")) == (
        'pods "x" is forbidden: exceeded quota: q, requested: requests.cpu=300m, used: requests.cpu=300m, '
        "limited: requests.cpu=500m"
    )


TWO = {"cpu": "600m"}
RATIO = limits("Container", maxLimitRequestRatio={"cpu": "2"})

REFUSED = [
    pytest.param(
        limits("Container", max={"cpu": "1"}),
        pod(limits={"cpu": "1500m"}),
        "maximum cpu usage per Container is 1, but limit is 1500m",
        id="max",
    ),
    pytest.param(
        limits("Container", max={"cpu": "1"}),
        pod(requests={"cpu": "2"}, limits={"cpu": "3"}),
        "maximum cpu usage per Container is 1, but limit is 3",
        id="max-of-a-limit-first",
    ),
    pytest.param(
        limits("Container", max={"nvidia.com/gpu": "1"}),
        pod(limits={"nvidia.com/gpu": "2"}),
        "maximum nvidia.com/gpu usage per Container is 1, but limit is 2",
        id="max-of-an-extended-resource",
    ),
    pytest.param(
        limits("Container", max={"memory": "1Gi"}),
        pod(limits={"memory": "2000000k"}),
        "maximum memory usage per Container is 1Gi, but limit is 2G",
        id="max-in-another-family",
    ),
    pytest.param(
        limits("Container", min={"cpu": "100m"}),
        pod(requests={"cpu": "0.05"}),
        "minimum cpu usage per Container is 100m, but request is 50m",
        id="min",
    ),
    pytest.param(
        limits("Container", max={"cpu": "1", "memory": "1Gi"}, min={"cpu": "200m"}),
        pod(requests={"cpu": "100m"}, limits={"memory": "2Gi"}),
        "[minimum cpu usage per Container is 200m, but request is 100m, "
        "maximum memory usage per Container is 1Gi, but limit is 2Gi]",
        id="min-and-max",
    ),
    pytest.param(
        limits("Container", max={"cpu": "1"}),
        pod(spec={"containers": [container(name, limits={"cpu": "2"}) for name in "ab"]}),
        "maximum cpu usage per Container is 1, but limit is 2",
        id="the-same-twice-is-said-once",
    ),
    pytest.param(
        limits("Container", max={"cpu": "1"}),
        pod(spec={"initContainers": [container("i", limits={"cpu": "2"})]}),
        "maximum cpu usage per Container is 1, but limit is 2",
        id="max-of-an-init-container",
    ),
    pytest.param(
        RATIO,
        pod(requests={"cpu": "1"}, limits={"cpu": "3"}),
        "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        id="ratio",
    ),
    pytest.param(
        RATIO,
        pod(requests={"cpu": "300m"}, limits={"cpu": "1"}),
        "cpu max limit to request ratio per Container is 2, but provided ratio is 3.333333",
        id="ratio-that-is-not-even",
    ),
    pytest.param(
        RATIO,
        pod(requests={"cpu": "1"}),
        "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        id="ratio-without-a-limit",
    ),
    pytest.param(
        RATIO,
        pod(),
        "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        id="ratio-without-a-request",
    ),
    pytest.param(
        limits("Pod", max={"cpu": "1"}),
        pod(spec={"containers": [container(name, limits=TWO) for name in "ab"]}),
        "maximum cpu usage per Pod is 1, but limit is 1200m",
        id="max-of-a-pod",
    ),
    pytest.param(
        limits("Pod", max={"cpu": "1"}),
        pod(requests={"cpu": "1"}),
        "maximum cpu usage per Pod is 1.  No limit is specified",
        id="max-of-a-pod-without-limits",
    ),
    pytest.param(
        limits("Pod", max={"cpu": "1"}, min={"memory": "1Mi"}),
        pod(),
        "[minimum memory usage per Pod is 1Mi.  No request is specified, "
        "maximum cpu usage per Pod is 1.  No limit is specified]",
        id="min-and-max-of-a-pod-that-says-nothing",
    ),
    pytest.param(
        limits("Pod", maxLimitRequestRatio={"memory": "1.5"}),
        pod(requests={"memory": "1Gi"}, limits={"memory": "2Gi"}),
        "memory max limit to request ratio per Pod is 1500m, but provided ratio is 2.000000",
        id="ratio-of-a-pod",
    ),
    pytest.param(
        limits("PersistentVolumeClaim", min={"storage": "1Gi"}),
        claim("x", "0.5Gi"),
        "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi",
        id="min-of-a-claim",
    ),
    pytest.param(
        limits("PersistentVolumeClaim", max={"storage": "5Gi"}),
        claim("x", "10Gi"),
        "maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 10Gi",
        id="max-of-a-claim",
    ),
]


@pytest.mark.parametrize(("given", "body", "why"), REFUSED)
async def test_a_limit_range_refuses_what_is_out_of_bounds(room: Room, given: JSON, body: JSON, why: str) -> None:
    """By minimum, maximum and ratio of containers, pods and claims; the message has the bound and the amount."""
    await room.create("limitranges", given)
    resource = "persistentvolumeclaims" if "accessModes" in body["spec"] else "pods"

    assert await room.refused(resource, body, Lane.LIMIT_RANGE) == f'{resource} "x" is forbidden: {why}'


async def test_a_default_limit_below_a_request_makes_the_pod_invalid(room: Room) -> None:
    """The request then exceeds the limit that was filled in: 422, and the pod is not stored."""
    await room.create("limitranges", limits("Container", default={"cpu": "500m"}))
    reply = await room.api.post(room.path("pods"), pod(requests={"cpu": "1"}))

    assert reply.status == 422
    assert reply.json["message"] == (
        'Pod "x" is invalid: spec.containers[0].resources.requests: Invalid value: "1": must be less than or equal to '
        "cpu limit of 500m"
    )


async def test_a_default_request_above_the_pod_level_request_makes_the_pod_invalid(room: Room) -> None:
    """The request that was filled in for a container exceeds that of the whole pod: 422."""
    await room.create("limitranges", limits("Container", defaultRequest={"cpu": "3"}))
    body = pod()
    body["spec"]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    reply = await room.api.post(room.path("pods"), body)

    assert reply.status == 422
    assert reply.json["message"] == (
        'Pod "x" is invalid: spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to '
        "aggregate container requests of 3"
    )


async def test_a_limit_range_is_checked_before_quota(room: Room) -> None:
    """A pod that violates both gets the LimitRange's refusal."""
    await room.create("limitranges", limits("Container", max={"cpu": "1"}))
    await room.quota("q", {"pods": "0"})

    assert "maximum cpu usage" in await room.refused("pods", pod(limits={"cpu": "2"}), Lane.LIMIT_RANGE)
    assert "exceeded quota: q" in await room.refused("pods", pod(limits={"cpu": "1"}))


async def test_a_limit_range_applies_to_a_resize_too(room: Room) -> None:
    """A running pod cannot grow beyond the maximum."""
    await room.create("limitranges", limits("Container", max={"cpu": "1"}))
    await room.create("pods", pod("x", {"cpu": "500m"}, {"cpu": "500m"}))
    larger = {"spec": {"containers": [container("main", {"cpu": "2"}, {"cpu": "2"})]}}
    reply = await room.api.patch(room.path("pods", "x", "resize"), larger, "application/strategic-merge-patch+json")

    assert told(reply, "pods", "x", Lane.LIMIT_RANGE) == (
        'pods "x" is forbidden: maximum cpu usage per Container is 1, but limit is 2'
    )


async def test_a_limit_range_is_stored_with_derived_defaults(room: Room) -> None:
    """A maximum becomes the default limit; a minimum or a default limit becomes the default request."""
    made = await room.create("limitranges", limits("Container", max={"cpu": "1.0"}, min={"memory": "1Mi"}))

    assert made["spec"]["limits"] == [
        {
            "type": "Container",
            "max": {"cpu": "1"},
            "min": {"memory": "1Mi"},
            "default": {"cpu": "1"},
            "defaultRequest": {"cpu": "1", "memory": "1Mi"},
        }
    ]
