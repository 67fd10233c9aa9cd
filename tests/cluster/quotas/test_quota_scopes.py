"""Quota: scopes, and the pods and claims they match"""

from __future__ import annotations

import pytest

from backoff_ctrl.k8s.kube.answers.rejections import Lane
from tests.cluster.quotas.quota_room import JSON, Room, claim, pod, selector

FOREIGN = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "k", "namespaces": ["other"]}
ANYWHERE = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "k", "namespaceSelector": {}}
AT_HOME = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "k"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def affine(side: str, when: str, term: JSON) -> JSON:
    wanted = term if when == REQUIRED else {"weight": 1, "podAffinityTerm": term}
    return pod("x", spec={"affinity": {side: {when: [wanted]}}})


def ranked(priority_class: str = "") -> JSON:
    """A pod with this PriorityClass, or with none."""
    return pod("x", spec={"priorityClassName": priority_class} if priority_class else {})


BUSY = {"cpu": "1", "memory": "1Mi"}
TIMED = {"activeDeadlineSeconds": 600}
HIGH = "quota-suite-high"
LOW = "quota-suite-low"

SCOPED = [
    pytest.param({"scopes": ["Terminating"]}, pod(spec=TIMED), pod(), id="Terminating"),
    pytest.param({"scopes": ["NotTerminating"]}, pod(), pod(spec=TIMED), id="NotTerminating"),
    pytest.param({"scopes": ["BestEffort"]}, pod(), pod(requests=BUSY), id="BestEffort"),
    pytest.param(
        {"scopes": ["BestEffort"]}, pod(requests={"cpu": "0"}), pod(limits={"cpu": "1"}), id="BestEffort-zero"
    ),
    pytest.param(
        {"scopes": ["BestEffort"]},
        pod(requests={"ephemeral-storage": "1Gi"}),
        pod(requests={"memory": "1"}),
        id="BestEffort-disk",
    ),
    pytest.param({"scopes": ["NotBestEffort"]}, pod(requests=BUSY), pod(), id="NotBestEffort"),
    pytest.param(
        {"scopes": ["Terminating", "BestEffort"]}, pod(spec=TIMED), pod(requests=BUSY, spec=TIMED), id="two-scopes"
    ),
    pytest.param({"scopes": ["PriorityClass"]}, ranked(LOW), ranked(), id="PriorityClass"),
    pytest.param({"scopeSelector": selector("PriorityClass", "In", HIGH)}, ranked(HIGH), ranked(LOW), id="In"),
    pytest.param({"scopeSelector": selector("PriorityClass", "In", HIGH)}, ranked(HIGH), ranked(), id="In-none"),
    pytest.param({"scopeSelector": selector("PriorityClass", "In", HIGH, LOW)}, ranked(LOW), ranked(), id="In-two"),
    pytest.param({"scopeSelector": selector("PriorityClass", "NotIn", HIGH)}, ranked(LOW), ranked(HIGH), id="NotIn"),
    pytest.param({"scopeSelector": selector("PriorityClass", "NotIn", HIGH)}, ranked(), ranked(HIGH), id="NotIn-none"),
    pytest.param({"scopeSelector": selector("PriorityClass", "Exists")}, ranked(HIGH), ranked(), id="Exists"),
    pytest.param(
        {"scopeSelector": selector("PriorityClass", "DoesNotExist")}, ranked(), ranked(HIGH), id="DoesNotExist"
    ),
    pytest.param(
        {"scopeSelector": selector("Terminating", "Exists")}, pod(spec=TIMED), pod(), id="Terminating-as-a-selector"
    ),
    pytest.param(
        {"scopes": ["NotTerminating"], "scopeSelector": selector("PriorityClass", "In", HIGH)},
        ranked(HIGH),
        pod(spec={**TIMED, "priorityClassName": HIGH}),
        id="scopes-and-a-selector",
    ),
    pytest.param(
        {"scopes": ["CrossNamespacePodAffinity"]},
        affine("podAffinity", REQUIRED, ANYWHERE),
        affine("podAffinity", REQUIRED, AT_HOME),
        id="CrossNamespacePodAffinity",
    ),
    pytest.param(
        {"scopeSelector": selector("CrossNamespacePodAffinity", "Exists")},
        affine("podAntiAffinity", PREFERRED, FOREIGN),
        affine("podAntiAffinity", PREFERRED, AT_HOME),
        id="CrossNamespacePodAffinity-preferred-not-to",
    ),
]


@pytest.fixture
async def classes(room: Room) -> None:
    for name in (HIGH, LOW):
        body = {"metadata": {"name": name}, "value": 10}
        made = await room.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)
        assert made.status in {201, 409}, made.text
        await room.until_created("pods", pod(spec={"priorityClassName": name}), dryRun="All")


