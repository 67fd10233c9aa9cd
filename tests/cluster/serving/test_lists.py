"""Lists: order, pages, and the version that a list shows."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from tests.cluster.objects import causes, made, names, of_core, read_token, refusal, secret
from tests.cluster.talking import MERGE

if TYPE_CHECKING:
    from tests.cluster.talking import Api


async def filled(api: Api, namespace: str, *created: str) -> str:
    """Create these Secrets; returns the path of the collection."""
    path = of_core(namespace, "secrets")
    for name in created:
        made(await api.post(path, secret(name, labels={"here": "yes"})))
    return path


async def test_a_list_is_sorted_by_name(api: Api, namespace: str) -> None:
    """Whatever the order of creation; names are compared as bytes."""
    path = await filled(api, namespace, "b", "a", "c", "a-1", "a.b", "10", "9")

    assert names((await api.get(path)).json) == ["10", "9", "a", "a-1", "a.b", "b", "c"]


async def test_a_list_gives_its_kind_once(api: Api, namespace: str) -> None:
    """Its items have neither apiVersion nor kind; an object that is read by name has both."""
    path = await filled(api, namespace, "a")
    listed = (await api.get(path)).json

    assert (listed["kind"], listed["apiVersion"]) == ("SecretList", "v1")
    assert not {"kind", "apiVersion"} & listed["items"][0].keys()
    assert (await api.get(f"{path}/a")).json["kind"] == "Secret"


async def test_a_list_has_the_version_of_the_newest_change(api: Api, namespace: str) -> None:
    """At least the version of each item; a watch from it misses nothing."""
    path = await filled(api, namespace, "a", "b")
    listed = (await api.get(path)).json

    assert int(listed["metadata"]["resourceVersion"]) >= max(
        int(item["metadata"]["resourceVersion"]) for item in listed["items"]
    )


async def test_an_empty_list_has_no_items(api: Api, namespace: str) -> None:
    """`items` is an empty list, not absent."""
    assert (await api.get(of_core(namespace, "secrets"))).json["items"] == []


async def test_a_list_of_all_namespaces_is_sorted_by_namespace_and_name(api: Api, namespace: str) -> None:
    """By namespace first."""
    await filled(api, namespace, "b", "a")
    listed = (await api.get("/api/v1/secrets")).json
    keys = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in listed["items"]]

    assert keys == sorted(keys)
    assert [key for key in keys if key[0] == namespace] == [(namespace, "a"), (namespace, "b")]


async def test_a_limited_list_tells_how_many_items_remain(api: Api, namespace: str) -> None:
    """`continue` and `remainingItemCount` on every page except the last, which has neither."""
    path = await filled(api, namespace, "a", "b", "c", "d", "e")
    pages, token = [], ""
    for _ in range(3):
        page = (await api.get(path, params={"limit": "2", "continue": token})).json
        pages.append((names(page), page["metadata"].get("remainingItemCount")))
        token = page["metadata"].get("continue", "")

    assert pages == [(["a", "b"], 3), (["c", "d"], 1), (["e"], None)]
    assert token == ""


async def test_all_pages_show_the_version_of_the_first(api: Api, namespace: str) -> None:
    """Changes between two pages do not show on the second."""
    path = await filled(api, namespace, "a", "b", "c")
    first = (await api.get(path, params={"limit": "1"})).json
    await api.delete(f"{path}/b")
    made(await api.post(path, secret("bb")))
    second = (await api.get(path, params={"continue": first["metadata"]["continue"]})).json

    assert names(second) == ["b", "c"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert names((await api.get(path)).json) == ["a", "bb", "c"]


async def test_a_limited_list_with_a_selector_does_not_count_what_remains(api: Api, namespace: str) -> None:
    """It has `continue`, but no `remainingItemCount`."""
    path = await filled(api, namespace, "a", "b", "c")
    metadata = (await api.get(path, params={"limit": "1", "labelSelector": "here"})).json["metadata"]

    assert metadata["continue"]
    assert "remainingItemCount" not in metadata


@pytest.mark.parametrize("limit", ["0", "3", "500"])
async def test_a_limit_that_is_not_reached_has_no_effect(api: Api, namespace: str, limit: str) -> None:
    """0 means no limit."""
    path = await filled(api, namespace, "a", "b", "c")
    listed = (await api.get(path, params={"limit": limit})).json

    assert names(listed) == ["a", "b", "c"]
    assert listed["metadata"].keys() == {"resourceVersion"}


@pytest.mark.parametrize("option", ["limit", "timeoutSeconds"])
@pytest.mark.parametrize("also", [{}, {"watch": "1"}], ids=["list", "watch"])
@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("x", "invalid syntax"), ("", "invalid syntax"), (" 1", "invalid syntax"), ("1_0", "invalid syntax"),
        ("99999999999999999999", "value out of range"), ("-99999999999999999999", "value out of range"),
    ],
    ids=["text", "empty", "space", "underscore", "too-large", "too-small"],
)  # fmt: skip
async def test_a_malformed_number_is_refused(
    api: Api, namespace: str, option: str, also: dict[str, str], value: str, told: str
) -> None:
    """400 with Go's message, for lists and watches, whether the option matters to them or not."""
    reply = await api.get(of_core(namespace, "secrets"), params={**also, option: value})

    assert refusal(reply) == (400, "BadRequest", f'strconv.ParseInt: parsing "{value}": {told}')


