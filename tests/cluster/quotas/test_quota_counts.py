"""Quota: object counts, Services and claims"""

from __future__ import annotations

import pytest

from tests.cluster.custom_kinds import establish, retire
from tests.cluster.quotas.quota_room import JSON, Room, claim, container, pod, service, told
from tests.cluster.talking import MERGE, Api

LABELS = {"app": "a"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [container()]}}
ONCE = {"spec": {"restartPolicy": "Never", "containers": [container()]}}
SELECTOR = {"matchLabels": LABELS}
NONE = {"replicas": 0, "template": TEMPLATE}

KINDS: dict[str, JSON] = {
    "pods": {"spec": {"containers": [container()]}},
    "podtemplates": {"template": TEMPLATE},
    "secrets": {},
    "services": {"spec": {"ports": [{"port": 80}]}},
    "persistentvolumeclaims": claim(),
    "replicationcontrollers": {"spec": {**NONE, "selector": LABELS}},
    "limitranges": {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "100"}}]}},
    "deployments.apps": {"spec": {**NONE, "selector": SELECTOR}},
    "replicasets.apps": {"spec": {**NONE, "selector": SELECTOR}},
    "statefulsets.apps": {"spec": {**NONE, "selector": SELECTOR, "serviceName": "s"}},
    "jobs.batch": {"spec": {"suspend": True, "template": ONCE}},
    "cronjobs.batch": {"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": ONCE}}}},
    "leases.coordination.k8s.io": {},
}


@pytest.mark.parametrize("resource", KINDS)
async def test_objects_of_any_kind_can_be_counted(room: Room, resource: str) -> None:
    """`count/RESOURCE.GROUP` limits their number; the group is always part of the name."""
    await room.quota("q", {f"count/{resource}": "1"})
    await room.create(resource, {**KINDS[resource], "metadata": {"name": "a"}})

    assert await room.used() == {f"count/{resource}": "1"}
    assert await room.refused(resource, {**KINDS[resource], "metadata": {"name": "x"}}) == (
        f'{resource} "x" is forbidden: exceeded quota: q, requested: count/{resource}=1, used: count/{resource}=1, '
        f"limited: count/{resource}=1"
    )
    await room.delete(resource, "a", propagationPolicy="Background")
    await room.until_used({f"count/{resource}": "0"})


@pytest.mark.parametrize("resource", ["secrets", "replicationcontrollers", "services"])
async def test_some_kinds_have_a_short_name_in_quotas(room: Room, resource: str) -> None:
    """`secrets` counts the same as `count/secrets`; a quota may hold both."""
    await room.quota("q", {resource: "0", f"count/{resource}": "0"})

    one, none = (",".join(sorted((f"{resource}={n}", f"count/{resource}={n}"))) for n in (1, 0))
    assert await room.refused(resource, {**KINDS[resource], "metadata": {"name": "x"}}) == (
        f'{resource} "x" is forbidden: exceeded quota: q, requested: {one}, used: {none}, limited: {none}'
    )


async def test_quotas_are_counted_too(room: Room) -> None:
    """A quota over quotas counts itself; `count/resourcequotas` refuses the next one."""
    await room.quota("q", {"resourcequotas": "2"})
    await room.quota("r", {"pods": "1"})

    assert await room.refused("resourcequotas", {"metadata": {"name": "x"}, "spec": {"hard": {"pods": "1"}}}) == (
        'resourcequotas "x" is forbidden: exceeded quota: q, requested: resourcequotas=1, used: resourcequotas=2, '
        "limited: resourcequotas=2"
    )


async def test_what_every_namespace_contains_is_counted(room: Room) -> None:
    """The service account `default` and the ConfigMap `kube-root-ca.crt`, which controllers create."""
    for resource, name in (("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")):
        await room.api.until(room.path(resource, name), bool)
    full = {"configmaps": "1", "count/configmaps": "1", "count/serviceaccounts": "1"}
    await room.quota("q", full)
    await room.until_used(full)

    assert await room.refused("configmaps", {"metadata": {"name": "x"}}) == (
        'configmaps "x" is forbidden: exceeded quota: q, requested: configmaps=1,count/configmaps=1, '
        "used: configmaps=1,count/configmaps=1, limited: configmaps=1,count/configmaps=1"
    )
    assert await room.refused("serviceaccounts", {"metadata": {"name": "x"}}) == (
        'serviceaccounts "x" is forbidden: exceeded quota: q, requested: count/serviceaccounts=1, '
        "used: count/serviceaccounts=1, limited: count/serviceaccounts=1"
    )


async def test_a_counted_object_may_be_updated_under_a_full_quota(room: Room) -> None:
    """Only creates are counted."""
    await room.quota("q", {"count/secrets": "1"})
    await room.create("secrets", {"metadata": {"name": "a"}, "data": {"k": "MQ=="}})
    reply = await room.api.patch(room.path("secrets", "a"), {"data": {"k": "Mg=="}}, MERGE)

    assert reply.status == 200


