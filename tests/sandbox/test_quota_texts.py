"""The sandbox says what real API servers have said, letter by letter (texts from public issues and a 1.36 server)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest

from k8s.sandbox import Sandbox
from tests.sandbox.talking import PODS, QUOTAS, TEAM, ask, create, pod, quota, refused

if TYPE_CHECKING:
    from tests.sandbox.talking import JSON

HOUR = 3600

CASES = [
    pytest.param(
        'pods "raycluster-mini-head-mbgdc" is forbidden: exceeded quota: test-cpu-quota, requested: '
        "limits.cpu=500m,requests.cpu=500m, used: limits.cpu=0,requests.cpu=0, limited: limits.cpu=300m,"
        "requests.cpu=200m",
        {"limits.cpu": "300m", "requests.cpu": "200m"},
        [],
        pod("raycluster-mini-head-mbgdc", requests={"cpu": "500m"}, limits={"cpu": "500m"}),
        id="never-fits",
    ),
    pytest.param(
        'pods "nginx-pod3" is forbidden: exceeded quota: pvg-k8s-pod-priority, requested: pods=1, used: pods=2, '
        "limited: pods=2",
        {"pods": "2"},
        [pod("a"), pod("b")],
        pod("nginx-pod3"),
        id="pods",
    ),
    pytest.param(
        'pods "cowsay-statc-79n0g2sj" is forbidden: exceeded quota: primitive-aurora-5047-default, requested: '
        "cpu=250m,memory=512Mi, used: cpu=1,memory=2Gi, limited: cpu=1,memory=2Gi",
        {"cpu": "1", "memory": "2Gi"},
        [pod(f"f{i}", requests={"cpu": "250m", "memory": "512Mi"}) for i in range(4)],
        pod("cowsay-statc-79n0g2sj", requests={"cpu": "250m", "memory": "512Mi"}),
        id="bare-names",
    ),
    pytest.param(
        'pods "test-pod" is forbidden: exceeded quota: money-claims-quota, requested: requests.cpu=20,'
        "requests.memory=60Gi, used: requests.cpu=32575m,requests.memory=90368Mi, limited: requests.cpu=50,"
        "requests.memory=140Gi",
        {"requests.cpu": "50", "requests.memory": "140Gi"},
        [pod("a", requests={"cpu": "32575m", "memory": "90368Mi"})],
        pod("test-pod", requests={"cpu": "20", "memory": "60Gi"}),
        id="canonical-quantities",
    ),
    pytest.param(
        'pods "job-task-0" is forbidden: exceeded quota: naie-resource-job-quota, requested: '
        "requests.huawei.com/Ascend910=1, used: requests.huawei.com/Ascend910=1, limited: "
        "requests.huawei.com/Ascend910=1",
        {"requests.huawei.com/Ascend910": "1"},
        [pod("a", limits={"huawei.com/Ascend910": "1"})],
        pod("job-task-0", limits={"huawei.com/Ascend910": "1"}),
        id="extended-resource",
    ),
    pytest.param(
        'pods "n0-0-n5-3" is forbidden: exceeded quota: memory-cpu-quota, requested: requests.memory=1500M, used: '
        "requests.memory=7500M, limited: requests.memory=8Gi",
        {"requests.memory": "8Gi"},
        [pod(f"f{i}", requests={"memory": "1500M"}) for i in range(5)],
        pod("n0-0-n5-3", requests={"memory": "1500M"}),
        id="families-mix",
    ),
    pytest.param(
        'pods "x" is forbidden: exceeded quota: force-sleep, requested: pods=1, used: pods=0, limited: pods=0',
        {"pods": "0"},
        [],
        pod("x"),
        id="paused",
    ),
    pytest.param(
        'pods "p-95p4j" is forbidden: exceeded quota: team, requested: requests.cpu=1500m,requests.nvidia.com/gpu=1, '
        "used: requests.cpu=1500m,requests.nvidia.com/gpu=1, limited: requests.cpu=2,requests.nvidia.com/gpu=1",
        {"requests.cpu": "2", "requests.nvidia.com/gpu": "1", "pods": "10"},
        [pod("a", requests={"cpu": "1500m"}, limits={"nvidia.com/gpu": "1"})],
        pod("p-95p4j", requests={"cpu": "1500m"}, limits={"nvidia.com/gpu": "1"}),
        id="seen-on-1.36",
    ),
]


@pytest.mark.parametrize(("text", "hard", "before", "asked"), CASES)
async def test_a_quota_refusal_reads_as_on_a_real_server(
    sandbox: Sandbox, session: aiohttp.ClientSession, text: str, hard: JSON, before: list[JSON], asked: JSON
) -> None:
    """Keys sorted, exceeded resources only, canonical quantities in the family they were written in."""
    name = text.split("exceeded quota: ")[1].split(",", maxsplit=1)[0]
    sandbox.create_quota("team", name, hard)
    for each in before:
        await create(session, each)

    assert await refused(session, asked) == text


async def test_object_counts_are_refused_by_their_own_name(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Of a quota over replication controllers (newer servers write a small e)."""
    sandbox.create_quota("team", "object-counts", {"replicationcontrollers": "1"})
    path = f"{TEAM}/replicationcontrollers"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"a": "b"}, "template": template}
    await create(session, {"metadata": {"name": "app-40"}, "spec": spec}, path)

    assert await refused(session, {"metadata": {"name": "app-41"}, "spec": spec}, path) == (
        'replicationcontrollers "app-41" is forbidden: exceeded quota: object-counts, requested: '
        "replicationcontrollers=1, used: replicationcontrollers=1, limited: replicationcontrollers=1"
    )