TOKEN = '{"v":"meta.k8s.io/v1","rv":%s,"start":"%s"}'


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("x", "invalid character 'x' looking for beginning of value"),
        (b"\xff", "invalid character '\u00ff' looking for beginning of value"),
        ("[]", "json: cannot unmarshal array into Go value of type storage.continueToken"),
        ("{}", "server does not recognize this encoded version "),
        ('{"v":"v2","rv":1,"start":"a"}', "server does not recognize this encoded version v2"),
        ('{"v":"meta.k8s.io/v1"', "unexpected end of JSON input"),
        (TOKEN % ('"x"', "a"), "json: cannot unmarshal string into Go struct field continueToken.rv of type int64"),
        (TOKEN % ("1.5", "a"), "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64"),
        (TOKEN % (0, "a"), "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        (TOKEN % (1, ""), "encoded start key empty (version meta.k8s.io/v1)"),
        (TOKEN % (1, "../x"), "../x"),
    ],
    ids=["no-json", "no-text", "array", "nothing", "another-version", "half", "text-for-a-number", "fraction",
         "version-0", "no-start", "leads-out"],
)  # fmt: skip
async def test_a_malformed_continue_token_is_refused(api: Api, namespace: str, said: str | bytes, told: str) -> None:
    """400 with the reason."""
    token = base64.urlsafe_b64encode(said.encode() if isinstance(said, str) else said).decode().rstrip("=")
    code, reason, message = refusal(await api.get(of_core(namespace, "secrets"), params={"continue": token}))

    assert (code, reason) == (400, "BadRequest")
    assert message.endswith(f"continue key is not valid: {told}")


@pytest.mark.parametrize(("token", "at"), [("x", 0), ("!!", 0), ("a b", 1), ("YW==", 2), ("YWJjZ", 4), ("abc+", 3)])
async def test_a_continue_token_is_base64_without_padding(api: Api, namespace: str, token: str, at: int) -> None:
    """400 with the position of the first wrong byte."""
    code, reason, message = refusal(await api.get(of_core(namespace, "secrets"), params={"continue": token}))

    assert (code, reason) == (400, "BadRequest")
    assert message.endswith(f"continue key is not valid: illegal base64 data at input byte {at}")


async def test_a_continue_token_excludes_a_version(api: Api, namespace: str) -> None:
    """400 for a resourceVersion beside it, 422 for a resourceVersionMatch."""
    path = await filled(api, namespace, "a", "b")
    first = (await api.get(path, params={"limit": "1"})).json["metadata"]
    both = {"continue": first["continue"], "resourceVersion": first["resourceVersion"]}

    text = "specifying resource version is not allowed when using continue"
    assert refusal(await api.get(path, params=both)) == (400, "BadRequest", text)
    found = causes(await api.get(path, params={**both, "resourceVersionMatch": "Exact"}))
    assert found == [
        (
            "FieldValueForbidden",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        )
    ]


async def test_a_list_can_show_an_exact_version(api: Api, namespace: str) -> None:
    """`resourceVersionMatch=Exact` shows that past version, `NotOlderThan` the present."""
    path = await filled(api, namespace, "a")
    version = (await api.get(f"{path}/a")).json["metadata"]["resourceVersion"]
    await filled(api, namespace, "b")
    await api.delete(f"{path}/a")

    exact = (await api.get(path, params={"resourceVersion": version, "resourceVersionMatch": "Exact"})).json
    newer = (await api.get(path, params={"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"})).json
    assert (names(exact), exact["metadata"]["resourceVersion"]) == (["a"], version)
    assert names(newer) == ["b"]


