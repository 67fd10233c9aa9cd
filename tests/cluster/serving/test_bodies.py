"""Bad requests: the answer to malformed bodies, unknown paths and invalid options."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.objects import JSON, SUBDOMAIN_TEXT, causes, config, made, of_core, pod, refusal
from tests.cluster.of_version import in_words_of
from tests.cluster.talking import MERGE, Api
from tests.kit.yaml_scalars import KEYS, SCALARS, text_of

NO_PATH = (404, "NotFound", "the server could not find the requested resource")
NO_METHOD = (405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
INVALID = "FieldValueInvalid"
PROTOBUF = "application/vnd.kubernetes.protobuf"
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


async def test_plain_scalars_in_yaml_are_those_of_kubernetes(api: Api, namespace: str) -> None:
    """`y` and `n` are booleans, `1e3` is a number; `1:30` and a date are texts. What is no text is no value here."""
    path = of_core(namespace, "configmaps")
    for number, scalar in enumerate(SCALARS):
        body = f"metadata: {{name: m-{number}}}\ndata: {{a: {scalar}}}\n".encode()
        reply = await api.call("POST", path, body, content_type="application/yaml")
        value = text_of(scalar)
        if isinstance(value, str):
            assert made(reply)["data"] == {"a": value}, scalar
        elif value is None:
            assert made(reply)["data"] in ({"a": ""}, {}), scalar
        else:
            assert refusal(reply)[:2] == (400, "BadRequest"), (scalar, reply.text)


async def test_a_boolean_in_yaml_may_be_written_y(api: Api, namespace: str) -> None:
    """`immutable: y`; as a key it is the text `true`."""
    path = of_core(namespace, "configmaps")
    for number, (word, truth) in enumerate((("y", True), ("N", False), ("on", True))):
        body = f"metadata: {{name: m-{number}}}\nimmutable: {word}\n".encode()
        assert made(await api.call("POST", path, body, content_type="application/yaml"))["immutable"] is truth
    keys = ", ".join(f"{key}: a" for key in KEYS if KEYS[key] != "true")
    body = f"metadata: {{name: keys}}\ndata: {{{keys}}}\n".encode()
    stored = made(await api.call("POST", path, body, content_type="application/yaml"))["data"]
    assert stored == dict.fromkeys((key for key in KEYS.values() if key != "true"), "a")
    body = b"metadata: {name: yes-key}\ndata: {y: a}\n"
    assert made(await api.call("POST", path, body, content_type="application/yaml"))["data"] == {"true": "a"}
    applied = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\nimmutable: n\n"
    reply = await api.call(
        "PATCH", f"{path}/applied?fieldManager=m", applied, content_type="application/apply-patch+yaml"
    )
    assert made(reply)["immutable"] is False


def message(*fields: tuple[int, str | bytes | int]) -> bytes:
    """Encode a protobuf message of few and small numbers."""
    return b"".join(
        bytes([number << 3, value])
        if isinstance(value, int)
        else _long(number, value.encode() if isinstance(value, str) else value)
        for number, value in fields
    )


def envelope(version: str, kind: str, *fields: tuple[int, bytes]) -> bytes:
    return (
        b"k8s\x00"
        + message((1, message((1, version), (2, kind))))
        + _long(2, b"".join(_long(number, data) for number, data in fields))
    )


def _long(number: int, data: bytes) -> bytes:
    size, written = len(data), bytearray([number << 3 | 2])
    while size > 127:
        written.append(size & 127 | 128)
        size >>= 7
    return bytes(written) + bytes([size]) + data


def _entry(key: str, value: str) -> bytes:
    return message((1, key), (2, value))


POD_SPEC = message((2, message((1, "c"), (2, "busybox:1"))), (3, "Never"))
TEMPLATE = message((1, message((11, _entry("app", "a")))), (2, message((2, message((1, "c"), (2, "busybox:1"))))))
UNNAMED = message((1, ""), (11, _entry("app", "a")))
NAMED = message((1, "merged"), (12, _entry("by", "proxy")))
TWICE = {
    "services": ("v1", "Service", (2, message((1, message((1, "http"), (3, 80))), (4, "ClusterIP")))),
    "secrets": ("v1", "Secret", (2, _entry("key", "value"))),
    "deployments.apps": (
        "apps/v1", "Deployment", (2, message((1, 1), (2, message((1, _entry("app", "a")))), (3, TEMPLATE)))
    ),
    "jobs.batch": ("batch/v1", "Job", (2, message((6, message((2, POD_SPEC)))))),
}  # fmt: skip


@pytest.mark.parametrize("resource", TWICE)
async def test_a_message_that_occurs_twice_in_protobuf_is_merged(api: Api, namespace: str, resource: str) -> None:
    """The sidecar marks a body so: the second metadata gives the name, and adds to what the first says."""
    version, kind, spec = TWICE[resource]
    body = envelope(version, kind, (1, UNNAMED), spec, (1, NAMED))
    plural, _, group = resource.partition(".")
    base = f"/apis/{version}/namespaces/{namespace}/{plural}" if group else of_core(namespace, plural)
    reply = await api.call("POST", base, body, content_type=PROTOBUF)
    metadata = made(reply)["metadata"]
    assert (metadata["name"], metadata["labels"]["app"], metadata["annotations"]["by"]) == ("merged", "a", "proxy")


async def test_all_messages_of_a_body_are_merged(api: Api, namespace: str) -> None:
    """Of three specs the lists are added, the maps united, and of a text the last counts; inner messages too."""
    first = message((1, message((1, "http"), (3, 80))), (2, _entry("app", "a")), (4, "NodePort"), (7, "ClientIP"))
    second = message((1, message((1, "dns"), (3, 53))), (2, _entry("app", "b")), (4, "ClusterIP"))
    third = message((2, _entry("tier", "c")), (14, message((1, message((1, 60))))))
    body = envelope("v1", "Service", (1, message((1, "s"))), (2, first), (2, second), (2, third))
    reply = await api.call(
        "POST", of_core(namespace, "services"), body, content_type="application/vnd.kubernetes.protobuf"
    )
    spec = made(reply)["spec"]
    assert [port["name"] for port in spec["ports"]] == ["http", "dns"]
    assert spec["selector"] == {"app": "b", "tier": "c"}
    assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "ClientIP")
    assert spec["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 60}}


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
