"""Quota: when admission checks it, what it answers and what it charges"""

from __future__ import annotations

import asyncio

import pytest

from backoff_ctrl.k8s.kube.answers.rejections import Lane, read_rejection
from tests.cluster.quotas.quota_room import JSON, Room, container, pod, quota, selector, told
from tests.cluster.talking import MERGE, STRATEGIC
from tests.kit.patience import PATIENCE

FULL = "requested: pods=1, used: pods=0, limited: pods=0"


async def test_a_refusal_names_one_of_several_exceeded_quotas(room: Room) -> None:
    """Quotas are checked in no particular order; the first exceeded one is named, with its own amounts."""
    for name in ("a", "b"):
        await room.quota(name, {"pods": "0"})
    await room.quota("c", {"pods": "9"})

    answers = [await room.refused("pods", pod("x")) for _ in range(10)]
    assert set(answers) <= {f'pods "x" is forbidden: exceeded quota: {name}, {FULL}' for name in "ab"}


async def test_a_pod_must_fit_all_quotas(room: Room) -> None:
    """One quota may admit a pod that another refuses; then neither is charged."""
    await room.quota("wide", {"pods": "9", "requests.cpu": "9"})
    await room.quota("narrow", {"requests.cpu": "1"})

    assert await room.refused("pods", pod("x", {"cpu": "2"})) == (
        'pods "x" is forbidden: exceeded quota: narrow, requested: requests.cpu=2, used: requests.cpu=0, '
        "limited: requests.cpu=1"
    )
    assert await room.used("wide") == {"pods": "0", "requests.cpu": "0"}
    await room.create("pods", pod("y", {"cpu": "1"}))
    assert await room.used("wide") == {"pods": "1", "requests.cpu": "1"}
    assert await room.used("narrow") == {"requests.cpu": "1"}


async def test_an_accepted_pod_is_charged_before_its_answer(room: Room) -> None:
    """The quota shows the charge as soon as the 201 has been received."""
    await room.quota("q", {"pods": "3", "requests.cpu": "3"})
    for number in (1, 2, 3):
        await room.create("pods", pod(f"p{number}", {"cpu": "500m"}))
        assert (await room.used())["pods"] == str(number)


async def test_a_refused_pod_is_neither_stored_nor_charged(room: Room) -> None:
    """A 403 leaves no trace."""
    await room.quota("q", {"requests.cpu": "1", "pods": "5"})
    await room.refused("pods", pod("x", {"cpu": "2"}))

    assert await room.used() == {"pods": "0", "requests.cpu": "0"}
    assert (await room.api.get(room.path("pods", "x"))).status == 404


