"""What is charged for each kind of object, and by which quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from k8s.sandbox.amounts import AmountError, amount_of
from tests.sandbox.talking import MERGE, PODS, TEAM, ask, create, pod, refused

if TYPE_CHECKING:
    import aiohttp

    from k8s.sandbox import Sandbox
    from tests.sandbox.talking import JSON

EVERYTHING = dict.fromkeys(
    (
        "cpu",
        "memory",
        "requests.cpu",
        "requests.memory",
        "limits.cpu",
        "limits.memory",
        "requests.ephemeral-storage",
        "limits.ephemeral-storage",
        "requests.nvidia.com/gpu",
        "hugepages-2Mi",
        "requests.hugepages-2Mi",
    ),
    "1000Gi",
) | {"pods": "100", "count/pods": "100"}


def container(name: str, cpu: str = "", memory: str = "", **more: object) -> JSON:
    """A container with equal requests and limits."""
    amounts = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}
    return {"name": name, "image": "i", "resources": {"requests": amounts, "limits": dict(amounts)}, **more}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1000Ki", "1000Ki"),
        ("9048576k", "9048576k"),
        ("1e3", "1e3"),
        ("1000000", "1M"),
        ("12E", "9223372036854775807"),
        ("0.7m", "700u"),
        ("0.1n", "1n"),
        ("-1.5", "-1500m"),
        ("100Mi", "100Mi"),
        ("0.5Gi", "512Mi"),
        ("0.5Ki", "512"),
        ("1500M", "1500M"),
        ("17145233164", "17145233164"),
        ("0", "0"),
        ("0Gi", "0"),
        ("1E2", "100"),
        ("5E", "5E"),
        ("1.", "1"),
        (".5", "500m"),
        ("1e-3", "1e-3"),
        ("123Ei", "9223372036854775807"),
        ("0.1Mi", "104857600m"),
        (2, "2"),
        (0.25, "250m"),
    ],
)
def test_quantities_print_as_apimachinery_prints_them(written: str | float, told: str) -> None:
    """Canonical form: the shortest exact one, in the family it was written in."""
    assert str(amount_of(written)) == told


@pytest.mark.parametrize("text", ["", "x", "1.2.3", "--1", "1KiB", "1 Gi", None, [], True, "0x10", "1e", "٣"])
def test_what_is_no_quantity_is_refused(text: object) -> None:
    """With the sentence of apimachinery."""
    with pytest.raises(AmountError, match="quantit"):
        amount_of(text)


@pytest.mark.parametrize(
    ("spec", "charged"),
    [
        pytest.param(
            {
                "containers": [container("a", "500m", "1Gi"), container("b", "250m", "64Mi")],
                "initContainers": [container("i", "2", "32Mi")],
            },
            {"requests.cpu": "2", "requests.memory": "1088Mi", "limits.cpu": "2"},
            id="the-largest-init-container-or-the-sum",
        ),
        pytest.param(
            {
                "containers": [container("a", "1")],
                "initContainers": [container("s", "500m", restartPolicy="Always"), container("i", "2")],
            },
            {"requests.cpu": "2500m"},
            id="a-sidecar-runs-beside-later-init-containers",
        ),
        pytest.param(
            {
                "containers": [container("a", "1")],
                "initContainers": [container("i", "1200m"), container("s", "500m", restartPolicy="Always")],
            },
            {"requests.cpu": "1500m"},
            id="and-beside-the-containers",
        ),
        pytest.param(
            {"containers": [container("a", "1", "1Gi")], "overhead": {"cpu": "250m", "memory": "10Mi"}},
            {"requests.cpu": "1250m", "limits.cpu": "1250m", "requests.memory": "1034Mi"},
            id="overhead",
        ),
        pytest.param(
            {
                "containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                "overhead": {"cpu": "250m"},
            },
            {"requests.cpu": "1250m", "limits.cpu": "0"},
            id="overhead-adds-to-limits-only-where-there-are-any",
        ),
        pytest.param(
            {"containers": [container("a", "1")], "resources": {"requests": {"cpu": "3"}, "limits": {"memory": "2Gi"}}},
            {"requests.cpu": "3", "requests.memory": "2Gi", "limits.memory": "2Gi", "limits.cpu": "1"},
            id="pod-level-resources-replace",
        ),
        pytest.param(
            {
                "containers": [
                    {
                        "name": "a",
                        "image": "i",
                        "resources": {
                            "limits": {
                                "cpu": "1",
                                "nvidia.com/gpu": "2",
                                "hugepages-2Mi": "4Mi",
                                "memory": "1Gi",
                                "ephemeral-storage": "1G",
                            }
                        },
                    }
                ]
            },
            {
                "requests.cpu": "1",
                "requests.nvidia.com/gpu": "2",
                "hugepages-2Mi": "4Mi",
                "requests.hugepages-2Mi": "4Mi",
                "requests.ephemeral-storage": "1G",
                "limits.ephemeral-storage": "1G",
            },
            id="a-limit-alone-is-a-request-too",
        ),
    ],
)
async def test_a_pod_is_charged_for_all_it_may_need_at_once(
    sandbox: Sandbox, session: aiohttp.ClientSession, spec: JSON, charged: JSON
) -> None:
    """Rules of ``PodRequests`` and ``PodLimits``."""
    hard = {name: value for name, value in EVERYTHING.items() if name in {*charged, "pods"}}
    must_be_set = {"limits.cpu", "limits.memory"}
    if "overhead" in spec:  # a pod's overhead is that of its RuntimeClass
        spec = {**spec, "runtimeClassName": "rc"}
        overhead = {"metadata": {"name": "rc"}, "handler": "h", "overhead": {"podFixed": spec["overhead"]}}
        sandbox.create(sandbox.kind("runtimeclasses", "node.k8s.io"), "", overhead)
    sandbox.create_quota("team", "q", {n: v for n, v in hard.items() if n not in must_be_set or charged[n] != "0"})
    await create(session, {"metadata": {"name": "x"}, "spec": spec})

    wanted = {name: value for name, value in charged.items() if value != "0" or name in sandbox.used("team", "q")}
    assert sandbox.used("team", "q") == {**wanted, "pods": "1"}


async def test_services_are_charged_by_type_and_ports(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """And again when their type changes."""
    hard = {"services": "9", "services.nodeports": "2", "services.loadbalancers": "1", "count/services": "9"}
    sandbox.create_quota("team", "q", hard)
    ports = [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]
    await create(session, {"metadata": {"name": "s"}, "spec": {"ports": ports}}, f"{TEAM}/services")
    assert sandbox.used("team", "q") == dict(zip(sorted(hard), ("1", "1", "0", "0"), strict=True))

    code, _ = await ask(session, "PATCH", f"{TEAM}/services/s", {"spec": {"type": "NodePort"}}, content_type=MERGE)
    assert code == 200
    assert sandbox.used("team", "q")["services.nodeports"] == "2"
    balanced = {"metadata": {"name": "t"}, "spec": {"ports": ports[:1], "type": "LoadBalancer"}}
    assert await refused(session, balanced, f"{TEAM}/services") == (
        'services "t" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=2, '
        "limited: services.nodeports=2"
    )


async def test_claims_are_charged_by_size_and_class(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """In whole bytes; growing one is charged as well."""
    gold = "gold.storageclass.storage.k8s.io/requests.storage"
    sandbox.create_quota("team", "q", {"requests.storage": "10Gi", "persistentvolumeclaims": "5", gold: "5Gi"})
    body = {
        "metadata": {"name": "c"},
        "spec": {
            "storageClassName": "gold",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}},
        },
    }
    claims = f"{TEAM}/persistentvolumeclaims"
    await create(session, body, claims)
    assert sandbox.used("team", "q") == {"requests.storage": "2Gi", "persistentvolumeclaims": "1", gold: "2Gi"}

    classes = sandbox.kind("storageclasses", "storage.k8s.io")
    sandbox.create(classes, "", {"metadata": {"name": "gold"}, "provisioner": "p", "allowVolumeExpansion": True})
    bound = {"status": {"phase": "Bound"}}
    await ask(session, "PATCH", f"{claims}/c/status", bound, content_type=MERGE)
    larger = {"spec": {"resources": {"requests": {"storage": "6Gi"}}}}
    code, answer = await ask(session, "PATCH", f"{claims}/c", larger, content_type=MERGE)
    assert code == 403
    assert answer["message"] == (
        f'persistentvolumeclaims "c" is forbidden: exceeded quota: q, requested: {gold}=4Gi, used: {gold}=2Gi, '
        f"limited: {gold}=5Gi"
    )


SCOPED = [
    pytest.param({"scopes": ["BestEffort"]}, pod("x"), pod("y", requests={"cpu": "1"}), id="best-effort"),
    pytest.param({"scopes": ["NotBestEffort"]}, pod("x", requests={"cpu": "1"}), pod("y"), id="not-best-effort"),
    pytest.param({"scopes": ["Terminating"]}, pod("x", spec={"activeDeadlineSeconds": 9}), pod("y"), id="terminating"),
    pytest.param(
        {"scopes": ["NotTerminating"]}, pod("x"), pod("y", spec={"activeDeadlineSeconds": 9}), id="not-terminating"
    ),
    pytest.param(
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}},
        pod("x", spec={"priorityClassName": "high"}),
        pod("y", spec={"priorityClassName": "low"}),
        id="priority-class-in",
    ),
    pytest.param(
        {
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}]
            }
        },
        pod("x", spec={"priorityClassName": "low"}),
        pod("y", spec={"priorityClassName": "high"}),
        id="priority-class-not-in",
    ),
    pytest.param(
        {"scopes": ["PriorityClass"]}, pod("x", spec={"priorityClassName": "low"}), pod("y"), id="priority-class"
    ),
    pytest.param(
        {"scopes": ["CrossNamespacePodAffinity"]},
        pod(
            "x",
            spec={
                "affinity": {
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"topologyKey": "k", "namespaceSelector": {}}
                        ]
                    }
                }
            },
        ),
        pod(
            "y",
            spec={
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "k"}]}}
            },
        ),
        id="cross-namespace-affinity",
    ),
]


@pytest.mark.parametrize(("scoped", "inside", "outside"), SCOPED)
async def test_a_scope_decides_who_is_charged(
    sandbox: Sandbox, session: aiohttp.ClientSession, scoped: JSON, inside: JSON, outside: JSON
) -> None:
    """Every scope, plain and as a selector."""
    for name in ("high", "low"):
        sandbox.create(
            sandbox.kind("priorityclasses", "scheduling.k8s.io"), "", {"metadata": {"name": name}, "value": 1}
        )
    sandbox.create_quota("team", "q", {"pods": "1"}, scoped.get("scopes", ()), scoped.get("scopeSelector"))
    await create(session, outside)
    assert sandbox.used("team", "q") == {"pods": "0"}

    await create(session, inside)
    assert sandbox.used("team", "q") == {"pods": "1"}
    await ask(session, "DELETE", f"{PODS}/x")
    await sandbox.until(lambda: sandbox.used("team", "q") == {"pods": "0"})


async def test_a_priority_class_must_exist(session: aiohttp.ClientSession) -> None:
    """The text of the Priority plugin."""
    assert await refused(session, pod("x", spec={"priorityClassName": "high"})) == (
        'pods "x" is forbidden: no PriorityClass with name high was found'
    )


async def test_custom_resources_are_counted(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """``count/RESOURCE.GROUP`` for any namespaced kind."""
    sandbox.create_quota("team", "q", {"count/rayclusters.ray.io": "1"})
    path = "/apis/ray.io/v1/namespaces/team/rayclusters"
    ray = {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
    await create(session, {**ray, "metadata": {"name": "r"}}, path)

    assert "count/rayclusters.ray.io=1" in await refused(session, {**ray, "metadata": {"name": "s"}}, path)
    await ask(session, "DELETE", f"{path}/r")
    await sandbox.until(lambda: sandbox.used("team", "q") == {"count/rayclusters.ray.io": "0"})


async def test_a_name_that_nothing_is_charged_to_stays_out_of_used(sandbox: Sandbox) -> None:
    """A quota over a resource that the server does not know limits nothing."""
    sandbox.create_quota("team", "q", {"pods": "1", "count/unknowns.example.com": "1"})

    assert sandbox.used("team", "q") == {"pods": "0"}
