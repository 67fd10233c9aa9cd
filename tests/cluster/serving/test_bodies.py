"""Bad requests: the answer to malformed bodies, unknown paths and invalid options."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.objects import JSON, SUBDOMAIN_TEXT, causes, config, made, of_core, pod, refusal
from tests.cluster.of_version import in_words_of
from tests.cluster.talking import MERGE, Api

NO_PATH = (404, "NotFound", "the server could not find the requested resource")
NO_METHOD = (405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
INVALID = "FieldValueInvalid"
QUALIFIED_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
CANNOT = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
UNMARSHAL = "json: cannot unmarshal {} into Go struct field {} of type"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/{namespace}/unknowns", "/api/v1/unknowns", "/apis/batch/v7/jobs",
        "/api/v1/namespaces/{namespace}/pods/p/unknown", "/api/v1/namespaces/{namespace}/pods/p/log/more",
        "/api/v1/namespaces/{namespace}/configmaps/m/status", "/api/v1/pods/p", "/apis/batch/v1/pods", "/api/v7/pods",
        "/api/v1/namespaces/{namespace}/nodes",
    ],
)  # fmt: skip
async def test_an_unknown_path_in_a_served_group_gets_a_status(api: Api, namespace: str, path: str) -> None:
    """404 NotFound, without a name."""
    reply = await api.get(path.format(namespace=namespace))

    assert refusal(reply) == NO_PATH
    assert reply.json["details"] == {}


@pytest.mark.parametrize("path", ["/foo", "/apis/no.such.group/v1/things", "/apis/no.such.group"])
async def test_an_unknown_path_elsewhere_gets_plain_text(api: Api, path: str) -> None:
    """404 without a Status."""
    reply = await api.get(path)

    assert (reply.status, reply.text) == (404, "404 page not found\n")
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "{core}/pods"), ("PATCH", "{core}/pods"), ("POST", "{core}/pods/p"), ("POST", "/api/v1/pods"),
        ("PUT", "/api/v1/pods"), ("DELETE", "/api/v1/namespaces"), ("POST", "{core}/pods/p/status"),
        ("DELETE", "{core}/pods/p/status"), ("POST", "{core}/pods/p/log"), ("OPTIONS", "{core}/pods"),
    ],
)  # fmt: skip
async def test_a_method_that_a_path_does_not_support_is_refused(
    api: Api, namespace: str, method: str, path: str
) -> None:
    """405 MethodNotAllowed."""
    body = pod("p") if method in {"PUT", "POST"} else None
    reply = await api.call(method, path.format(core=f"/api/v1/namespaces/{namespace}"), body)

    assert refusal(reply) == NO_METHOD


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", ""), (b"{nope", ""), (b'{"a":1,}', ""), (b'{"a":"\\q"}', ""), (b"\xff{}", ""), (b"[]", ""),
        (b'{"a":' + b"[" * 20_000, ""), (b'{"kind":7}', ""), (pod("x"), ""),
        ({"kind": "ConfigMap", "apiVersion": "v2"}, ('ConfigMap in version "v2" cannot be handled as a ConfigMap: no '
         'kind "ConfigMap" is registered for version "v2" in scheme "pkg/runtime/scheme.go:111"')),
        ({"data": {"a": 1}}, f"{CANNOT}{UNMARSHAL.format('number', 'ConfigMap.data')} string"),
        ({"data": []}, f"{CANNOT}{UNMARSHAL.format('array', 'ConfigMap.data')} map[string]string"),
        ({"metadata": {"labels": {"a": True}}},
         f"{CANNOT}json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string"),
        ({"metadata": 7}, (f"{CANNOT}json: cannot unmarshal number into Go struct field ConfigMap.metadata of type "
                          "v1.ObjectMeta")),
    ],
    ids=["empty", "no-json", "comma", "escape", "no-text", "array", "deep", "kind-of-a-number", "another-kind",
         "another-version", "value-of-a-number", "data-of-an-array", "label-of-a-bool", "metadata-of-a-number"],
)  # fmt: skip
async def test_a_malformed_body_is_refused(api: Api, namespace: str, body: object, told: str) -> None:
    """400 BadRequest; for a value of a wrong type with Go's message."""
    code, reason, message = refusal(await api.post(of_core(namespace, "configmaps"), body))

    assert (code, reason) == (400, "BadRequest")
    assert message == in_words_of(api.server, told) or not told


async def test_the_data_of_a_secret_must_be_base64(api: Api, namespace: str) -> None:
    """400."""
    reply = await api.post(of_core(namespace, "secrets"), {"metadata": {"name": "s"}, "data": {"a": "%%"}})

    assert refusal(reply)[:2] == (400, "BadRequest")


@pytest.mark.parametrize("form", ["text/plain", "application/x-www-form-urlencoded", "application/xml"])
async def test_a_body_of_an_unsupported_media_type_is_refused(api: Api, namespace: str, form: str) -> None:
    """415 UnsupportedMediaType with the supported types."""
    reply = await api.call("POST", of_core(namespace, "configmaps"), b"{}", content_type=form)

    code, reason, message = refusal(reply)
    assert (code, reason) == (415, "UnsupportedMediaType")
    assert message.startswith(
        "the body of the request was in an unknown format - accepted media types include: application/json, "
        "application/yaml, application/vnd.kubernetes.protobuf"
    )