@pytest.mark.usefixtures("classes")
@pytest.mark.parametrize(("spec", "inside", "outside"), SCOPED)
async def test_scopes_select_the_pods_that_a_quota_applies_to(
    room: Room, spec: JSON, inside: JSON, outside: JSON
) -> None:
    """A pod outside the scopes of a quota is neither refused nor charged; a pod inside is."""
    await room.quota("q", {"pods": "1"}, **spec)
    for name in ("o1", "o2"):
        await room.create("pods", {**outside, "metadata": {"name": name}})
    assert await room.used() == {"pods": "0"}

    await room.create("pods", {**inside, "metadata": {"name": "i1"}})
    assert await room.used() == {"pods": "1"}
    assert await room.refused("pods", inside) == (
        'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    )
    await room.delete("pods", "i1")
    await room.until_used({"pods": "0"})


@pytest.mark.usefixtures("classes")
@pytest.mark.parametrize(("spec", "inside", "outside"), SCOPED)
async def test_a_new_quota_counts_only_pods_in_its_scopes(room: Room, spec: JSON, inside: JSON, outside: JSON) -> None:
    """Pods that existed before the quota and are outside its scopes are not counted."""
    for name in ("o1", "o2"):
        await room.create("pods", {**outside, "metadata": {"name": name}})
    await room.create("pods", {**inside, "metadata": {"name": "i1"}})

    await room.quota_after("q", {"pods": "1"}, {"pods": "1"}, **spec)


@pytest.mark.usefixtures("classes")
async def test_quotas_of_different_scopes_are_charged_separately(room: Room) -> None:
    """Two pods of a namespace may fall under two quotas; each quota is charged only for its own."""
    await room.quota("high", {"requests.cpu": "1"}, scopeSelector=selector("PriorityClass", "In", HIGH))
    await room.quota("rest", {"requests.cpu": "2"}, scopeSelector=selector("PriorityClass", "NotIn", HIGH))
    await room.create("pods", pod("a", {"cpu": "1"}, spec={"priorityClassName": HIGH}))
    await room.create("pods", pod("b", {"cpu": "1500m"}))

    assert (await room.used("high"), await room.used("rest")) == ({"requests.cpu": "1"}, {"requests.cpu": "1500m"})
    assert await room.refused("pods", pod("x", {"cpu": "1"}, spec={"priorityClassName": HIGH})) == (
        'pods "x" is forbidden: exceeded quota: high, requested: requests.cpu=1, used: requests.cpu=1, '
        "limited: requests.cpu=1"
    )
    assert await room.refused("pods", pod("x", {"cpu": "1"}, spec={"priorityClassName": LOW})) == (
        'pods "x" is forbidden: exceeded quota: rest, requested: requests.cpu=1, used: requests.cpu=1500m, '
        "limited: requests.cpu=2"
    )


async def test_a_pod_must_name_an_existing_priority_class(room: Room) -> None:
    """A pod of an unknown class is refused before quota is checked."""
    assert await room.refused("pods", pod(spec={"priorityClassName": "no-such-class"}), Lane.POLICY) == (
        'pods "x" is forbidden: no PriorityClass with name no-such-class was found'
    )


VOLUMES = [
    pytest.param({"scopes": ["VolumeAttributesClass"]}, "gold", "", id="VolumeAttributesClass"),
    pytest.param({"scopeSelector": selector("VolumeAttributesClass", "In", "gold")}, "gold", "silver", id="In"),
    pytest.param({"scopeSelector": selector("VolumeAttributesClass", "NotIn", "gold")}, "silver", "gold", id="NotIn"),
    pytest.param({"scopeSelector": selector("VolumeAttributesClass", "NotIn", "gold")}, "", "gold", id="NotIn-none"),
    pytest.param({"scopeSelector": selector("VolumeAttributesClass", "Exists")}, "silver", "", id="Exists"),
    pytest.param({"scopeSelector": selector("VolumeAttributesClass", "DoesNotExist")}, "", "gold", id="DoesNotExist"),
]


@pytest.mark.parametrize(("spec", "inside", "outside"), VOLUMES)
async def test_scopes_select_the_claims_that_a_quota_applies_to(
    room: Room, spec: JSON, inside: str, outside: str
) -> None:
    """By their VolumeAttributesClass."""
    await room.quota("q", {"persistentvolumeclaims": "1", "requests.storage": "1Gi"}, **spec)
    for name in ("o1", "o2"):
        await room.create("persistentvolumeclaims", with_attributes(name, outside))
    assert await room.used() == {"persistentvolumeclaims": "0", "requests.storage": "0"}

    await room.create("persistentvolumeclaims", with_attributes("i1", inside))
    assert await room.refused("persistentvolumeclaims", with_attributes("x", inside)) == (
        'persistentvolumeclaims "x" is forbidden: exceeded quota: q, requested: persistentvolumeclaims=1,'
        "requests.storage=1Gi, used: persistentvolumeclaims=1,requests.storage=1Gi, "
        "limited: persistentvolumeclaims=1,requests.storage=1Gi"
    )


def with_attributes(name: str, attributes: str) -> JSON:
    """A claim that names a VolumeAttributesClass, or none."""
    return claim(name, **({"volumeAttributesClassName": attributes} if attributes else {}))
