"""Lists: order, pages, and the version that a list shows."""

from __future__ import annotations

import base64

import pytest

from tests.cluster.objects import made, names, of_core, read_token, refusal, secret
from tests.cluster.talking import Api


async def filled(api: Api, namespace: str, *created: str) -> str:
    """Create these Secrets; returns the path of the collection."""
    path = of_core(namespace, "secrets")
    for name in created:
        made(await api.post(path, secret(name, labels={"here": "yes"})))
    return path


async def test_a_list_is_sorted_by_name(api: Api, namespace: str) -> None:
    """The order of creation does not matter; names are compared as bytes."""
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
    """At least the version of each item; a watch from it misses no change."""
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


@pytest.mark.parametrize("said", [b"x", b"\xff", b"[]", b"{}", b'{"v":"meta.k8s.io/v1"', b"5"])
async def test_a_malformed_continue_token_is_refused(api: Api, namespace: str, said: bytes) -> None:
    """400 for any content."""
    token = base64.urlsafe_b64encode(said).decode().rstrip("=")

    reply = await api.get(of_core(namespace, "secrets"), params={"continue": token})
    assert refusal(reply)[:2] == (400, "BadRequest")


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


async def test_a_continue_token_is_readable(api: Api, namespace: str) -> None:
    """Version and last name in base64, as client libraries and proxies have come to expect."""
    path = await filled(api, namespace, "a", "b")
    metadata = (await api.get(path, params={"limit": "1"})).json["metadata"]
    found = read_token(metadata["continue"])

    assert found["v"] == "meta.k8s.io/v1"
    assert found["start"].endswith("a\0")
    assert str(found["rv"]) == metadata["resourceVersion"]
