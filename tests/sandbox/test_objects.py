"""Objects: names, versions, conflicts, the four kinds of patch, and how Kubernetes words its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sandbox.talking import APPLY, JSON_PATCH, MERGE, PODS, STRATEGIC, TEAM, ask, create, pod, refused

if TYPE_CHECKING:
    import aiohttp

    from tests.sandbox.talking import JSON

MAPS = f"{TEAM}/configmaps"
RAY = {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
RAYS = "/apis/ray.io/v1/namespaces/team/rayclusters"


def config(name: str = "m", **data: str) -> JSON:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_a_created_object_has_what_the_server_gives(session: aiohttp.ClientSession) -> None:
    """uid, version, times, defaults, a status, canonical quantities."""
    made = await create(session, pod(requests={"cpu": "1000m"}, limits={"memory": "1024Mi"}))
    metadata = made["metadata"]

    assert metadata["name"].startswith("p-")
    assert (metadata["namespace"], metadata["generation"]) == ("team", 1)
    assert len(metadata["uid"]) == 36
    assert int(metadata["resourceVersion"]) > 0
    assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"memory": "1Gi"},
    }


async def test_what_the_client_says_of_the_servers_fields_is_ignored(session: aiohttp.ClientSession) -> None:
    """Status, uid and times of a create."""
    made = await create(
        session, {**pod("x", uid="mine", creationTimestamp="1999-01-01T00:00:00Z"), "status": {"phase": "Succeeded"}}
    )

    assert made["status"]["phase"] == "Pending"
    assert made["metadata"]["uid"] != "mine"
    assert not made["metadata"]["creationTimestamp"].startswith("1999")


ERRORS = [
    pytest.param("GET", f"{PODS}/none", None, 404, 'pods "none" not found', id="not-found"),
    pytest.param(
        "POST", "/api/v1/namespaces/none/pods", pod("x"), 404, 'namespaces "none" not found', id="no-namespace"
    ),
    pytest.param(
        "GET", f"{TEAM}/unknowns", None, 404, "the server could not find the requested resource", id="no-kind"
    ),
    pytest.param(
        "PUT", PODS, pod("x"), 405, "the server does not allow this method on the requested resource", id="405"
    ),
    pytest.param(
        "POST",
        "/api/v1/pods",
        pod("x"),
        405,
        "the server does not allow this method on the requested resource",
        id="create-in-all-namespaces",
    ),
    pytest.param(
        "POST",
        PODS,
        {**pod("x"), "apiVersion": "v2"},
        400,
        'Pod in version "v2" cannot be handled as a Pod: no kind "Pod" is registered for version "v2" in scheme',
        id="version",
    ),
    pytest.param(
        "POST",
        PODS,
        pod("x", namespace="other"),
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
        id="namespace",
    ),
    pytest.param(
        "POST",
        PODS,
        pod("x", resourceVersion="5"),
        500,
        "resourceVersion should not be set on objects to be created",
        id="create-with-a-version",
    ),
    pytest.param(
        "POST",
        PODS,
        pod("x", requests={"cpu": "much"}),
        400,
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        id="quantity",
    ),
    pytest.param(
        "POST",
        PODS,
        {"metadata": {"name": "x"}},
        422,
        'Pod "x" is invalid: spec.containers: Required value',
        id="no-containers",
    ),
    pytest.param(
        "POST",
        PODS,
        {"metadata": {}, "spec": pod("x")["spec"]},
        422,
        'Pod "" is invalid: metadata.name: Required value: name or generateName is required',
        id="no-name",
    ),
    pytest.param("POST", PODS, pod("Big"), 422, "a lowercase RFC 1123 subdomain must consist of", id="bad-name"),
    pytest.param(
        "POST",
        PODS,
        pod("x", requests={"cpu": "2"}, limits={"cpu": "1"}),
        422,
        'Pod "x" is invalid: spec.containers[0].resources.requests: Invalid value: "2": must be less than or '
        "equal to cpu limit of 1",
        id="request-above-limit",
    ),
    pytest.param(
        "POST",
        PODS,
        pod("x", requests={"nvidia.com/gpu": "1"}),
        422,
        "Limit must be set for non overcommitable resources",
        id="extended-without-limit",
    ),
    pytest.param("POST", f"{PODS}?dryRun=Some", pod("x"), 422, 'supported values: "All"', id="dry-run"),
    pytest.param("GET", f"{PODS}?labelSelector=a%3D%3D%3Db", None, 400, "unable to parse requirement", id="selector"),
    pytest.param("GET", f"{PODS}?fieldSelector=spec.x%3Da", None, 400, "field label not supported: spec.x", id="field"),
    pytest.param("GET", f"{PODS}?limit=x", None, 400, "invalid syntax", id="limit"),
    pytest.param("GET", f"{PODS}?continue=x", None, 400, "continue key is not valid", id="continue"),
    pytest.param("GET", f"{PODS}?resourceVersion=999999", None, 504, "Too large resource version: 999999", id="future"),
]


@pytest.mark.parametrize(("method", "path", "body", "code", "text"), ERRORS)
async def test_a_mistake_is_answered_as_kubernetes_words_it(
    session: aiohttp.ClientSession, method: str, path: str, body: JSON | None, code: int, text: str
) -> None:
    """A Status with the right code and the sentence."""
    found, answer = await ask(session, method, path, body)

    assert (found, answer["kind"], answer["status"], answer["code"]) == (code, "Status", "Failure", code)
    assert text in answer["message"]


async def test_an_old_version_is_a_conflict(session: aiohttp.ClientSession) -> None:
    """Two writers, one wins."""
    made = await create(session, config(a="1"), MAPS)
    assert (await ask(session, "PUT", f"{MAPS}/m", {**made, "data": {"a": "2"}}))[0] == 200
    code, answer = await ask(session, "PUT", f"{MAPS}/m", {**made, "data": {"a": "3"}})

    assert (code, answer["reason"]) == (409, "Conflict")
    assert answer["message"] == (
        'Operation cannot be fulfilled on configmaps "m": the object has been modified; please apply your changes to '
        "the latest version and try again"
    )


async def test_a_write_without_change_makes_no_version(session: aiohttp.ClientSession) -> None:
    """And no event."""
    made = await create(session, config(a="1"), MAPS)
    _, again = await ask(session, "PUT", f"{MAPS}/m", made)

    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_status_and_spec_are_written_apart(session: aiohttp.ClientSession) -> None:
    """Each leaves the other alone; a change of the spec raises the generation."""
    await create(session, {**RAY, "metadata": {"name": "r"}, "spec": {"a": 1}}, RAYS)
    await ask(session, "PATCH", f"{RAYS}/r/status", {"spec": {"a": 9}, "status": {"s": 1}}, content_type=MERGE)
    _, found = await ask(session, "PATCH", f"{RAYS}/r", {"spec": {"a": 2}, "status": {"s": 9}}, content_type=MERGE)

    assert (found["spec"], found["status"], found["metadata"]["generation"]) == ({"a": 2}, {"s": 1}, 2)


async def test_a_pods_spec_stays_as_it_was_made(session: aiohttp.ClientSession) -> None:
    """But for images and few other fields."""
    made = await create(session, pod("x"))
    made["spec"]["containers"][0]["image"] = "other"
    assert (await ask(session, "PUT", f"{PODS}/x", made))[0] == 200
    code, answer = await ask(session, "PATCH", f"{PODS}/x", {"spec": {"nodeName": "n"}}, content_type=MERGE)

    assert (code, answer["reason"]) == (422, "Invalid")
    assert 'Pod "x" is invalid: spec: Forbidden: pod updates may not change fields other than' in answer["message"]


async def test_a_merge_patch_removes_with_null(session: aiohttp.ClientSession) -> None:
    """RFC 7386."""
    await create(session, config(a="1", b="2"), MAPS)
    _, found = await ask(session, "PATCH", f"{MAPS}/m", {"data": {"a": None, "c": "3"}}, content_type=MERGE)

    assert found["data"] == {"b": "2", "c": "3"}


NOTES = "/metadata/annotations"


@pytest.mark.parametrize(
    ("operations", "code", "notes"),
    [
        (
            [{"op": "test", "path": f"{NOTES}/a", "value": "1"}, {"op": "replace", "path": f"{NOTES}/a", "value": "2"}],
            200,
            {"a": "2", "x/y": "0"},
        ),
        ([{"op": "test", "path": f"{NOTES}/a", "value": "9"}], 422, None),
        (
            [{"op": "remove", "path": f"{NOTES}/x~1y"}, {"op": "add", "path": f"{NOTES}/b", "value": "2"}],
            200,
            {"a": "1", "b": "2"},
        ),
        (
            [
                {"op": "copy", "from": f"{NOTES}/a", "path": f"{NOTES}/b"},
                {"op": "move", "from": f"{NOTES}/b", "path": f"{NOTES}/c"},
            ],
            200,
            {"a": "1", "x/y": "0", "c": "1"},
        ),
        ([{"op": "add", "path": f"{NOTES}/b", "value": "2"}, {"op": "remove", "path": f"{NOTES}/none"}], 422, None),
        ([{"op": "jump", "path": NOTES}], 422, None),
        ({"op": "remove"}, 400, None),
        ([{"op": "remove", "path": 7}], 400, None),
    ],
)
async def test_a_json_patch_does_all_or_nothing(
    session: aiohttp.ClientSession, operations: object, code: int, notes: JSON | None
) -> None:
    """RFC 6902."""
    before = {"a": "1", "x/y": "0"}
    await create(session, {"metadata": {"name": "m", "annotations": before}}, MAPS)
    found, answer = await ask(session, "PATCH", f"{MAPS}/m", operations, content_type=JSON_PATCH)

    assert found == code, answer
    _, after = await ask(session, "GET", f"{MAPS}/m")
    assert after["metadata"]["annotations"] == (before if notes is None else notes)


async def test_a_strategic_patch_merges_lists_by_key(session: aiohttp.ClientSession) -> None:
    """Conditions by type, containers by name; directives delete and replace."""
    await create(session, pod("x"))
    for conditions in (
        [{"type": "A", "status": "True"}],
        [{"type": "B", "status": "True"}],
        [{"type": "A", "status": "False"}],
    ):
        await ask(session, "PATCH", f"{PODS}/x/status", {"status": {"conditions": conditions}}, content_type=STRATEGIC)
    gone = {"status": {"conditions": [{"type": "B", "$patch": "delete"}]}}
    code, found = await ask(session, "PATCH", f"{PODS}/x/status", gone, content_type=STRATEGIC)

    assert code == 200
    assert found["status"]["conditions"] == [{"type": "A", "status": "False"}]
    image = {"spec": {"containers": [{"name": "main", "image": "busybox:2"}]}}
    _, found = await ask(session, "PATCH", f"{PODS}/x", image, content_type=STRATEGIC)
    assert found["spec"]["containers"][0]["image"] == "busybox:2"
    assert found["spec"]["containers"][0]["terminationMessagePolicy"] == "File"


async def test_a_custom_resource_knows_no_strategic_patch(session: aiohttp.ClientSession) -> None:
    """As on a real server: 415."""
    await create(session, {**RAY, "metadata": {"name": "r"}}, RAYS)

    code, answer = await ask(session, "PATCH", f"{RAYS}/r", {}, content_type=STRATEGIC)
    assert (code, answer["reason"]) == (415, "UnsupportedMediaType")


async def test_apply_creates_then_owns_its_fields(session: aiohttp.ClientSession) -> None:
    """What is no longer applied goes; what another manager applies differently is a conflict, unless forced."""
    path = f"{MAPS}/m?fieldManager=one"
    code, made = await ask(session, "PATCH", path, config(a="1", b="2"), content_type=APPLY)
    assert code == 201
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("one", "Apply")
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}, "f:b": {}}}

    code, changed = await ask(session, "PATCH", path, config(a="1"), content_type=APPLY)
    assert (code, changed["data"]) == (200, {"a": "1"})
    code, answer = await ask(session, "PATCH", f"{MAPS}/m?fieldManager=two", config(a="9"), content_type=APPLY)
    assert code == 409
    assert answer["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    assert answer["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    ]
    code, forced = await ask(
        session, "PATCH", f"{MAPS}/m?fieldManager=two&force=true", config(a="9"), content_type=APPLY
    )
    assert (code, forced["data"]) == (200, {"a": "9"})


async def test_apply_merges_lists_by_key_and_lets_items_go(session: aiohttp.ClientSession) -> None:
    """A container that is applied no more leaves a Deployment's template."""
    path = "/apis/apps/v1/namespaces/team/deployments/d?fieldManager=one"

    def deployment(*names: str) -> JSON:
        containers = [{"name": name, "image": "i"} for name in names]
        labels = {"app": "d"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}

    assert (await ask(session, "PATCH", path, deployment("a", "b"), content_type=APPLY))[0] == 201
    code, found = await ask(session, "PATCH", path, deployment("b", "c"), content_type=APPLY)

    assert code == 200
    assert [each["name"] for each in found["spec"]["template"]["spec"]["containers"]] == ["b", "c"]