async def test_used_may_be_above_limited(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """A quota that was lowered after its pods were made: 822 of 600."""
    for number in range(822):
        sandbox.create(sandbox.kind("pods"), "team", pod(f"p{number}"))
    sandbox.create_quota("team", "argo", {"count/pods": "600"})

    assert await refused(session, pod("more")) == (
        'pods "more" is forbidden: exceeded quota: argo, requested: count/pods=1, used: count/pods=822, limited: '
        "count/pods=600"
    )


async def test_a_quota_that_is_not_ready_says_which_resources_it_lacks(session: aiohttp.ClientSession) -> None:
    """Its status names limits but no usage of them yet."""
    hard = {"limits.cpu": "1", "limits.memory": "1Gi", "pods": "1", "requests.cpu": "1", "requests.memory": "1Gi"}
    await create(session, quota("example", hard), QUOTAS)
    await ask(session, "PUT", f"{QUOTAS}/example/status", {**quota("example", hard), "status": {"hard": hard}})
    everything = {"cpu": "1m", "memory": "1Mi"}

    assert await refused(session, pod("uikit-1-deploy", requests=everything, limits=everything)) == (
        'pods "uikit-1-deploy" is forbidden: status unknown for quota: example, resources: limits.cpu,limits.memory,'
        "pods,requests.cpu,requests.memory"
    )


async def test_what_must_be_specified_names_the_containers(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """cpu and memory under quota must be set on every container, init containers too."""
    sandbox.create_quota("team", "q", {"limits.cpu": "4", "requests.cpu": "4", "requests.nvidia.com/gpu": "1"})
    body = pod("x", spec={"initContainers": [{"name": "c2", "image": "i"}]})
    body["spec"]["containers"][0] = {"name": "c1", "image": "i", "resources": {"requests": {"cpu": "1"}}}

    assert await refused(session, body) == (
        'pods "x" is forbidden: failed quota: q: must specify limits.cpu for: c1,c2; requests.cpu for: c2'
    )


async def test_only_the_first_violated_quota_is_named(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Quotas are asked by name; the second is learned from a later answer."""
    sandbox.create_quota("team", "b", {"pods": "0"})
    sandbox.create_quota("team", "a", {"pods": "5", "count/pods": "0"})

    assert await refused(session, pod("x")) == (
        'pods "x" is forbidden: exceeded quota: a, requested: count/pods=1, used: count/pods=0, limited: count/pods=0'
    )


async def test_quotas_can_be_asked_in_any_order() -> None:
    """As on a real server, where any of them may be named first; the seed decides."""

    async def first_named(seed: int) -> list[str]:
        async with (
            Sandbox(seed=seed, shuffled_quotas=True) as sandbox,
            aiohttp.ClientSession(sandbox.url) as session,
        ):
            sandbox.create_namespace("team")
            for name in "abc":
                sandbox.create_quota("team", name, {"pods": "0"})
            return [(await refused(session, pod("x"))).split("quota: ")[1][0] for _ in range(30)]

    named = await first_named(1)
    assert set(named) == {"a", "b", "c"}
    assert named == await first_named(1)


async def test_a_group_is_part_of_the_resource(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """``jobs.batch``, in the text and in the name of the count; the details tell them apart."""
    sandbox.create_quota("team", "q", {"count/jobs.batch": "0"})
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "j"}, "spec": {"template": template}}
    code, answer = await ask(session, "POST", "/apis/batch/v1/namespaces/team/jobs", body)

    assert code == 403
    assert answer["message"] == (
        'jobs.batch "j" is forbidden: exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=0, '
        "limited: count/jobs.batch=0"
    )
    assert answer["details"] == {"name": "j", "group": "batch", "kind": "jobs"}


async def test_a_generated_name_is_named_in_the_refusal(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Names are drawn before admission (seen: ``p-95p4j``), five characters of the safe alphabet."""
    sandbox.create_quota("team", "q", {"pods": "0"})

    message = await refused(session, pod())

    name = message.split('"')[1]
    assert name.startswith("p-")
    assert len(name) == len("p-") + 5
    assert set(name[2:]) <= set("bcdfghjklmnpqrstvwxz2456789")


async def test_every_answer_names_its_priority_level(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Refusals too carry the headers of API priority and fairness."""
    sandbox.create_quota("team", "q", {"pods": "0"})
    async with session.post(PODS, json=pod("x")) as answer:
        assert answer.status == 403
        assert answer.headers["X-Kubernetes-Pf-Prioritylevel-Uid"]
        assert answer.headers["X-Kubernetes-Pf-Flowschema-Uid"]
