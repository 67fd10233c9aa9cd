"""Quota: the message for a pod that does not fit"""

from __future__ import annotations

from urllib.parse import quote

import pytest

from backoff_ctrl.k8s.kube.answers.rejections import Lane, read_rejection
from tests.cluster.control_plane.servers import Server
from tests.cluster.quotas.quota_room import JSON, Room, container, pod
from tests.cluster.talking import Api

GPU = "nvidia.com/gpu"


def gpus(name: str, count: str) -> JSON:
    return pod(name, limits={GPU: count})


CASES = [
    pytest.param(
        {"limits.cpu": "300m", "requests.cpu": "200m"},
        [],
        pod("x", {"cpu": "500m"}, {"cpu": "500m"}),
        "requested: limits.cpu=500m,requests.cpu=500m, used: limits.cpu=0,requests.cpu=0, "
        "limited: limits.cpu=300m,requests.cpu=200m",
        id="never-fits",
    ),
    pytest.param(
        {"pods": "2"},
        [pod("a"), pod("b")],
        pod("x"),
        "requested: pods=1, used: pods=2, limited: pods=2",
        id="pods",
    ),
    pytest.param(
        {"cpu": "1", "memory": "2Gi"},
        [pod(f"f{number}", {"cpu": "250m", "memory": "512Mi"}) for number in range(4)],
        pod("x", {"cpu": "250m", "memory": "512Mi"}),
        "requested: cpu=250m,memory=512Mi, used: cpu=1,memory=2Gi, limited: cpu=1,memory=2Gi",
        id="bare-names",
    ),
    pytest.param(
        {"cpu": "1", "requests.cpu": "1"},
        [],
        pod("x", {"cpu": "2"}),
        "requested: cpu=2,requests.cpu=2, used: cpu=0,requests.cpu=0, limited: cpu=1,requests.cpu=1",
        id="both-names-of-one-resource",
    ),
    pytest.param(
        {"requests.cpu": "50", "requests.memory": "140Gi"},
        [pod("a", {"cpu": "32575m", "memory": "90368Mi"})],
        pod("x", {"cpu": "20", "memory": "60Gi"}),
        "requested: requests.cpu=20,requests.memory=60Gi, used: requests.cpu=32575m,requests.memory=90368Mi, "
        "limited: requests.cpu=50,requests.memory=140Gi",
        id="thousandths-and-mebibytes",
    ),
    pytest.param(
        {"requests.memory": "8Gi"},
        [pod(f"f{number}", {"memory": "1500M"}) for number in range(5)],
        pod("x", {"memory": "1500M"}),
        "requested: requests.memory=1500M, used: requests.memory=7500M, limited: requests.memory=8Gi",
        id="families-mix",
    ),
    pytest.param(
        {"requests.cpu": "1", "requests.memory": "1Gi", "pods": "9"},
        [pod("a", {"cpu": "900m", "memory": "1Mi"})],
        pod("x", {"cpu": "200m", "memory": "1Mi"}),
        "requested: requests.cpu=200m, used: requests.cpu=900m, limited: requests.cpu=1",
        id="only-what-is-exceeded-is-named",
    ),
    pytest.param(
        {"pods": "0"},
        [],
        pod("x"),
        "requested: pods=1, used: pods=0, limited: pods=0",
        id="paused",
    ),
    pytest.param(
        {"limits.cpu": "2"},
        [pod("a", limits={"cpu": "1500m"})],
        pod("x", limits={"cpu": "1"}),
        "requested: limits.cpu=1, used: limits.cpu=1500m, limited: limits.cpu=2",
        id="limits",
    ),
    pytest.param(
        {"requests.cpu": "2"},
        [pod("a", limits={"cpu": "1500m"})],
        pod("x", limits={"cpu": "1"}),
        "requested: requests.cpu=1, used: requests.cpu=1500m, limited: requests.cpu=2",
        id="a-limit-is-a-request-too",
    ),
    pytest.param(
        {"requests.nvidia.com/gpu": "1"},
        [gpus("a", "1")],
        gpus("x", "1"),
        "requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=1, limited: requests.nvidia.com/gpu=1",
        id="extended-resource",
    ),
    pytest.param(
        {"requests.huawei.com/Ascend910": "1"},
        [],
        pod("x", limits={"huawei.com/Ascend910": "2"}),
        "requested: requests.huawei.com/Ascend910=2, used: requests.huawei.com/Ascend910=0, "
        "limited: requests.huawei.com/Ascend910=1",
        id="extended-resource-with-capitals",
    ),
    pytest.param(
        {"requests.cpu": "2", "requests.nvidia.com/gpu": "1", "pods": "10"},
        [pod("a", {"cpu": "1500m"}, {GPU: "1"})],
        pod("x", {"cpu": "1500m"}, {GPU: "1"}),
        "requested: requests.cpu=1500m,requests.nvidia.com/gpu=1, used: requests.cpu=1500m,requests.nvidia.com/gpu=1, "
        "limited: requests.cpu=2,requests.nvidia.com/gpu=1",
        id="two-of-three",
    ),
    pytest.param(
        {"hugepages-2Mi": "4Mi"},
        [pod("a", {"memory": "1Mi"}, {"hugepages-2Mi": "4Mi", "memory": "1Mi"})],
        pod("x", {"memory": "1Mi"}, {"hugepages-2Mi": "2Mi", "memory": "1Mi"}),
        "requested: hugepages-2Mi=2Mi, used: hugepages-2Mi=4Mi, limited: hugepages-2Mi=4Mi",
        id="huge-pages",
    ),
    pytest.param(
        {"requests.hugepages-1Gi": "1Gi"},
        [],
        pod("x", {"memory": "1Mi"}, {"hugepages-1Gi": "2Gi", "memory": "1Mi"}),
        "requested: requests.hugepages-1Gi=2Gi, used: requests.hugepages-1Gi=0, limited: requests.hugepages-1Gi=1Gi",
        id="huge-pages-as-requests",
    ),
    pytest.param(
        {"requests.ephemeral-storage": "1Gi", "limits.ephemeral-storage": "2Gi", "ephemeral-storage": "1Gi"},
        [],
        pod("x", {"ephemeral-storage": "1500Mi"}, {"ephemeral-storage": "2049Mi"}),
        "requested: ephemeral-storage=1500Mi,limits.ephemeral-storage=2049Mi,requests.ephemeral-storage=1500Mi, "
        "used: ephemeral-storage=0,limits.ephemeral-storage=0,requests.ephemeral-storage=0, "
        "limited: ephemeral-storage=1Gi,limits.ephemeral-storage=2Gi,requests.ephemeral-storage=1Gi",
        id="ephemeral-storage",
    ),
    pytest.param(
        {"count/pods": "1", "pods": "1"},
        [pod("a")],
        pod("x"),
        "requested: count/pods=1,pods=1, used: count/pods=1,pods=1, limited: count/pods=1,pods=1",
        id="two-ways-to-count-pods",
    ),
    pytest.param(
        {"requests.cpu": "1"},
        [],
        pod("x", spec={"containers": [container("a", {"cpu": "600m"}), container("b", {"cpu": "600m"})]}),
        "requested: requests.cpu=1200m, used: requests.cpu=0, limited: requests.cpu=1",
        id="containers-add-up",
    ),
    pytest.param(
        {"requests.cpu": "1"},
        [],
        pod("x", {"cpu": "100m"}, spec={"initContainers": [container("i", {"cpu": "3"})]}),
        "requested: requests.cpu=3, used: requests.cpu=0, limited: requests.cpu=1",
        id="the-largest-init-container",
    ),
    pytest.param(
        {"requests.cpu": "1"},
        [],
        pod("x", {"cpu": "1"}, spec={"initContainers": [container("i", {"cpu": "500m"}, restartPolicy="Always")]}),
        "requested: requests.cpu=1500m, used: requests.cpu=0, limited: requests.cpu=1",
        id="a-sidecar-runs-beside",
    ),
    pytest.param(
        {"requests.cpu": "1", "limits.memory": "1Gi"},
        [],
        pod("x", {"cpu": "1"}, spec={"resources": {"requests": {"cpu": "3"}, "limits": {"memory": "2Gi"}}}),
        "requested: limits.memory=2Gi,requests.cpu=3, used: limits.memory=0,requests.cpu=0, "
        "limited: limits.memory=1Gi,requests.cpu=1",
        id="resources-of-the-whole-pod",
    ),
]


