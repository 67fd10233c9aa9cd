"""JSON and YAML as Go reads them: what is replaced, dropped or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.objects import UNRECOGNIZED, made, of_core, refusal
from tests.cluster.talking import APPLY, JSON_PATCH, MERGE, STRATEGIC

if TYPE_CHECKING:
    from tests.cluster.talking import Api


@pytest.mark.parametrize(
    ("number", "told"),
    [
        ("-", "'}' in numeric literal"), ("-Infinity", "'I' in numeric literal"),
        ("1.", "'}' after decimal point in numeric literal"), ("1e", "'}' in exponent of numeric literal"),
        ("1e+", "'}' in exponent of numeric literal"), ("01", "'1' after object key:value pair"),
        ("+1", "'+' looking for beginning of value"), (".5", "'.' looking for beginning of value"),
    ],
)  # fmt: skip
async def test_a_malformed_json_number_is_refused(api: Api, namespace: str, number: str, told: str) -> None:
    """400 with the first character that does not belong to a number."""
    body = f'{{"a":{number}}}'
    expected = (400, "BadRequest", f"{UNRECOGNIZED}invalid character {told} ({body})")
    assert refusal(await api.post(of_core(namespace, "configmaps"), body.encode())) == expected


async def test_a_long_number_in_an_unknown_field_is_dropped(api: Api, namespace: str) -> None:
    """However many digits it has."""
    body = b'{"metadata":{"name":"m"},"unknown":%b}' % (b"9" * 5000)

    assert "unknown" not in made(await api.post(of_core(namespace, "configmaps"), body))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (rb"\ud800", "\ufffd"), (rb"\udc00x", "\ufffdx"), (rb"\ud800\ud800", "\ufffd" * 2),
        (rb"\ud83d\u0041", "\ufffdA"), (rb"\ud83d\ude00", "\U0001f600"), (rb"\\ud800", r"\ud800"),
        (b"\xff", "\ufffd"), (b"a\xc3", "a\ufffd"), (b"\xed\xa0\x80", "\ufffd" * 3), (b"\xf0\x9f\x98", "\ufffd" * 3),
    ],
    ids=["high", "low", "two-high", "high-and-letter", "pair", "no-escape", "byte", "half", "surrogate",
         "three-of-four"],
)  # fmt: skip
async def test_invalid_characters_are_replaced(api: Api, namespace: str, text: bytes, read: str) -> None:
    """By U+FFFD, for half a surrogate pair and for each byte that is not UTF-8, in creates and in all patches."""
    path = of_core(namespace, "configmaps")
    body = b'{"metadata":{"name":"m"},"data":{"a":"%b"}}'
    created = made(await api.call("POST", path, body % text, content_type="application/json"))
    assert created["data"] == {"a": read}
    for form in (MERGE, STRATEGIC):
        made(await api.patch(f"{path}/m", {"data": {"a": "before"}}, MERGE))
        assert made(await api.patch(f"{path}/m", body % text, form))["data"] == {"a": read}
    operations = b'[{"op":"add","path":"/data/a","value":"%b"}]'
    assert made(await api.patch(f"{path}/m", operations % text, JSON_PATCH))["data"] == {"a": read}


async def test_yaml_with_invalid_bytes_is_refused(api: Api, namespace: str) -> None:
    """400 for bytes that are not UTF-8; in JSON they are replaced."""
    path = of_core(namespace, "configmaps")
    for text, told in (
        (b"\xff", "yaml: invalid leading UTF-8 octet"),
        (rb"\ud800", "yaml: found invalid Unicode character escape code"),
    ):
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"%b"}}' % text
        reply = await api.call("POST", path, body, content_type="application/yaml")
        assert refusal(reply)[:2] == (400, "BadRequest")
        reply = await api.patch(f"{path}/m", body, APPLY, params={"fieldManager": "x"})
        assert refusal(reply) == (400, "BadRequest", f"error decoding YAML: error converting YAML to JSON: {told}")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"a: [1\n", "line 1: did not find expected ',' or ']'"),
        (b"\ta: 1", "found character that cannot start any token"),
        (b"a: b: c\n", "mapping values are not allowed in this context"),
        (b'a: "x\n', "line 2: found unexpected end of stream"),
        (b'{"a":' + b"[" * 20_000, "exceeded max depth of 10000"),
    ],
    ids=["open-list", "tab", "two-colons", "open-text", "deep"],
)
async def test_malformed_yaml_is_refused(api: Api, namespace: str, body: bytes, told: str) -> None:
    """400 with the message of Go's library."""
    reply = await api.patch(of_core(namespace, "configmaps", "m"), body, APPLY, params={"fieldManager": "x"})

    expected = (400, "BadRequest", f"error decoding YAML: error converting YAML to JSON: yaml: {told}")
    assert refusal(reply) == expected


async def test_the_version_is_read_with_and_without_a_slash(api: Api) -> None:
    """Go's discovery client asks for `/version`, others for `/version/`."""
    plain, slashed = await api.get("/version"), await api.get("/version/")

    assert (plain.status, slashed.status) == (200, 200)
    assert slashed.json == plain.json
    assert slashed.json["gitVersion"].startswith("v1.")
