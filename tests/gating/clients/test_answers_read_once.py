"""The gate reads a create's answer before the client does; the caller gets what a plain client would return."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kubernetes import client

from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import Answer
from tests.kit.gated_creates import core_of, pod
from tests.kit.official import only_since_37
from tests.kit.scripted_server import scripted_server

STORED = {**pod("x"), "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending"}}


def outcome(api: Any) -> tuple[str, Any]:
    """Create a pod; return what the caller gets: the object, or the error."""
    try:
        made = core_of(api).create_namespaced_pod("team", pod("x"))
    except Exception as error:  # noqa: BLE001 - any error must be the same
        return type(error).__name__, re.sub(r"'Date'[,:] '[^']*'", "", str(error))  # the second may change in between
    return type(made).__name__, made and made.to_dict()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (201, STORED),
        (201, {**STORED, "metadata": {"name": "\N{SNOWMAN}", "labels": {"a": "b"}}}),
        (201, {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": []}),
        (201, {}),
        (201, b"[]"),
        (201, b"null"),
        (201, b"no JSON"),
        (422, {"kind": "Status", "message": "no", "code": 422}),
        (422, b"no JSON"),
    ],
    ids=["pod", "unicode", "table", "empty", "list", "null", "no JSON", "refusal", "refusal, no JSON"],
)
def test_a_gated_create_gives_what_a_plain_one_gives(status: int, body: Any) -> None:
    """Objects and errors are the same, whatever the server answers."""
    with scripted_server(lambda _: (status, body)) as server:
        configuration = client.Configuration(host=server.url)
        with client.ApiClient(configuration) as plain, GatedApiClient(configuration, gate=Gate()) as gated:
            assert outcome(gated) == outcome(plain)


@only_since_37
def test_parsed_json_is_not_parsed_again() -> None:
    """The client has the method that is used for it, and only answers that it would parse as JSON are passed on."""
    from backoff_ctrl.k8s.gate.clients.threads import _BUILD, UnreadResponse  # noqa: PLC0415 - only there

    assert _BUILD is not None
    for content_type, shared in (("application/json", True), ("application/json;charset=latin-1", False), ("", False)):
        answer = Answer(201, {"content-type": content_type}, json.dumps(STORED).encode())
        assert UnreadResponse(answer).parsed is None
        read = answer.json()
        assert answer.json() is read
        assert (UnreadResponse(answer).parsed is read) is shared
        assert (answer.json() is read) is not shared  # the caller has it now


@only_since_37
def test_a_text_from_elsewhere_is_parsed_as_usual() -> None:
    """Watches and the DynamicClient read their own answers, and must not get the last create's object."""
    with (
        scripted_server(lambda _: (201, STORED)) as server,
        GatedApiClient(client.Configuration(host=server.url), gate=Gate()) as gated,
    ):
        assert core_of(gated).create_namespaced_pod("team", pod("x")).metadata.name == "x"
        other: Any = gated.deserialize('{"metadata": {"name": "other"}}', "V1Pod", "application/json")
    assert other.metadata.name == "other"


@only_since_37
def test_a_subclass_with_its_own_deserialize_is_called() -> None:
    """It is called as by ``ApiClient``."""

    class Hiding(GatedApiClient):
        def deserialize(self, response_text: str, response_type: str, content_type: str | None) -> Any:
            return super().deserialize(response_text.replace("secret", "hidden"), response_type, content_type)

    stored = {**STORED, "metadata": {"name": "x", "labels": {"a": "secret"}}}
    with (
        scripted_server(lambda _: (201, stored)) as server,
        Hiding(client.Configuration(host=server.url), gate=Gate()) as gated,
    ):
        assert core_of(gated).create_namespaced_pod("team", pod("x")).metadata.labels == {"a": "hidden"}