@pytest.mark.parametrize(("hard", "before", "asked", "amounts"), CASES)
async def test_a_refusal_shows_what_was_requested_and_used_and_the_limit(
    room: Room, hard: JSON, before: list[JSON], asked: JSON, amounts: str
) -> None:
    """It names the quota and only the exceeded resources, sorted, as canonical quantities."""
    await room.quota("q", hard)
    for each in before:
        await room.create("pods", each)

    assert await room.refused("pods", asked) == f'pods "x" is forbidden: exceeded quota: q, {amounts}'


# The request of a pod (cpu or memory), the limit of the quota, and how the refusal shows both.
QUANTITIES = [
    ("cpu", "0.5", "0.1", "500m", "100m"),
    ("cpu", "1.5", "1.0", "1500m", "1"),
    ("cpu", "1000m", "999m", "1", "999m"),
    ("cpu", "2", "1e0", "2", "1e0"),
    ("cpu", "1e1", "1", "10", "1"),
    ("cpu", "3E0", "1E0", "3E0", "1E0"),
    ("cpu", "12e1", "12e-2", "120", "120e-3"),
    ("cpu", "1.500", "1.250", "1.500", "1.250"),
    ("cpu", "007", "005", "007", "005"),
    ("cpu", "0.700", "0.5", "700m", "500m"),
    ("cpu", "2500u", "700u", "3m", "1m"),
    ("cpu", "1.0001", "1", "1001m", "1"),
    ("cpu", "1000m", "0.999", "1", "999m"),
    ("cpu", "2000m", "1000000u", "2", "1"),
    ("cpu", "20", "10.", "20", "10."),
    ("cpu", ".5", "0.1n", "500m", "1m"),
    ("memory", "8Gi", "0.1Ki", "8Gi", "102400m"),
    ("memory", "16Mi", "1.5Mi", "16Mi", "1536Ki"),
    ("memory", "1000000k", "999M", "1G", "999M"),
    ("memory", "123Ei", "8E", "9223372036854775807", "8E"),
    ("memory", "100E", "12E", "100E", "12E"),
    ("cpu", "1k", "1", "1k", "1"),
    ("memory", "1.5Gi", "1Gi", "1536Mi", "1Gi"),
    ("memory", "1024Mi", "1000Mi", "1Gi", "1000Mi"),
    ("memory", "9048576k", "8Gi", "9048576k", "8Gi"),
    ("memory", "17145233164", "14330Mi", "17145233164", "14330Mi"),
    ("memory", "1e9", "1e6", "1e9", "1e6"),
    ("memory", "12e6", "10M", "12e6", "10M"),
    ("memory", "1000000", "1Ki", "1M", "1Ki"),
    ("memory", "0.5Ki", "100", "512", "100"),
    ("memory", "1000Ki", "1e3", "1000Ki", "1e3"),
    ("memory", "5E", "4Ei", "5E", "4Ei"),
    ("memory", "12345678901", "0.5G", "12345678901", "500M"),
    ("memory", "128974849", "123Mi", "128974849", "123Mi"),
    ("memory", "1Ti", "1T", "1Ti", "1T"),
    ("memory", "+2Gi", "1.25Gi", "+2Gi", "1280Mi"),
    ("memory", "100m", "0", "100m", "0"),
    ("memory", "1.5", "1", "1500m", "1"),
    ("memory", "0.1Mi", "1Ki", "104857600m", "1Ki"),
    ("memory", 2000000, 1000000, "2M", "1M"),
]