@pytest.mark.parametrize("limit", ["1", "5"])
async def test_a_limit_with_a_version_shows_that_version_unless_asked_otherwise(
    api: Api, namespace: str, limit: str
) -> None:
    """With only a limit and a version, `Exact` is meant; with `NotOlderThan` the pages show the present."""
    path = await filled(api, namespace, "a")
    version = (await api.get(f"{path}/a")).json["metadata"]["resourceVersion"]
    made(await api.patch(f"{path}/a", {"data": {"new": "eWVz"}}, MERGE))
    await filled(api, namespace, "b")

    asked = {"resourceVersion": version, "limit": limit}
    past = (await api.get(path, params=asked)).json
    assert [item.get("data") for item in past["items"]] == [None]
    assert past["metadata"] == {"resourceVersion": version}
    now = (await api.get(path, params={**asked, "resourceVersionMatch": "NotOlderThan"})).json
    assert [item.get("data") for item in now["items"]] == [{"new": "eWVz"}, None][: int(limit)]
    assert int(now["metadata"]["resourceVersion"]) > int(version)
    assert ("continue" in now["metadata"], now["metadata"].get("remainingItemCount")) == (
        (True, 1) if limit == "1" else (False, None)
    )


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_list_of_any_version_shows_what_there_is(api: Api, namespace: str, version: str) -> None:
    """Without a version the newest is shown; with 0 any version that the server has, which here has settled."""
    path = await filled(api, namespace, "a")
    await api.until(path, lambda listed: names(listed) == ["a"])

    assert names((await api.get(path, params={"resourceVersion": version})).json) == ["a"]


@pytest.mark.parametrize("match", [{}, {"resourceVersionMatch": "Exact"}])
async def test_a_future_version_times_out(api: Api, namespace: str, match: dict[str, str]) -> None:
    """504 with the cause ResourceVersionTooLarge and `retryAfterSeconds` 1."""
    path = of_core(namespace, "secrets")
    reply = await api.get(path, params={"resourceVersion": "999999999", **match})
    code, reason, message = refusal(reply)

    assert (code, reason) == (504, "Timeout")
    assert message.startswith("Timeout: Too large resource version: 999999999, current: ")
    details = reply.json["details"]
    assert details["causes"] == [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert details["retryAfterSeconds"] == 1


@pytest.mark.parametrize("version", ["abc", "-1", "1.5"])
async def test_a_malformed_version_is_refused(api: Api, namespace: str, version: str) -> None:
    """400 from a list, 500 from a get."""
    path = await filled(api, namespace, "a")
    told = f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'

    reply = await api.get(path, params={"resourceVersion": version})
    assert refusal(reply) == (400, "BadRequest", f"invalid resource version: {told}")
    reply = await api.get(f"{path}/a", params={"resourceVersion": version})
    assert refusal(reply) == (500, "", told)


@pytest.mark.parametrize(
    ("params", "found"),
    [
        pytest.param(
            {"resourceVersionMatch": "Exact"},
            [("Forbidden", "resourceVersionMatch is forbidden unless resourceVersion is provided")],
            id="match-without-version",
        ),
        pytest.param(
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            [("Forbidden", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')],
            id="exactly-any",
        ),
        pytest.param(
            {"resourceVersionMatch": "Foo", "resourceVersion": "1"},
            [("NotSupported", '"Foo": supported values: "Exact", "NotOlderThan", ""')],
            id="unknown-match",
        ),
    ],
)
async def test_a_version_match_must_go_with_its_version(
    api: Api, namespace: str, params: dict[str, str], found: list[tuple[str, str]]
) -> None:
    """422 for ListOptions."""
    words = {"Forbidden": "Forbidden", "NotSupported": "Unsupported value"}
    expected = [(f"FieldValue{reason}", "resourceVersionMatch", f"{words[reason]}: {text}") for reason, text in found]

    assert causes(await api.get(of_core(namespace, "secrets"), params=params)) == expected


async def test_initial_events_are_for_watches_only(api: Api, namespace: str) -> None:
    """422 for a list with `sendInitialEvents`."""
    params = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"}
    found = causes(await api.get(of_core(namespace, "secrets"), params=params))

    assert found == [
        ("FieldValueForbidden", "sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"),
    ]


async def test_a_continue_token_is_readable(api: Api, namespace: str) -> None:
    """Version and last name in base64, as client libraries and proxies have come to expect."""
    path = await filled(api, namespace, "a", "b")
    metadata = (await api.get(path, params={"limit": "1"})).json["metadata"]
    found = read_token(metadata["continue"])

    assert found["v"] == "meta.k8s.io/v1"
    assert found["start"].endswith("a\0")
    assert str(found["rv"]) == metadata["resourceVersion"]