async def test_a_dry_run_changes_nothing(session: aiohttp.ClientSession) -> None:
    """Of an update, a patch, a delete."""
    made = await create(session, config(a="1"), MAPS)
    await ask(session, "PUT", f"{MAPS}/m?dryRun=All", {**made, "data": {}})
    _, told = await ask(session, "PATCH", f"{MAPS}/m?dryRun=All", {"data": {"a": "2"}}, content_type=MERGE)
    await ask(session, "DELETE", f"{MAPS}/m?dryRun=All")

    assert told["data"] == {"a": "2"}
    assert (await ask(session, "GET", f"{MAPS}/m"))[1] == made


async def test_secrets_are_stored_encoded(session: aiohttp.ClientSession) -> None:
    """``stringData`` becomes ``data``."""
    made = await create(session, {"metadata": {"name": "s"}, "stringData": {"a": "b"}}, f"{TEAM}/secrets")

    assert (made["data"], made["type"], "stringData" in made) == ({"a": "Yg=="}, "Opaque", False)


async def test_a_claim_grows_only_when_bound_and_allowed(session: aiohttp.ClientSession) -> None:
    """422 while it is pending, 403 where its class does not allow it."""
    claim = {
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    claims = f"{TEAM}/persistentvolumeclaims"
    await create(session, claim, claims)
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    code, answer = await ask(session, "PATCH", f"{claims}/c", larger, content_type=MERGE)
    assert code == 422
    assert "spec: Forbidden: spec is immutable after creation except resources.requests" in answer["message"]

    await ask(session, "PATCH", f"{claims}/c/status", {"status": {"phase": "Bound"}}, content_type=MERGE)
    code, answer = await ask(session, "PATCH", f"{claims}/c", larger, content_type=MERGE)
    assert code == 403
    assert answer["message"] == (
        'persistentvolumeclaims "c" is forbidden: only dynamically provisioned pvc can be resized and the storageclass '
        "that provisions the pvc must support resize"
    )


async def test_definitions_bring_kinds_and_take_them(session: aiohttp.ClientSession) -> None:
    """Served as soon as the definition is stored, gone with it."""
    definition = {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}],
        },
    }
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    things = "/apis/example.com/v1/namespaces/team/things"
    assert (await ask(session, "GET", things)) == (404, {"text": "404 page not found\n"})
    made = await create(session, definition, definitions)
    assert [each["type"] for each in made["status"]["conditions"]] == ["NamesAccepted", "Established"]

    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"a": 1}}
    await create(session, thing, things)
    _, listed = await ask(session, "GET", "/apis/example.com/v1")
    assert [each["name"] for each in listed["resources"]] == ["things", "things/status"]
    await ask(session, "DELETE", f"{definitions}/things.example.com")
    assert (await ask(session, "GET", things))[0] == 404
    await create(session, definition, definitions)
    assert (await ask(session, "GET", things))[1]["items"] == []
    wrong = {**definition, "metadata": {"name": "other"}}
    code, answer = await ask(session, "POST", definitions, wrong)
    assert (code, "must be spec.names.plural" in answer["message"]) == (422, True)


