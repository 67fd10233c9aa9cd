"""Parts: what the real controllers make of a manifest is charged as ``parts_of`` said before."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import pytest

from backoff_ctrl.engine.facts.quantities import format_quantity, parse_quantity
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.parts import footprint_of, parts_of
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.quotas.quota_room import JSON, Room
from tests.cluster.talking import Api
from tests.kit.patience import PATIENCE

MAKERS: Final = (
    "deployment-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "statefulset-controller",
    "ephemeral-volume-controller",
)
PLENTY: Final = "1000Gi"
LABELS: Final = {"app": "made"}
RESOURCES: Final = {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "128Mi", "example.com/gpu": 1}}
CLAIM: Final = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "gold",
    "resources": {"requests": {"storage": "1Gi"}},
}


def template(**spec: Any) -> JSON:
    """A pod template with requests, limits and a device."""
    whole = {"containers": [{"name": "c", "image": "busybox:1", "resources": RESOURCES}], **spec}
    return {"metadata": {"labels": LABELS}, "spec": whole}


def app(kind: str, **spec: Any) -> JSON:
    """A Deployment, ReplicaSet or StatefulSet of two replicas."""
    whole = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template(), **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "made"}, "spec": whole}


def job(pods: JSON, **spec: Any) -> JSON:
    pods["spec"]["restartPolicy"] = "Never"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "made"}, "spec": {"template": pods, **spec}}


SCRATCH: Final = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}}
DATA: Final = {"metadata": {"name": "data"}, "spec": CLAIM}
CONTROLLER: Final = {"replicas": 2, "selector": LABELS, "template": template()}
MANIFESTS: Final = {
    "jobs.batch": [
        job(template(), parallelism=3),
        job(template(activeDeadlineSeconds=600), parallelism=3, completions=2),
        job(template(), parallelism=3, completions=5, completionMode="Indexed"),
        job(template(volumes=[SCRATCH]), parallelism=2),
        job(template(), parallelism=3, suspend=True),
    ],
    "deployments.apps": [app("Deployment"), app("Deployment", replicas=0)],
    "replicasets.apps": [app("ReplicaSet")],
    "statefulsets.apps": [
        app("StatefulSet", serviceName="made", podManagementPolicy="Parallel", volumeClaimTemplates=[DATA])
    ],
    "replicationcontrollers": [
        {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "made"}, "spec": CONTROLLER}
    ],
}
CASES: Final = [(resource, manifest) for resource, manifests in MANIFESTS.items() for manifest in manifests]


@pytest.fixture(scope="module")
def makers(binaries: Binaries) -> Iterator[Bed]:
    """A control plane whose controllers make pods of everything."""
    with Bed(binaries, kcm_qps=500, controllers=MAKERS) as bed:
        yield bed


@pytest.fixture
async def made_in(makers: Bed) -> AsyncIterator[Room]:
    async with Api(makers.server) as api:
        name = f"test-{secrets.token_hex(5)}"
        reply = await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        assert reply.status == 201, reply.text
        yield Room(api, name)


@pytest.mark.parametrize(("resource", "manifest"), CASES, ids=[f"{name} {n}" for n, (name, _) in enumerate(CASES)])
async def test_what_the_controllers_made_is_charged_as_told(made_in: Room, resource: str, manifest: JSON) -> None:
    """The quota's ``used`` becomes the create's own charge and each part times its count, name by name."""
    expected = dict(footprint(manifest).amounts)
    told = [part for part in parts_of(manifest) if not part.suspended]
    for part in told:
        for name, amount in part.demand.amounts.items():
            expected[name] = expected.get(name, 0) + amount * (part.count or 0)
    assert footprint_of(manifest).demand.amounts == expected
    absent = [f"count/{each}" for each in ("pods", "persistentvolumeclaims") if f"count/{each}" not in expected]
    await made_in.quota("q", dict.fromkeys([*expected, *absent], PLENTY))

    await made_in.create(resource, manifest)

    await _until_used(made_in, expected | dict.fromkeys(absent, 0))
    for each in ("pods", "persistentvolumeclaims"):
        count = expected.get(f"count/{each}", 0) // 10**9  # an object is charged a moment before it is stored
        listed = await made_in.api.until(made_in.path(each), _lists_at_least(count))
        assert len(listed["items"]) == count
        for found in listed["items"]:
            (owner,) = found["metadata"].get("ownerReferences") or [{"kind": "StatefulSet"}]  # its claims outlive it
            assert owner["kind"] in {part.made_by for part in told}


def _lists_at_least(count: int) -> Callable[[JSON], bool]:
    return lambda listed: len(listed["items"]) >= count


async def _until_used(room: Room, amounts: dict[str, int]) -> None:
    """Wait until ``used`` of the quota is exactly this, in nano-units."""

    def holds(quota: JSON) -> bool:
        used = {name: parse_quantity(text) for name, text in (quota["status"].get("used") or {}).items()}
        seen.update(used)
        return used == amounts

    seen: dict[str, int] = {}
    try:
        await room.api.until(room.path("resourcequotas", "q"), holds, PATIENCE)
    except AssertionError:
        wrong = {name: (format_quantity(seen.get(name, 0)), format_quantity(n)) for name, n in amounts.items()}
        pytest.fail(f"charged, told: { {name: both for name, both in wrong.items() if both[0] != both[1]} }")
