"""JSON and YAML as Go reads them: what is replaced, dropped or refused."""

from __future__ import annotations

import pytest

from tests.cluster.objects import made, of_core, refusal
from tests.cluster.talking import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api


@pytest.mark.parametrize("number", ["-", "-Infinity", "1.", "1e", "01", "+1", ".5", "NaN"])
async def test_a_malformed_json_number_is_refused(api: Api, namespace: str, number: str) -> None:
    """400."""
    reply = await api.post(of_core(namespace, "configmaps"), f'{{"a":{number}}}'.encode())
    assert refusal(reply)[:2] == (400, "BadRequest")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (rb"\ud800", "\ufffd"), (rb"\udc00x", "\ufffdx"), (rb"\ud800\ud800", "\ufffd" * 2),
        (rb"\ud83d\u0041", "\ufffdA"), (rb"\ud83d\ude00", "\U0001f600"), (rb"\\ud800", r"\ud800"),
        (b"\xff", "\ufffd"), (b"a\xc3", "a\ufffd"), (b"\xed\xa0\x80", "\ufffd" * 3),
    ],
    ids=["high", "low", "two-high", "high-and-letter", "pair", "no-escape", "byte", "half", "surrogate"],
)  # fmt: skip
async def test_invalid_characters_are_replaced(api: Api, namespace: str, text: bytes, read: str) -> None:
    """By U+FFFD, for half a surrogate pair and for bytes that are not UTF-8, in creates and in all patches."""
    path = of_core(namespace, "configmaps")
    body = b'{"metadata":{"name":"m"},"data":{"a":"%b"}}'
    created = made(await api.call("POST", path, body % text, content_type="application/json"))
    assert created["data"] == {"a": read}
    for form in (MERGE, STRATEGIC):
        made(await api.patch(f"{path}/m", {"data": {"a": "before"}}, MERGE))
        assert made(await api.patch(f"{path}/m", body % text, form))["data"] == {"a": read}
    operations = b'[{"op":"add","path":"/data/a","value":"%b"}]'
    assert made(await api.patch(f"{path}/m", operations % text, JSON_PATCH))["data"] == {"a": read}


@pytest.mark.parametrize(
    "body",
    [b"a: [1\n", b"\ta: 1", b"a: b: c\n", b'a: "x\n', b'a: "\xff"\n', b'{"a":' + b"[" * 20_000],
    ids=["open-list", "tab", "two-colons", "open-text", "no-text", "deep"],
)
async def test_malformed_yaml_is_refused(api: Api, namespace: str, body: bytes) -> None:
    """400, at once."""
    reply = await api.patch(of_core(namespace, "configmaps", "m"), body, APPLY, params={"fieldManager": "x"})

    assert refusal(reply)[:2] == (400, "BadRequest")


async def test_the_version_is_read_with_and_without_a_slash(api: Api) -> None:
    """Go's discovery client asks for `/version`, others for `/version/`."""
    plain, slashed = await api.get("/version"), await api.get("/version/")

    assert (plain.status, slashed.status) == (200, 200)
    assert slashed.json == plain.json
    assert slashed.json["gitVersion"].startswith("v1.")