async def test_yaml_bodies_are_read_like_json(api: Api, namespace: str) -> None:
    """`application/yaml`; a date stays a string."""
    body = b"metadata: {name: m, annotations: {day: 2026-01-01}}\ndata: {a: b}\n"
    reply = await api.call("POST", of_core(namespace, "configmaps"), body, content_type="application/yaml")

    assert made(reply)["metadata"]["annotations"] == {"day": "2026-01-01"}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1_048_577, (422, "Invalid", 'ConfigMap "m" is invalid: []: Too long: may not be more than 1048576 bytes')),
        (3_200_000, (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")),
    ],
    ids=["above-1-MiB", "above-3-MiB"],
)
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_body_that_is_too_large_is_refused(
    api: Api, namespace: str, size: int, expected: tuple[int, str, str]
) -> None:
    """A ConfigMap holds at most 1 MiB, a request at most 3 MiB."""
    path = of_core(namespace, "configmaps")

    assert refusal(await api.post(path, config("m", {"a": "x" * size}))) == expected
    made(await api.post(path, config("m", {"a": "x" * 1_000_000})))


META: list[Any] = [
    pytest.param({"labels": {"a b": "x"}},
                 [(INVALID, "metadata.labels", f'Invalid value: "a b": name part {QUALIFIED_TEXT}')],
                 id="label-key"),
    pytest.param({"labels": {"a": "c d"}}, [(INVALID, "metadata.labels", f'Invalid value: "c d": {VALUE_TEXT}')],
                 id="label-value"),
    pytest.param({"labels": {"a": "x" * 64}},
                 [(INVALID, "metadata.labels", f'Invalid value: "{"x" * 64}": must be no more than 63 bytes')],
                 id="long-label"),
    pytest.param({"labels": {"A_b/c": "x"}},
                 [(INVALID, "metadata.labels", f'Invalid value: "A_b/c": prefix part {SUBDOMAIN_TEXT}')], id="prefix"),
    pytest.param({"labels": {"/x": "y"}},
                 [(INVALID, "metadata.labels", 'Invalid value: "/x": prefix part must be non-empty')], id="no-prefix"),
    pytest.param({"labels": {"a/b/c": "z"}}, [(INVALID, "metadata.labels",
                 (f'Invalid value: "a/b/c": a valid label key {QUALIFIED_TEXT} with an optional DNS subdomain prefix '
                  "and "
                 "'/' (e.g. 'example.com/MyName')"))], id="two-slashes"),
    pytest.param({"annotations": {"a b": "any text"}},
                 [(INVALID, "metadata.annotations", f'Invalid value: "a b": name part {QUALIFIED_TEXT}')],
                 id="annotation"),
    pytest.param({"finalizers": ["nope"]}, [(INVALID, "metadata.finalizers[0]",
                 'Invalid value: "nope": name is neither a standard finalizer name nor is it fully qualified')],
                 id="finalizer"),
    pytest.param({"finalizers": ["a b/c"]},
                 [(INVALID, "metadata.finalizers", f'Invalid value: "a b/c": prefix part {SUBDOMAIN_TEXT}')],
                 id="finalizer-prefix"),
]  # fmt: skip


@pytest.mark.parametrize(("metadata", "found"), META)
async def test_invalid_metadata_is_refused(
    api: Api, namespace: str, metadata: JSON, found: list[tuple[str, str, str]]
) -> None:
    """422 with a cause for each violated rule, on create and on patch."""
    path = of_core(namespace, "configmaps")

    expected = [(reason, field, in_words_of(api.server, text)) for reason, field, text in found]
    assert causes(await api.post(path, config("m", **metadata))) == expected
    made(await api.post(path, config("m")))
    assert refusal(await api.patch(f"{path}/m", {"metadata": metadata}, MERGE))[:2] == (422, "Invalid")


async def test_unknown_fields_are_dropped_unless_validation_is_strict(api: Api, namespace: str) -> None:
    """With `fieldValidation=Strict`, unknown fields are refused with 400."""
    path = of_core(namespace, "configmaps")
    body = {**config("m"), "foo": 1}

    reply = await api.post(path, body, params={"fieldValidation": "Strict"})
    assert refusal(reply) == (400, "BadRequest", f'{CANNOT}strict decoding error: unknown field "foo"')
    assert "foo" not in made(await api.post(path, body))


async def test_a_create_can_be_a_dry_run(api: Api, namespace: str) -> None:
    """`dryRun=All` validates, names and answers like a create, with a uid but no version; a taken name is a 409."""
    path = of_core(namespace, "configmaps")
    tried = await api.post(path, config(), params={"dryRun": "All"})

    assert tried.status == 201
    assert tried.json["metadata"]["name"].startswith("m-")
    assert tried.json["metadata"]["uid"]
    assert "resourceVersion" not in tried.json["metadata"]
    assert (await api.get(path + "/" + tried.json["metadata"]["name"])).status == 404
    made(await api.post(path, config("m")))
    taken = (409, "AlreadyExists", 'configmaps "m" already exists')
    assert refusal(await api.post(path, config("m"), params={"dryRun": "All"})) == taken