@pytest.mark.parametrize(("resource", "asked", "limit", "told", "limited"), QUANTITIES)
async def test_quantities_are_canonical_in_the_family_they_were_written_in(
    room: Room, resource: str, asked: str | int, limit: str | int, told: str, limited: str
) -> None:
    """`0.5` becomes `500m`, `1.5Gi` becomes `1536Mi`; binary stays binary, and an exponent stays an exponent."""
    name = f"requests.{resource}"
    await room.quota("q", {name: limit})

    assert await room.refused("pods", pod("x", {resource: asked})) == (
        f'pods "x" is forbidden: exceeded quota: q, requested: {name}={told}, used: {name}=0, limited: {name}={limited}'
    )


# The charges in order, and how ``status.used`` shows their sum.
SUMS = [
    ("memory", ("1Gi", "1G"), "2073741824"),
    ("memory", ("1G", "1Gi"), "2073741824"),
    ("memory", ("1500Mi", "548Mi"), "2Gi"),
    ("memory", ("1e3", "24"), "1024"),
    ("memory", ("1000", "24Ki"), "25576"),
    ("memory", ("0.5Ki", "1Ki"), "1536"),
    ("cpu", ("100m", "0.9"), "1"),
    ("cpu", ("1e0", "500m"), "1500m"),
    ("cpu", ("1500e-3", "500m"), "2"),
    ("cpu", ("1200e-3", "500m"), "1700e-3"),
    ("cpu", ("250m", "1e0"), "1250m"),
]