async def test_a_dry_run_is_evaluated_and_not_charged(room: Room) -> None:
    """`dryRun=All` tells whether a pod would fit, with the same message, without a charge."""
    await room.quota("q", {"pods": "1"})
    fits = await room.api.post(room.path("pods"), pod("a"), params={"dryRun": "All"})
    assert fits.status == 201
    assert await room.used() == {"pods": "0"}

    await room.create("pods", pod("a"))
    refused = await room.api.post(room.path("pods"), pod("x"), params={"dryRun": "All"})
    assert told(refused, "pods", "x") == (
        'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    )


async def test_an_existing_name_under_a_full_quota_is_forbidden_rather_than_a_conflict(room: Room) -> None:
    """Quota is checked before the name: 403, not 409."""
    await room.quota("q", {"pods": "1"})
    await room.create("pods", pod("x"))

    assert await room.refused("pods", pod("x")) == (
        'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    )


async def test_an_existing_name_is_charged_until_the_next_release(room: Room) -> None:
    """The charge for a 409 AlreadyExists stays until something else in the namespace is released."""
    await room.quota("q", {"pods": "5"})
    await room.create("pods", pod("x"))
    await room.create("pods", pod("y"))
    reply = await room.api.post(room.path("pods"), pod("x"))

    assert (reply.status, reply.json["message"]) == (409, 'pods "x" already exists')
    assert await room.used() == {"pods": "3"}
    await room.delete("pods", "y")
    await room.until_used({"pods": "1"})


async def test_a_release_of_another_kind_does_not_correct_that_charge(room: Room) -> None:
    """Only quotas that count the released kind are recounted."""
    await room.quota("q", {"pods": "5"})
    await room.quota("c", {"count/secrets": "5"})
    await room.create("pods", pod("x"))
    await room.api.post(room.path("pods"), pod("x"))
    await room.create("secrets", {"metadata": {"name": "m"}})
    await room.delete("secrets", "m")
    await room.until_used({"count/secrets": "0"}, "c")

    assert await room.used() == {"pods": "2"}


async def test_the_refusal_contains_the_generated_name(room: Room) -> None:
    """The name is generated before quota is checked: with five characters that cannot form words."""
    await room.quota("q", {"pods": "0"})
    message = await room.refused("pods", pod(""))
    name = message.split('"')[1]

    assert message == f'pods "{name}" is forbidden: exceeded quota: q, {FULL}'
    assert name.startswith("p-")
    assert len(name) == 7
    assert set(name[2:]) <= set("bcdfghjklmnpqrstvwxz2456789")


async def test_a_refusal_has_the_headers_of_every_answer(room: Room) -> None:
    """JSON, not cached, with the flow schema and the priority level that served it; no Retry-After."""
    await room.quota("q", {"pods": "0"})
    headers = (await room.api.post(room.path("pods"), pod("x"))).headers

    assert headers["Content-Type"] == "application/json"
    assert headers["Cache-Control"] == "no-cache, private"
    assert headers["X-Kubernetes-Pf-Flowschema-Uid"]
    assert headers["X-Kubernetes-Pf-Prioritylevel-Uid"]
    assert headers["Audit-Id"]
    assert "Retry-After" not in headers


MUST = [
    pytest.param({"requests.cpu": "4"}, pod("x"), "requests.cpu for: main", id="requests.cpu"),
    pytest.param({"cpu": "4", "memory": "1Gi"}, pod("x"), "cpu for: main; memory for: main", id="bare-names"),
    pytest.param(
        {"limits.cpu": "4", "requests.cpu": "4"}, pod("x", {"cpu": "1"}), "limits.cpu for: main", id="a-limit"
    ),
    pytest.param(
        {"limits.cpu": "4", "limits.memory": "4Gi", "requests.cpu": "4", "requests.memory": "4Gi"},
        pod("x"),
        "limits.cpu for: main; limits.memory for: main; requests.cpu for: main; requests.memory for: main",
        id="all-four",
    ),
    pytest.param(
        {"limits.cpu": "4", "requests.cpu": "4", "requests.nvidia.com/gpu": "1", "requests.ephemeral-storage": "1Gi"},
        pod("x", spec={"containers": [container("c1", {"cpu": "1"})], "initContainers": [container("c2")]}),
        "limits.cpu for: c1,c2; requests.cpu for: c2",
        id="by-container",
    ),
    pytest.param(
        {"requests.cpu": "4"},
        pod("x", spec={"containers": [container("z"), container("a"), container("m", {"cpu": "1"})]}),
        "requests.cpu for: a,z",
        id="sorted",
    ),
    pytest.param({"requests.cpu": "0"}, pod("x"), "requests.cpu for: main", id="before-the-amounts-are-looked-at"),
]


@pytest.mark.parametrize(("hard", "body", "missing"), MUST)
async def test_resources_under_quota_must_be_specified(room: Room, hard: JSON, body: JSON, missing: str) -> None:
    """Every container must set cpu and memory that a quota limits; the refusal names resources and containers."""
    await room.quota("q", hard)

    assert await room.refused("pods", body, Lane.MUST_SPECIFY) == (
        f'pods "x" is forbidden: failed quota: q: must specify {missing}'
    )


ENOUGH = [
    pytest.param({"requests.cpu": "4"}, pod("x", {"cpu": "0"}), id="zero-is-said"),
    pytest.param({"requests.cpu": "4"}, pod("x", limits={"cpu": "1"}), id="a-limit-is-a-request"),
    pytest.param({"requests.nvidia.com/gpu": "1"}, pod("x"), id="extended-resources-are-free-to-leave-out"),
    pytest.param({"requests.ephemeral-storage": "1", "hugepages-2Mi": "0"}, pod("x"), id="disk-too"),
    pytest.param(
        {"requests.cpu": "4"}, pod("x", spec={"resources": {"requests": {"cpu": "1"}}}), id="said-for-the-whole-pod"
    ),
    pytest.param(
        {"requests.cpu": "4", "requests.memory": "1Gi"},
        pod("x", spec={"resources": {"requests": {"cpu": "1"}}}),
        id="anything-for-the-whole-pod-is-enough",
    ),
]


@pytest.mark.parametrize(("hard", "body"), ENOUGH)
async def test_other_ways_to_specify_resources_are_accepted(room: Room, hard: JSON, body: JSON) -> None:
    """A zero, a limit or pod-level resources satisfy a quota; other resources may be omitted."""
    await room.quota("q", hard)

    await room.create("pods", body)


async def test_a_quota_without_usage_is_not_ready(room: Room) -> None:
    """With limits in its status but no usage it refuses, until the controller has counted."""
    await room.quota("q", {"configmaps": "1"})
    status = {"status": {"hard": {"pods": "1", "requests.nvidia.com/gpu": "2", "requests.ephemeral-storage": "1Gi"}}}
    reply = await room.api.patch(room.path("resourcequotas", "q", "status"), status, MERGE)
    assert reply.status == 200, reply.text

    assert await room.refused_in_time("pods", pod("x"), Lane.QUOTA_NOT_READY) == (
        'pods "x" is forbidden: status unknown for quota: q, resources: pods,requests.ephemeral-storage,'
        "requests.nvidia.com/gpu"
    )


async def test_a_quota_is_not_enforced_before_its_status_is_filled_in(room: Room) -> None:
    """A quota with an empty status admits everything."""
    made = await room.create("resourcequotas", quota("q", {"pods": "0"}))
    assert not (made.get("status") or {}).get("hard")

    await room.until_hard({"pods": "0"})
    assert (await room.refused_in_time("pods", pod("x"))).endswith(FULL)


async def test_concurrent_creates_never_exceed_the_quota(room: Room) -> None:
    """Of thirty creates into room for seven, seven are accepted; the others get a quota refusal."""
    await room.quota("q", {"requests.cpu": "3500m"})
    bodies = [pod(f"p{number}", {"cpu": "500m"}) for number in range(30)]
    replies = await asyncio.gather(*(room.api.post(room.path("pods"), body) for body in bodies))

    codes = [reply.status for reply in replies]
    assert (codes.count(201), codes.count(403)) == (7, 23)
    for reply in replies:
        if reply.status == 403:
            assert read_rejection(403, reply.headers, reply.text).lane is Lane.QUOTA
    await room.until_used({"requests.cpu": "3500m"})


async def test_a_missing_namespace_is_reported_before_quota(room: Room) -> None:
    """404 for the namespace."""
    reply = await room.api.post("/api/v1/namespaces/no-such-namespace/pods", pod("x"))

    assert (reply.status, reply.json["message"]) == (404, 'namespaces "no-such-namespace" not found')


async def test_an_invalid_pod_is_reported_before_quota(room: Room) -> None:
    """422 for the pod, even though it would not fit either; the quota is not charged."""
    await room.quota("q", {"pods": "0"})
    reply = await room.api.post(room.path("pods"), pod("x", spec={"containers": []}))

    assert (reply.status, reply.json["message"]) == (
        422,
        'Pod "x" is invalid: spec.containers: Required value',
    )


RESIZES = [("1", 200), ("2", 200), ("200m", 200), ("3", 403)]


@pytest.mark.parametrize(("cpu", "status"), RESIZES)
async def test_a_resize_is_charged_for_what_it_adds(room: Room, cpu: str, status: int) -> None:
    """An increase is charged at once; a decrease is given back only with the next release."""
    await room.quota("q", {"requests.cpu": "2"})
    await room.create("pods", pod("x", {"cpu": "500m"}))
    larger = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
    reply = await room.api.patch(room.path("pods", "x", "resize"), larger, STRATEGIC)

    assert reply.status == status, reply.text
    if status == 403:
        assert told(reply, "pods", "x") == (
            'pods "x" is forbidden: exceeded quota: q, requested: requests.cpu=2500m, used: requests.cpu=500m, '
            "limited: requests.cpu=2"
        )
    assert await room.used() == {"requests.cpu": {"1": "1", "2": "2"}.get(cpu, "500m")}


@pytest.mark.only_kubernetes("the sandbox does not compare a resize with the pod's node")
async def test_a_resize_beyond_its_node_is_refused(room: Room) -> None:
    """Since v1.36, before any quota is asked; a policy of the server, so no create waits for it."""
    if room.api.server.minor < 36:
        pytest.skip("no server before v1.36 compares a resize with the node")
    node = f"node-{room.namespace}"
    await room.api.post("/api/v1/nodes", {"metadata": {"name": node}})
    has = {"cpu": "2", "memory": "1Gi", "pods": "9"}
    reply = await room.api.patch(
        f"/api/v1/nodes/{node}/status", {"status": {"allocatable": has, "capacity": has}}, MERGE
    )
    assert reply.status == 200, reply.text
    await room.create("pods", pod("x", {"cpu": "500m"}, spec={"nodeName": node}))
    larger = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}]}}
    async with asyncio.timeout(PATIENCE):  # admission follows nodes by a watch
        reply = await room.api.patch(room.path("pods", "x", "resize"), larger, STRATEGIC)
        while "not found" in reply.text:
            reply = await room.api.patch(room.path("pods", "x", "resize"), larger, STRATEGIC)
    await room.api.delete(f"/api/v1/nodes/{node}")
    found = read_rejection(reply.status, reply.headers, reply.text.encode())
    why = "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000"
    assert (reply.status, found.lane, found.message) == (403, Lane.POLICY, f'pods "x" is forbidden: {why}')
    assert reply.json["details"]["causes"] == [{"reason": "NodeCapacity"}]