async def test_limit_ranges_fill_in_what_is_missing(session: aiohttp.ClientSession) -> None:
    """Before quota and validation; the annotation says so."""
    limits = [{"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "250m", "memory": "64Mi"}}]
    await create(session, {"metadata": {"name": "l"}, "spec": {"limits": limits}}, f"{TEAM}/limitranges")
    made = await create(session, pod("x"))

    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "250m", "memory": "64Mi"},
        "limits": {"cpu": "500m"},
    }
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container main; cpu limit for container main"
    )


LIMITS = [
    pytest.param(
        {"type": "Container", "max": {"cpu": "1"}},
        {"limits": {"cpu": "2"}},
        "maximum cpu usage per Container is 1, but limit is 2",
        id="max",
    ),
    pytest.param(
        {"type": "Container", "min": {"memory": "64Mi"}},
        {"requests": {"memory": "1Mi"}},
        "minimum memory usage per Container is 64Mi, but request is 1Mi",
        id="min",
    ),
    pytest.param(
        {"type": "Pod", "min": {"cpu": "1"}},
        {},
        "minimum cpu usage per Pod is 1.  No request is specified",
        id="pod-min",
    ),
    pytest.param(
        {"type": "Pod", "max": {"cpu": "1"}}, {}, "maximum cpu usage per Pod is 1.  No limit is specified", id="pod-max"
    ),
    pytest.param(
        {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
        {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
        "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        id="ratio",
    ),
]


@pytest.mark.parametrize(("limit", "resources", "text"), LIMITS)
async def test_limit_ranges_refuse_what_is_out_of_bounds(
    session: aiohttp.ClientSession, limit: JSON, resources: JSON, text: str
) -> None:
    """With the sentences of the plugin."""
    await create(session, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}, f"{TEAM}/limitranges")

    assert await refused(session, pod("x", **resources)) == f'pods "x" is forbidden: {text}'


async def test_limit_ranges_bound_claims(session: aiohttp.ClientSession) -> None:
    """The one place where a request alone is held against a maximum."""
    limit = {"type": "PersistentVolumeClaim", "max": {"storage": "16"}}
    await create(session, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}, f"{TEAM}/limitranges")
    claim = {
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "17"}}},
    }

    assert await refused(session, claim, f"{TEAM}/persistentvolumeclaims") == (
        'persistentvolumeclaims "c" is forbidden: maximum storage usage per PersistentVolumeClaim is 16, but request '
        "is 17"
    )
