"""Kinds: defaults, validation and allowed changes of ConfigMaps, Secrets, Services, claims and Jobs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.objects import JSON, causes, config, made, of_core, of_group, pod, refusal
from tests.cluster.talking import MERGE, Api

INVALID, REQUIRED = "FieldValueInvalid", "FieldValueRequired"
UNSUPPORTED = "FieldValueNotSupported"


async def test_the_server_sets_the_metadata_of_a_new_object(api: Api, namespace: str) -> None:
    """uid, version, creation time and namespace; values that the client gives for the server's fields are dropped."""
    claimed = {"uid": "mine", "creationTimestamp": "1999-01-01T00:00:00Z", "deletionTimestamp": "1999-01-01T00:00:00Z",
               "selfLink": "/x"}  # fmt: skip
    created = made(await api.post(of_core(namespace, "configmaps"), config("m", {"a": "1"}, **claimed)))
    metadata = created["metadata"]

    assert len(metadata["uid"]) == 36
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["namespace"] == namespace
    assert metadata["creationTimestamp"] > "2020"
    assert not {"deletionTimestamp", "selfLink"} & metadata.keys()
    assert (created["kind"], created["apiVersion"], created["data"]) == ("ConfigMap", "v1", {"a": "1"})


async def test_empty_fields_are_left_out(api: Api, namespace: str) -> None:
    """Empty maps, empty lists and nulls."""
    body = config("m", {}, labels={}, annotations=None, finalizers=[], ownerReferences=[])
    created = made(await api.post(of_core(namespace, "configmaps"), body))

    assert "data" not in created
    assert not {"labels", "annotations", "finalizers", "ownerReferences"} & created["metadata"].keys()


async def test_a_secret_accepts_plain_strings(api: Api, namespace: str) -> None:
    """`stringData` becomes base64 in `data`; the type defaults to Opaque."""
    path = of_core(namespace, "secrets")
    secret = made(await api.post(path, {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"c": "ZA=="}}))

    assert (secret["data"], secret["type"]) == ({"a": "Yg==", "c": "ZA=="}, "Opaque")
    assert "stringData" not in secret


async def test_a_service_gets_an_address_and_defaults(api: Api, namespace: str) -> None:
    """A cluster IP that stays, and defaults for targetPort, protocol, type and affinity."""
    path = of_core(namespace, "services")
    service = made(await api.post(path, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}))
    spec = dict(service["spec"])
    address = spec.pop("clusterIP")

    assert spec == {
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}],
        "clusterIPs": [address],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
    }
    assert service["status"] == {"loadBalancer": {}}
    changed = made(await api.patch(f"{path}/s", {"metadata": {"labels": {"a": "b"}}}, MERGE))
    assert changed["spec"]["clusterIP"] == address


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
async def test_services_of_outside_types_get_node_ports(api: Api, namespace: str, kind: str) -> None:
    """One from 30000-32767 for each port of a NodePort or LoadBalancer Service."""
    body = {"metadata": {"name": "s"}, "spec": {"type": kind, "ports": [{"name": n, "port": 80 + i}
                                                                        for i, n in enumerate("ab")]}}  # fmt: skip
    spec = made(await api.post(of_core(namespace, "services"), body))["spec"]
    ports = [each["nodePort"] for each in spec["ports"]]

    assert all(30000 <= port <= 32767 for port in ports)
    assert len(set(ports)) == 2
    assert spec["externalTrafficPolicy"] == "Cluster"
    assert spec.get("allocateLoadBalancerNodePorts") == (True if kind == "LoadBalancer" else None)


PORT = "spec.ports[0]"


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, [(REQUIRED, "spec.ports", "Required value")]),
        ({"type": "Foo", "ports": [{"port": 80}]}, [(UNSUPPORTED, "spec.type",
         'Unsupported value: "Foo": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"')]),
        ({"type": "ExternalName"}, [(REQUIRED, "spec.externalName", "Required value")]),
        ({"ports": [{"port": 80}, {"port": 81}]},
         [(REQUIRED, f"{PORT}.name", "Required value"), (REQUIRED, "spec.ports[1].name", "Required value")]),
    ],
    ids=["no-ports", "type", "no-external-name", "unnamed"],
)  # fmt: skip
async def test_an_invalid_service_is_refused(
    api: Api, namespace: str, spec: JSON, found: list[tuple[str, str, str]]
) -> None:
    """422 with a cause for each problem."""
    assert causes(await api.post(of_core(namespace, "services"), {"metadata": {"name": "s"}, "spec": spec})) == found