async def test_the_decrease_of_a_pod_is_given_back_at_the_next_release(room: Room) -> None:
    """A smaller request alone causes no recount."""
    await room.quota("q", {"requests.cpu": "2"})
    await room.create("pods", pod("x", {"cpu": "1"}))
    await room.create("pods", pod("y", {"cpu": "500m"}))
    smaller = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}}
    reply = await room.api.patch(room.path("pods", "x", "resize"), smaller, STRATEGIC)
    assert reply.status == 200, reply.text

    await room.delete("pods", "y")
    await room.until_used({"requests.cpu": "200m"})


async def test_a_deadline_moves_a_pod_to_another_quota(room: Room) -> None:
    """With `activeDeadlineSeconds` a pod leaves the quotas for NotTerminating and joins those for Terminating."""
    await room.quota("ends", {"pods": "1"}, scopes=["Terminating"])
    await room.quota("stays", {"pods": "5"}, scopes=["NotTerminating"])
    deadline = {"spec": {"activeDeadlineSeconds": 600}}
    for name in ("x", "y"):
        await room.create("pods", pod(name))
    await room.controller_is_current()
    reply = await room.api.patch(room.path("pods", "x"), deadline, MERGE)
    assert reply.status == 200, reply.text
    assert await room.used("ends") == {"pods": "1"}
    await room.until_used({"pods": "1"}, "stays")

    assert told(await room.api.patch(room.path("pods", "y"), deadline, MERGE), "pods", "y") == (
        'pods "y" is forbidden: exceeded quota: ends, requested: pods=1, used: pods=1, limited: pods=1'
    )


async def test_a_changed_selector_causes_no_recount(room: Room) -> None:
    """Only a change of the limits does; until then `used` is what the old selector matched."""
    await room.quota("q", {"pods": "5"})
    await room.create("pods", pod("x"))
    change = {"spec": {"scopeSelector": selector("PriorityClass", "In", "no-such-class")}}
    reply = await room.api.patch(room.path("resourcequotas", "q"), change, MERGE)
    assert reply.status == 200, reply.text
    await room.create("pods", pod("y"))
    assert await room.used() == {"pods": "1"}

    await room.api.patch(room.path("resourcequotas", "q"), {"spec": {"hard": {"pods": "6"}}}, MERGE)
    await room.until_used({"pods": "0"})