@pytest.mark.long
async def test_custom_resources_are_counted(room: Room, api: Api) -> None:
    """A kind from a CustomResourceDefinition is counted like any other, as soon as the controller knows it."""
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    definition: JSON = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.quota.example.com"},
        "spec": {
            "group": "quota.example.com",
            "names": names,
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    await establish(api, definition)
    gadget = {"apiVersion": "quota.example.com/v1", "kind": "Gadget"}
    name = "count/gadgets.quota.example.com"
    await room.api.until(room.path("gadgets.quota.example.com"), lambda found: found["kind"] == "GadgetList")
    await room.known_to_quota(name)
    await room.quota("q", {name: "1"})
    await room.create("gadgets.quota.example.com", {**gadget, "metadata": {"name": "a"}})
    assert await room.refused("gadgets.quota.example.com", {**gadget, "metadata": {"name": "x"}}) == (
        f'gadgets.quota.example.com "x" is forbidden: exceeded quota: q, requested: {name}=1, used: {name}=1, '
        f"limited: {name}=1"
    )
    await room.delete("gadgets.quota.example.com", "a")
    await room.until_used({name: "0"})
    await retire(api, definition["metadata"]["name"])


SERVICES = [
    pytest.param(service("x"), {"services": "1"}, id="ClusterIP"),
    pytest.param(service("x", clusterIP="None"), {"services": "1"}, id="headless"),
    pytest.param(
        {"metadata": {"name": "x"}, "spec": {"type": "ExternalName", "externalName": "example.com"}},
        {"services": "1"},
        id="ExternalName",
    ),
    pytest.param(service("x", "NodePort", 2), {"services": "1", "services.nodeports": "2"}, id="NodePort"),
    pytest.param(
        service("x", "LoadBalancer", 3),
        {"services": "1", "services.nodeports": "3", "services.loadbalancers": "1"},
        id="LoadBalancer",
    ),
    pytest.param(
        service("x", "LoadBalancer", 3, allocateLoadBalancerNodePorts=False),
        {"services": "1", "services.loadbalancers": "1"},
        id="LoadBalancer-without-node-ports",
    ),
]


@pytest.mark.parametrize(("body", "charged"), SERVICES)
async def test_a_service_is_charged_by_its_type_and_ports(room: Room, body: JSON, charged: JSON) -> None:
    """Each port of a NodePort or LoadBalancer Service counts as a node port; a LoadBalancer also counts itself."""
    hard = {"services": "9", "services.nodeports": "9", "services.loadbalancers": "9"}
    await room.quota("q", hard)
    await room.create("services", body)
    assert await room.used() == {**dict.fromkeys(hard, "0"), **charged}

    await room.delete("services", "x")
    await room.until_used(dict.fromkeys(hard, "0"))


async def test_a_change_of_service_type_is_charged_or_refused(room: Room) -> None:
    """A change of type is charged like a create; a change back to ClusterIP is given back."""
    await room.quota("q", {"services": "9", "services.nodeports": "1", "services.loadbalancers": "0"})
    await room.create("services", service("x"))
    ports = await room.api.patch(room.path("services", "x"), {"spec": {"type": "NodePort"}}, MERGE)
    assert ports.status == 200
    assert await room.used() == {"services": "1", "services.loadbalancers": "0", "services.nodeports": "1"}

    balanced = await room.api.patch(room.path("services", "x"), {"spec": {"type": "LoadBalancer"}}, MERGE)
    assert told(balanced, "services", "x") == (
        'services "x" is forbidden: exceeded quota: q, requested: services.loadbalancers=1, '
        "used: services.loadbalancers=0, limited: services.loadbalancers=0"
    )
    await room.controller_is_current()
    plain = await room.api.patch(room.path("services", "x"), {"spec": {"type": "ClusterIP"}}, MERGE)
    assert plain.status == 200
    await room.until_used({"services": "1", "services.loadbalancers": "0", "services.nodeports": "0"})


async def test_additional_service_ports_are_charged(room: Room) -> None:
    """Only what the update adds."""
    await room.quota("q", {"services.nodeports": "3"})
    await room.create("services", service("x", "NodePort", 2))
    more = {"spec": service("x", "NodePort", 4)["spec"]}

    assert told(await room.api.patch(room.path("services", "x"), more, MERGE), "services", "x") == (
        'services "x" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=2, '
        "limited: services.nodeports=3"
    )


async def test_a_load_balancer_over_two_limits_gets_both_named(room: Room) -> None:
    """A refusal names everything in the quota that is exceeded."""
    await room.quota("q", {"services.nodeports": "1", "services.loadbalancers": "0"})

    assert await room.refused("services", service("x", "LoadBalancer", 2)) == (
        'services "x" is forbidden: exceeded quota: q, requested: services.loadbalancers=1,services.nodeports=2, '
        "used: services.loadbalancers=0,services.nodeports=0, limited: services.loadbalancers=0,services.nodeports=1"
    )


GOLD = "quota-suite-gold"
GOLD_STORAGE = f"{GOLD}.storageclass.storage.k8s.io/requests.storage"
GOLD_CLAIMS = f"{GOLD}.storageclass.storage.k8s.io/persistentvolumeclaims"
CLAIMS = "persistentvolumeclaims"


@pytest.fixture
async def gold(api: Api) -> None:
    """A StorageClass whose claims may grow, for the whole run."""
    body = {"metadata": {"name": GOLD}, "provisioner": "example.com/p", "allowVolumeExpansion": True}
    made = await api.post("/apis/storage.k8s.io/v1/storageclasses", body)
    assert made.status in {201, 409}, made.text


CHARGED_CLAIMS = [
    pytest.param(claim("x", "2Gi", storageClassName=GOLD), "2Gi", "2Gi", "1", id="of-a-class"),
    pytest.param(claim("x", "2Gi", storageClassName=""), "2Gi", "0", "0", id="of-no-class"),
    pytest.param(claim("x", "0.5", storageClassName=GOLD), "1", "1", "1", id="whole-bytes"),
    pytest.param(claim("x", "1500M", storageClassName=GOLD), "1500M", "1500M", "1", id="decimal"),
    pytest.param(claim("x", "1.5Gi", storageClassName="other"), "1536Mi", "0", "0", id="of-another-class"),
]


@pytest.mark.usefixtures("gold")
@pytest.mark.parametrize(("body", "storage", "gold_storage", "gold_claims"), CHARGED_CLAIMS)
async def test_a_claim_is_charged_by_its_size_and_class(
    room: Room, body: JSON, storage: str, gold_storage: str, gold_claims: str
) -> None:
    """In total and under the names of its StorageClass; in whole bytes."""
    await room.quota("q", {CLAIMS: "3", "requests.storage": "9Gi", GOLD_STORAGE: "9Gi", GOLD_CLAIMS: "3"})
    await room.create(CLAIMS, body)

    charged = {CLAIMS: "1", "requests.storage": storage, GOLD_STORAGE: gold_storage, GOLD_CLAIMS: gold_claims}
    assert await room.used() == charged


@pytest.mark.usefixtures("gold")
async def test_a_refusal_names_the_storage_class(room: Room) -> None:
    """The resource name contains the class; a claim of another class still fits."""
    await room.quota("q", {"requests.storage": "10Gi", GOLD_STORAGE: "5Gi"})
    await room.create(CLAIMS, claim("a", "2Gi", storageClassName=GOLD))

    assert await room.refused(CLAIMS, claim("x", "4Gi", storageClassName=GOLD)) == (
        f'persistentvolumeclaims "x" is forbidden: exceeded quota: q, requested: {GOLD_STORAGE}=4Gi, '
        f"used: {GOLD_STORAGE}=2Gi, limited: {GOLD_STORAGE}=5Gi"
    )
    await room.create(CLAIMS, claim("b", "4Gi", storageClassName="other"))


@pytest.mark.usefixtures("gold")
async def test_a_claim_that_grows_is_charged_for_the_difference(room: Room) -> None:
    """A bound claim may grow while the quota has room; beyond that it is refused."""
    await room.quota("q", {"requests.storage": "5Gi"})
    await room.create(CLAIMS, claim("x", "2Gi", storageClassName=GOLD))
    bound = {"status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}}
    await room.api.patch(room.path(CLAIMS, "x", "status"), bound, MERGE)

    grown = await room.api.patch(room.path(CLAIMS, "x"), _of_size("4Gi"), MERGE)
    assert grown.status == 200, grown.text
    assert await room.used() == {"requests.storage": "4Gi"}
    assert told(await room.api.patch(room.path(CLAIMS, "x"), _of_size("6Gi"), MERGE), CLAIMS, "x") == (
        'persistentvolumeclaims "x" is forbidden: exceeded quota: q, requested: requests.storage=2Gi, '
        "used: requests.storage=4Gi, limited: requests.storage=5Gi"
    )


def _of_size(storage: str) -> JSON:
    return {"spec": {"resources": {"requests": {"storage": storage}}}}


async def test_pods_are_not_charged_for_the_claims_they_mount(room: Room) -> None:
    """A claim is charged when it is created, not when a pod uses it."""
    await room.quota("q", {CLAIMS: "0", "pods": "1"})
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    await room.create("pods", pod("x", spec={"volumes": volumes}))

    assert await room.used() == {CLAIMS: "0", "pods": "1"}
