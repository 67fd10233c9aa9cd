"""Recorded requests of kubectl: tested everywhere, with or without a kubectl."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.lab.sandbox.http.openapi import mentioned
from tests.sandbox.talking import PODS, TEAM, ask, create, pod

if TYPE_CHECKING:
    import aiohttp

    from backoff_ctrl.k8s.lab.sandbox import Sandbox

PROTOBUF = "application/vnd.kubernetes.protobuf"
# `kubectl create namespace foo`, `kubectl create serviceaccount foo`, `kubectl auth can-i create pods` of 1.32
NAMESPACE = (
    b'k8s\x00\n\x0f\n\x02v1\x12\tNamespace\x12\x1b\n\x13\n\x03foo\x12\x00\x1a\x00"\x00*\x002\x008\x00B\x00\x12\x00'
    b'\x1a\x02\n\x00\x1a\x00"\x00'
)
ACCOUNT = (
    b'k8s\x00\n\x14\n\x02v1\x12\x0eServiceAccount\x12\x15\n\x13\n\x03foo\x12\x00\x1a\x00"\x00*\x002\x008\x00B\x00\x1a'
    b'\x00"\x00'
)
REVIEW = (
    b"k8s\x00\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\x12?\n\x10\n\x00\x12\x00\x1a\x00"
    b'"\x00*\x002\x008\x00B\x00\x12!\n\x1f\n\x07default\x12\x06create\x1a\x00"\x00*\x04pods2\x00:\x00\x1a\x08\x08\x00'
    b'\x12\x00\x1a\x00 \x00\x1a\x00"\x00'
)
GET = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"


async def test_typed_commands_send_protobuf(session: aiohttp.ClientSession) -> None:
    """``create namespace``, ``create serviceaccount``, ``auth can-i``; kubectl accepts JSON as the answer."""
    accept = f"{PROTOBUF},application/json"
    query = "fieldManager=kubectl-create&fieldValidation=Strict"
    code, made = await ask(
        session, "POST", f"/api/v1/namespaces?{query}", NAMESPACE, content_type=PROTOBUF, accept=accept
    )
    assert (code, made["metadata"]["name"], made["status"]["phase"]) == (201, "foo", "Active")
    code, made = await ask(session, "POST", f"{TEAM}/serviceaccounts?{query}", ACCOUNT, content_type=PROTOBUF)
    assert (code, made["metadata"]["name"]) == (201, "foo")
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    code, review = await ask(session, "POST", path, REVIEW, content_type=PROTOBUF)
    assert (code, review["status"]["allowed"]) == (201, True)
    assert review["spec"]["resourceAttributes"] == {"namespace": "default", "verb": "create", "resource": "pods"}


async def test_broken_protobuf_is_a_bad_request(session: aiohttp.ClientSession) -> None:
    """Truncated anywhere, or of an unknown kind."""
    for cut in range(50):  # what follows is Unknown.contentEncoding and contentType, which may be missing
        code, answer = await ask(session, "POST", "/api/v1/namespaces", NAMESPACE[:cut], content_type=PROTOBUF)
        assert code in {400, 422}, (cut, answer)
    strange = NAMESPACE.replace(b"Namespace", b"Namespoce")
    code, answer = await ask(session, "POST", "/api/v1/namespaces", strange, content_type=PROTOBUF)
    assert code == 400
    assert "send JSON" in answer["message"]


async def test_validation_asks_openapi_what_is_supported(session: aiohttp.ClientSession) -> None:
    """kubectl looks for ``fieldValidation`` among the parameters of PATCH."""
    _, index = await ask(session, "GET", "/openapi/v3")
    _, document = await ask(session, "GET", index["paths"]["api/v1"]["serverRelativeURL"])
    operations = [path["patch"] for path in document["paths"].values()]
    pods = next(each for each in operations if each["x-kubernetes-group-version-kind"]["kind"] == "Pod")

    assert "fieldValidation" in {each["name"] for each in pods["parameters"]}
    assert document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]["description"]
    assert (await ask(session, "GET", "/openapi/v3/apis/none/v1"))[0] == 404
    async with session.get("/openapi/v2") as old:  # for Helm: an empty document in protobuf
        assert (old.status, await old.read()) == (200, b"")


async def test_every_type_that_is_mentioned_is_explained(session: aiohttp.ClientSession) -> None:
    """In every document of the index, custom resources included: ``kubectl explain`` never meets a missing type."""
    _, index = await ask(session, "GET", "/openapi/v3")
    assert {"api/v1", "apis/batch/v1", "apis/ray.io/v1"} <= index["paths"].keys()
    for page in index["paths"].values():
        _, document = await ask(session, "GET", page["serverRelativeURL"])
        schemas = document["components"]["schemas"]
        assert set(mentioned(schemas)) <= schemas.keys()
        kinds = {each["kind"] for one in schemas.values() for each in one.get("x-kubernetes-group-version-kind", ())}
        told = [operation["x-kubernetes-group-version-kind"]["kind"] for path in document["paths"].values()
                for operation in path.values()]  # fmt: skip
        assert set(told) <= kinds


async def test_a_definition_is_explained_by_its_schema(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """And by the fields that every object has."""
    spec = {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "toys", "kind": "Toy", "singular": "toy"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
            "type": "object", "description": "A toy.", "properties": {"spec": {"type": "object"}}}}}],
    }  # fmt: skip
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
    await create(session, {**definition, "metadata": {"name": "toys.example.com"}}, path)
    await sandbox.until(lambda: sandbox._core.kinds.find("example.com", "v1", "toys") is not None)
    _, document = await ask(session, "GET", "/openapi/v3/apis/example.com/v1")

    toy = document["components"]["schemas"]["com.example.v1.Toy"]
    assert toy["description"] == "A toy."
    assert set(toy["properties"]) == {"apiVersion", "kind", "metadata", "spec"}


async def test_strict_validation_refuses_unknown_fields(session: aiohttp.ClientSession) -> None:
    """``kubectl create`` asks for strict validation; without it unknown fields are dropped."""
    body = pod("x", spec={"nodeNaem": "n", "volumes": [{"name": "v", "emptyDir": {"size": "1"}}]})
    code, answer = await ask(session, "POST", f"{PODS}?fieldValidation=Strict", body)
    assert code == 400
    assert answer["message"] == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.nodeNaem", unknown '
        'field "spec.volumes[0].emptyDir.size"'
    )

    made = await create(session, body)
    assert "nodeNaem" not in made["spec"]
    assert made["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


@pytest.mark.long
async def test_get_asks_for_tables_and_watches_them(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """The first event has the column definitions; later ones do not repeat them."""
    await create(session, pod("a"))
    _, listed = await ask(session, "GET", f"{PODS}?limit=500", accept=GET)
    assert listed["rows"][0]["cells"][0] == "a"
    version = listed["metadata"]["resourceVersion"]
    await create(session, pod("b"))
    await create(session, pod("c"))
    path = f"{PODS}?watch=true&resourceVersion={version}&timeoutSeconds=1"
    async with session.get(path, headers={"Accept": GET}) as answer:
        tables = [json.loads(line)["object"] for line in (await answer.text()).splitlines()]

    assert [each["rows"][0]["cells"][0] for each in tables] == ["b", "c"]
    assert [bool(each["columnDefinitions"]) for each in tables] == [True, False]
    none = await ask(session, "GET", f"{PODS}?includeObject=None", accept=GET)
    assert none[1]["rows"][0]["object"] is None


async def test_the_server_says_its_version_and_health(session: aiohttp.ClientSession) -> None:
    """Clients ask for both before anything else."""
    assert (await ask(session, "GET", "/version"))[1]["gitVersion"].startswith("v1.36")
    for path in ("/healthz", "/readyz", "/livez"):
        async with session.get(path) as answer:
            assert (answer.status, await answer.text()) == (200, "ok")


async def test_scale_is_a_subresource(session: aiohttp.ClientSession) -> None:
    """It can be read, patched and replaced; the Deployment follows."""
    deployments = "/apis/apps/v1/namespaces/team/deployments"
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    await create(session, {"metadata": {"name": "d"}, "spec": spec}, deployments)
    _, scale = await ask(session, "GET", f"{deployments}/d/scale")
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 1})
    body = {"spec": {"replicas": 3}}
    await ask(session, "PATCH", f"{deployments}/d/scale", body, content_type="application/merge-patch+json")
    assert (await ask(session, "GET", f"{deployments}/d"))[1]["spec"]["replicas"] == 3
    code, answer = await ask(session, "PUT", f"{deployments}/d/scale", {**scale, "spec": {"replicas": -1}})

    assert code == 422
    assert answer["message"] == (
        'Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0'
    )