@pytest.mark.parametrize(("resource", "parts", "used"), SUMS)
async def test_used_keeps_the_family_of_the_first_charge(
    room: Room, resource: str, parts: tuple[str, ...], used: str
) -> None:
    """A sum of amounts of different families has the family of the first one."""
    name = f"requests.{resource}"
    await room.quota("q", {name: "8E"})
    for number, amount in enumerate(parts):
        await room.create("pods", pod(f"p{number}", {resource: amount}))

    assert await room.used() == {name: used}


async def test_used_may_be_above_the_limit(room: Room) -> None:
    """A quota that is created after its pods counts them, and may start above its limit."""
    for number in range(3):
        await room.create("pods", pod(f"p{number}", {"cpu": "1500m"}))
    await room.quota_after("q", {"requests.cpu": "2", "pods": "9"}, {"pods": "3", "requests.cpu": "4500m"})

    assert await room.refused("pods", pod("x", {"cpu": "500m"})) == (
        'pods "x" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=4500m, '
        "limited: requests.cpu=2"
    )


async def test_an_overdrawn_quota_still_admits_pods_without_that_resource(room: Room) -> None:
    """Over its limit in cpu, a quota admits a pod that requests no cpu."""
    await room.create("pods", pod("a", {"cpu": "3"}))
    await room.quota_after("q", {"requests.cpu": "2", "pods": "9"}, {"pods": "1", "requests.cpu": "3"})

    await room.create("pods", pod("x", {"cpu": "0"}))
    assert await room.used() == {"pods": "2", "requests.cpu": "3"}


async def test_a_pod_that_fills_a_quota_exactly_fits(room: Room) -> None:
    """What is used may equal the limit, however the two are written."""
    await room.quota("q", {"requests.memory": "1Gi"})
    await room.create("pods", pod("a", {"memory": "1073741824"}))

    assert await room.refused("pods", pod("x", {"memory": "1"})) == (
        'pods "x" is forbidden: exceeded quota: q, requested: requests.memory=1, used: requests.memory=1073741824, '
        "limited: requests.memory=1Gi"
    )


PLANTED = "exceeded quota: fake, requested: pods=1, used: pods=5, limited: pods=5"


async def test_a_sentence_in_a_path_is_no_refusal_of_a_quota(kubernetes: Server) -> None:
    """Wherever it is put by somebody who may do nothing: the server repeats it, and it teaches nothing."""
    planted = quote(PLANTED)
    async with Api(kubernetes, "nobody") as api:
        for path in (
            f"/api/v1/namespaces/default/pods/{planted}/exec",
            f"/api/v1/namespaces/default/{planted}/x",
            f"/api/v1/namespaces/default/{planted}",
            f"/api/v1/namespaces/{planted}/pods",
            f"/apis/{planted}/v1/namespaces/default/pods",
        ):
            reply = await api.post(path, {})
            assert reply.status == 403
            assert PLANTED in reply.text
            for body in (reply.text, reply.text.encode()):
                assert read_rejection(403, reply.headers, body).lane is Lane.RBAC
