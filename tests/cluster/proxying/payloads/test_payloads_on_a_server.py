"""Payloads on a real API server: what it writes is read alike in both forms, and what is marked it stores as marked."""

from __future__ import annotations

import json
from typing import Final

import pytest

from backoff_ctrl.k8s.gate.creates.naming import BODY_HASH, CREATE_ID
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.charges.resources import resource_of
from backoff_ctrl.k8s.sidecar.http.payload import OURS, Payload, marked, read
from tests.cluster.proxying.payloads.twins import PROTOBUF, Raw, space_of, twins_of_objects, twins_of_refusals
from tests.cluster.quotas.charging import path_of, prepare
from tests.cluster.talking import JSON, Api
from tests.kit.charged import Case, cases

BUILT_IN: Final = [case for case in cases() if case.theme != "custom"]
POD: Final = {"containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}]}
IDS: Final = {CREATE_ID: "gate/12"}
COPIED: Final = {CREATE_ID: "copied/99", BODY_HASH: "copied", "own": "kept"}


@pytest.mark.long
async def test_every_object_is_charged_alike_in_both_forms(real_api: Api) -> None:
    """All manifests whose charges are known, created and read back: their footprints are equal, and so are refusals."""
    await prepare(real_api)
    space = await space_of(real_api)
    twins = await twins_of_objects(real_api, space, BUILT_IN)
    assert len(twins) == len(BUILT_IN) > 190
    for twin in twins:
        found = read(Payload(twin.protobuf, PROTOBUF.encode()))
        assert found is not None
        assert footprint(found, resource=twin.resource) == footprint(twin.json, resource=twin.resource), twin.shows
        known = {**found["metadata"], "resourceVersion": twin.json["metadata"]["resourceVersion"]}  # may have moved on
        assert known.items() <= twin.json["metadata"].items(), twin.shows
    for twin in await twins_of_refusals(real_api, space):
        assert {"metadata": {}, **(read(Payload(twin.protobuf, PROTOBUF.encode())) or {})} == twin.json


@pytest.mark.long
async def test_a_marked_protobuf_body_is_stored_with_its_mark(real_api: Api) -> None:
    """Of nearly every kind: the server merges the second metadata into the first, and all else stays as it was."""
    await prepare(real_api)
    space = await space_of(real_api)
    # A dry run gives a Job the selector of that Job, and a Service an address that is none.
    chosen = [case for case in BUILT_IN if case.manifest["kind"] not in {"Job", "Service"}]
    for number, case in enumerate(chosen):
        path = path_of(case.manifest, space)
        body = await _as_sent(real_api, case, space, path)
        after = marked(Payload(body, PROTOBUF.encode()), f"drawn-{number}", IDS)
        assert after is not None
        status, answer, _ = await Raw(real_api).call("POST", path, after)
        assert status == 201, (case.key, answer)
        stored = (await real_api.get(f"{path}/drawn-{number}")).json
        before, resource = read(Payload(body, PROTOBUF.encode())), resource_of(case.manifest)
        assert before is not None
        sent = before["metadata"]
        assert {**COPIED, **_given(case)}.items() <= sent["annotations"].items()
        kept = {key: value for key, value in sent["annotations"].items() if key not in OURS}
        assert stored["metadata"]["annotations"] == {**kept, CREATE_ID: "gate/12"}, case.key
        assert stored["metadata"].get("labels") == sent.get("labels"), case.key
        assert footprint(stored, resource=resource) == footprint(before, resource=resource), case.key


async def _as_sent(api: Api, case: Case, space: str, path: str) -> bytes:
    """Return a manifest as a typed client would send it: a dry run answers it in protobuf, with no version yet."""
    manifest = case.manifest
    meta = manifest.get("metadata") or {}
    noted = {**COPIED, **(meta.get("annotations") or {})}
    body = {**manifest, "metadata": {**meta, "name": "as-sent", "annotations": noted}}
    if manifest["kind"] == "Event":
        body["involvedObject"] = {**body["involvedObject"], "namespace": space}
    sent = json.dumps(body).encode()
    status, answer, form = await Raw(api).call("POST", f"{path}?dryRun=All", sent, sends="application/json")
    assert (status, form) == (201, PROTOBUF), (case.key, answer)
    return answer


def _given(case: Case) -> dict[str, str]:
    found: dict[str, str] = (case.manifest.get("metadata") or {}).get("annotations") or {}
    return found


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", json.dumps({"metadata": {"generateName": "a-", "annotations": COPIED}, "spec": POD})),
        ("application/json", '{"spec": %s}' % json.dumps(POD)),  # noqa: UP031 - braces
        (
            "application/yaml",
            f"# by hand\nmetadata:\n  generateName: a-\n  labels: {{x: 'yes'}}\nspec: {json.dumps(POD)}\n",
        ),
        ("application/yaml", "metadata: {generateName: a-, annotations: {own: kept}}\nspec: " + json.dumps(POD)),
    ],
)
async def test_a_marked_text_is_stored_with_its_mark(real_api: Api, content_type: str, body: str) -> None:
    """JSON and YAML: the server reads the marked text as it reads the creator's."""
    space = await space_of(real_api)
    after = marked(Payload(body.encode(), content_type.encode()), "drawn-name", IDS)
    assert after is not None
    path = f"/api/v1/namespaces/{space}/pods"
    status, answer, _ = await Raw(real_api).call("POST", path, after, sends=content_type)
    assert status == 201, answer
    stored = (await real_api.get(f"{path}/drawn-name")).json["metadata"]
    own = {"own": "kept"} if "kept" in body else {}
    assert stored["annotations"] == {**own, CREATE_ID: "gate/12"}
    assert stored.get("labels") == ({"x": "yes"} if "labels" in body else None)


async def test_go_merges_fields_that_come_twice(real_api: Api) -> None:
    """Why such a body is not read: the last one would be read here, and the server takes something of each."""
    space = await space_of(real_api)
    path = f"/api/v1/namespaces/{space}/configmaps"
    twice = b'{"metadata":{"name":"first","labels":{"a":"1"}},"metadata":{"generateName":"second-","labels":{"b":"2"}}}'
    status, answer, _ = await Raw(real_api).call(
        "POST", path, twice, sends="application/json", accept="application/json"
    )
    assert status == 201, answer
    made: JSON = json.loads(answer)["metadata"]
    assert (made["name"], made["generateName"], made["labels"]) == ("first", "second-", {"a": "1", "b": "2"})
