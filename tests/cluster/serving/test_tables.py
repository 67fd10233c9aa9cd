"""Tables and metadata-only answers, as kubectl and informers request them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.objects import JSON, config, made, of_core, pod, refusal
from tests.cluster.talking import Api

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
OURS = {"labelSelector": "ours"}
"""Every namespace has one more ConfigMap."""
META = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}


async def filled(api: Api, namespace: str) -> str:
    """Create two ConfigMaps, which ``OURS`` selects; returns the path of the collection."""
    path = of_core(namespace, "configmaps")
    made(await api.post(path, config("a", {"x": "1", "y": "2"}, labels={"ours": "yes"})))
    made(await api.post(path, config("b", labels={"ours": "yes"})))
    return path


def cells(table: JSON) -> list[list[Any]]:
    """The cells of each row, without the age."""
    return [row["cells"][:-1] for row in table["rows"]]


async def test_a_list_can_be_a_table(api: Api, namespace: str) -> None:
    """With column definitions, and for each object its cells and its metadata."""
    path = await filled(api, namespace)
    table = (await api.get(path, params=OURS, accept=TABLE)).json

    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"].keys() == {"resourceVersion"}
    columns = [(each["name"], each["type"], each["format"], each["priority"]) for each in table["columnDefinitions"]]
    assert columns == [("Name", "string", "name", 0), ("Data", "string", "", 0), ("Age", "string", "", 0)]
    assert cells(table) == [["a", 2], ["b", 0]]
    assert {field: table["rows"][0]["object"][field] for field in META} == META
    assert table["rows"][0]["object"]["metadata"] == (await api.get(f"{path}/a")).json["metadata"]


@pytest.mark.parametrize(
    ("include", "found"),
    [("None", None), ("Object", "ConfigMap"), ("Metadata", "PartialObjectMetadata"), ("", "PartialObjectMetadata")],
)
async def test_a_table_may_include_objects(api: Api, namespace: str, include: str, found: str | None) -> None:
    """`includeObject` is None, Metadata (the default) or Object."""
    path = await filled(api, namespace)
    table = (await api.get(f"{path}/a", params={"includeObject": include}, accept=TABLE)).json
    included = table["rows"][0].get("object")

    assert (included or {}).get("kind") == found
    assert ("data" in (included or {})) == (include == "Object")


async def test_writes_can_return_tables(api: Api, namespace: str) -> None:
    """A create and a patch return one row; a Status stays a Status."""
    path = of_core(namespace, "configmaps")
    created = (await api.call("POST", path, config("m", {"a": "b"}), accept=TABLE)).json
    missing = await api.get(f"{path}/none", accept=TABLE)
    deleted = (await api.call("DELETE", f"{path}/m", accept=TABLE)).json

    assert cells(created) == [["m", 1]]
    assert refusal(missing) == (404, "NotFound", 'configmaps "none" not found')
    assert (deleted["kind"], deleted["status"]) == ("Status", "Success")


@pytest.mark.long
async def test_a_watch_can_send_tables(api: Api, namespace: str) -> None:
    """One row per event; only the first event has column definitions."""
    path = await filled(api, namespace)
    reply = await api.get(path, params={"watch": "1", "timeoutSeconds": "5", **OURS}, accept=TABLE)
    events = [json.loads(line) for line in reply.text.splitlines()]

    assert [(each["type"], each["object"]["kind"]) for each in events] == [("ADDED", "Table")] * 2
    assert sorted(cells(each["object"])[0][0] for each in events) == ["a", "b"]
    assert [bool(each["object"]["columnDefinitions"]) for each in events] == [True, False]


async def test_pods_have_their_own_columns(api: Api, namespace: str) -> None:
    """Ready, status and restarts; address, node and readiness gates in the wide form."""
    path = of_core(namespace, "pods")
    made(await api.post(path, pod("p")))
    table = (await api.get(path, accept=TABLE)).json
    columns = [(each["name"], each["priority"]) for each in table["columnDefinitions"]]

    assert columns == [
        ("Name", 0), ("Ready", 0), ("Status", 0), ("Restarts", 0), ("Age", 0), ("IP", 1), ("Node", 1),
        ("Nominated Node", 1), ("Readiness Gates", 1),
    ]  # fmt: skip
    found = table["rows"][0]["cells"]
    assert [*found[:4], *found[5:]] == ["p", "0/1", "Pending", "0", "<none>", "<none>", "<none>", "<none>"]


async def test_an_object_can_be_reduced_to_its_metadata(api: Api, namespace: str) -> None:
    """PartialObjectMetadata, for reads and writes."""
    path = await filled(api, namespace)
    whole = (await api.get(f"{path}/a")).json
    alone = (await api.get(f"{path}/a", accept=PARTIAL)).json
    written = (await api.call("POST", path, config("c", {"k": "v"}), accept=PARTIAL)).json

    assert alone == {**META, "metadata": whole["metadata"]}
    assert written.keys() == {"kind", "apiVersion", "metadata"}


async def test_a_list_can_be_reduced_to_metadata(api: Api, namespace: str) -> None:
    """PartialObjectMetadataList; its items give their kind."""
    path = await filled(api, namespace)
    listed = (await api.get(path, params=OURS, accept=PARTIAL_LIST)).json

    assert listed["kind"] == "PartialObjectMetadataList"
    assert [{**each, "metadata": each["metadata"]["name"]} for each in listed["items"]] == [
        {**META, "metadata": "a"},
        {**META, "metadata": "b"},
    ]


@pytest.mark.long
async def test_a_watch_can_send_metadata_only(api: Api, namespace: str) -> None:
    """As metadata informers request it."""
    path = await filled(api, namespace)
    reply = await api.get(path, params={"watch": "1", "timeoutSeconds": "5", **OURS}, accept=PARTIAL)
    events = [json.loads(line) for line in reply.text.splitlines()]

    assert [(each["type"], each["object"]["kind"]) for each in events] == [("ADDED", "PartialObjectMetadata")] * 2
    assert all("data" not in each["object"] for each in events)
