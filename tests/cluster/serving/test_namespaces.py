"""Namespaces: created, terminating, gone."""

from __future__ import annotations

import secrets

import pytest

from tests.cluster.objects import config, made, names, of_core, pod, refusal
from tests.cluster.talking import MERGE, Api


def fresh() -> str:
    return f"test-{secrets.token_hex(5)}"


async def test_a_namespace_is_labelled_with_its_name(api: Api) -> None:
    """It is Active at once, with the finalizer kubernetes in its spec."""
    name = fresh()
    space = made(await api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": {"a": "b"}}}))

    assert space["metadata"]["labels"] == {"a": "b", "kubernetes.io/metadata.name": name}
    assert (space["spec"], space["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    await api.delete(f"/api/v1/namespaces/{name}")


async def test_an_empty_namespace_is_deleted(api: Api) -> None:
    """The delete returns it as Terminating; a moment later it is gone."""
    name = fresh()
    made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
    going = (await api.delete(f"/api/v1/namespaces/{name}")).json

    assert going["status"]["phase"] == "Terminating"
    assert going["metadata"]["deletionTimestamp"]
    assert "deletionGracePeriodSeconds" not in going["metadata"]
    await api.until("/api/v1/namespaces", lambda listed: name not in names(listed), within=150)


@pytest.mark.long
async def test_a_terminating_namespace_accepts_no_new_objects(api: Api) -> None:
    """403 with the cause NamespaceTerminating while an object with a finalizer keeps it; then it is deleted."""
    name = fresh()
    made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
    path = of_core(name, "configmaps")
    made(await api.post(path, config("stays", finalizers=["x/y"])))
    made(await api.post(of_core(name, "pods"), pod("goes")))
    await api.delete(f"/api/v1/namespaces/{name}")
    reply = await api.post(path, config("new"))

    told = f"unable to create new content in namespace {name} because it is being terminated"
    assert refusal(reply) == (403, "Forbidden", f'configmaps "new" is forbidden: {told}')
    assert reply.json["details"] == {
        "name": "new",
        "kind": "configmaps",
        "causes": [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {name} is being terminated",
                "field": "metadata.namespace",
            }
        ],
    }
    await api.until(of_core(name, "pods"), lambda listed: not listed["items"])
    await api.until(f"{path}/stays", lambda obj: obj["metadata"].get("deletionTimestamp"))
    made(await api.patch(f"{path}/stays", {"metadata": {"finalizers": None}}, MERGE))
    await api.until("/api/v1/namespaces", lambda listed: name not in names(listed), within=150)


async def test_objects_in_a_terminating_namespace_can_be_changed(api: Api) -> None:
    """Updates work; only creates are refused. A second delete of the namespace has no effect."""
    name = fresh()
    made(await api.post("/api/v1/namespaces", {"metadata": {"name": name}}))
    path = of_core(name, "configmaps")
    made(await api.post(path, config("stays", finalizers=["x/y"])))
    await api.delete(f"/api/v1/namespaces/{name}")

    assert made(await api.patch(f"{path}/stays", {"data": {"a": "1"}}, MERGE))["data"] == {"a": "1"}
    again = await api.delete(f"/api/v1/namespaces/{name}")
    assert (again.status, again.json["status"]["phase"]) == (200, "Terminating")
    await api.until(f"{path}/stays", lambda obj: obj["metadata"].get("deletionTimestamp"))
    made(await api.patch(f"{path}/stays", {"metadata": {"finalizers": None}}, MERGE))


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_standard_namespaces_cannot_be_deleted(api: Api, name: str) -> None:
    """403 for default, kube-system and kube-public."""
    told = f'namespaces "{name}" is forbidden: this namespace may not be deleted'

    assert refusal(await api.delete(f"/api/v1/namespaces/{name}")) == (403, "Forbidden", told)


async def test_every_namespace_has_a_service_account(api: Api, namespace: str) -> None:
    """It is named default, made a moment after the namespace, and made again after it was deleted."""
    path = of_core(namespace, "serviceaccounts", "default")
    first = await api.until(path, lambda obj: obj["metadata"]["uid"])
    made(await api.delete(path))

    await api.until(path, lambda obj: obj["metadata"]["uid"] != first["metadata"]["uid"])


async def test_every_namespace_has_the_root_certificate(api: Api, namespace: str) -> None:
    """The ConfigMap `kube-root-ca.crt`, which is made again after it was deleted."""
    path = of_core(namespace, "configmaps", "kube-root-ca.crt")
    first = await api.until(path, bool)
    assert first["data"].keys() == {"ca.crt"}
    made(await api.delete(path))

    await api.until(path, lambda obj: obj["metadata"]["uid"] != first["metadata"]["uid"])


async def test_the_api_server_has_a_service(api: Api) -> None:
    """`kubernetes` in the namespace default, at the first address of the range for services."""
    service = await api.until(of_core("default", "services", "kubernetes"), bool)

    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    assert service["spec"]["clusterIP"].endswith(".0.1")
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["port"], port["protocol"]) == ("https", 443, "TCP")