def claim(**spec: Any) -> JSON:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "v"}, "spec": {**asked, **spec}}


async def test_a_new_claim_is_pending_and_fixed(api: Api, namespace: str) -> None:
    """Its size cannot change until it is bound."""
    path = of_core(namespace, "persistentvolumeclaims")
    created = made(await api.post(path, claim()))

    assert (created["spec"]["volumeMode"], created["status"]) == ("Filesystem", {"phase": "Pending"})
    patch = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    code, reason, message = refusal(await api.patch(f"{path}/v", patch, MERGE))
    text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    assert (code, reason) == (422, "Invalid")
    assert message.startswith(f'PersistentVolumeClaim "v" is invalid: spec: Forbidden: {text}')


MODES = '"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"'


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"accessModes": [], "resources": {}}, [
            (REQUIRED, "spec.accessModes", "Required value: at least 1 access mode is required"),
            (REQUIRED, "spec.resources[storage]", "Required value")]),
        ({"accessModes": ["Foo"]},
         [(UNSUPPORTED, "spec.accessModes", f'Unsupported value: "Foo": supported values: {MODES}')]),
        ({"resources": {"requests": {"storage": "0"}}},
         [(INVALID, "spec.resources[storage]", 'Invalid value: "0": must be greater than zero')]),
    ],
    ids=["empty", "mode", "zero"],
)  # fmt: skip
async def test_an_invalid_claim_is_refused(
    api: Api, namespace: str, spec: JSON, found: list[tuple[str, str, str]]
) -> None:
    """422 with a cause for each problem."""
    assert causes(await api.post(of_core(namespace, "persistentvolumeclaims"), claim(**spec))) == found


def job(name: str = "j", restart: str = "Never", **spec: Any) -> JSON:
    template = {"spec": {"restartPolicy": restart, "containers": [{"name": "main", "image": "busybox:1"}]}}
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": template, **spec}}


async def test_a_job_gets_defaults_and_labels_and_a_selector(api: Api, namespace: str) -> None:
    """Labels from its uid and its name, on the Job and on its template."""
    created = made(await api.post(of_group("batch/v1", namespace, "jobs"), job()))
    uid, spec = created["metadata"]["uid"], created["spec"]
    labels = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "j", "controller-uid": uid,
              "job-name": "j"}  # fmt: skip

    assert created["metadata"]["labels"] == labels
    assert spec["template"]["metadata"]["labels"] == labels
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert {field: spec[field] for field in spec if field not in {"selector", "template"}} == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "manualSelector": False,
        "completionMode": "NonIndexed",
        "suspend": True,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    assert created["metadata"]["generation"] == 1


POLICY = 'Required value: valid values: "OnFailure", "Never"'


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (job(restart="Always"), [(REQUIRED, "spec.template.spec.restartPolicy", POLICY)]),
        ({"metadata": {"name": "j"}, "spec": {}}, [
            (REQUIRED, "spec.template.spec.containers", "Required value"),
            (REQUIRED, "spec.template.spec.restartPolicy", POLICY)]),
        (job(parallelism=-1), [(INVALID, "spec.parallelism", "Invalid value: -1: must be greater than or equal to 0")]),
    ],
    ids=["always", "no-template", "parallelism"],
)  # fmt: skip
async def test_an_invalid_job_is_refused(
    api: Api, namespace: str, body: JSON, found: list[tuple[str, str, str]]
) -> None:
    """422 with a cause for each problem."""
    assert causes(await api.post(of_group("batch/v1", namespace, "jobs"), body)) == found


async def test_the_generation_counts_changes_of_the_spec(api: Api, namespace: str) -> None:
    """Changes of metadata or status do not count; kinds without a spec have no generation."""
    path = of_core(namespace, "pods")
    generations = [made(await api.post(path, pod("p")))["metadata"]["generation"]]
    for where, patch in (
        ("p", {"metadata": {"labels": {"a": "b"}}}),
        ("p/status", {"status": {"message": "x"}}),
        ("p", {"spec": {"activeDeadlineSeconds": 100}}),
    ):
        generations.append(made(await api.patch(f"{path}/{where}", patch, MERGE))["metadata"]["generation"])

    assert generations == [1, 1, 1, 2]
    assert "generation" not in made(await api.post(of_core(namespace, "configmaps"), config("m")))["metadata"]
