"""Whatever form of an answer a caller asks for, the gate asks for one that it can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.clients.transport import headers_to_send
from backoff_ctrl.k8s.gate.threads import Gate
from tests.kit.gated_creates import core_of, pod
from tests.kit.scripted_server import Seen, failure, scripted_server

if TYPE_CHECKING:
    pass

PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("application/json", "application/json"),
        (PROTOBUF, "application/json"),
        (f"{PROTOBUF}, application/json", "application/json"),
        ("application/yaml", "application/json"),
        ("application/cbor,*/*", "*/*"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io, application/json", "application/json"),
        (
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ),
    ],
)
def test_answers_are_asked_for_as_json(asked: str, sent: str) -> None:
    """A preference for JSON stays as it is; the name of the header may be written in any way."""
    for name in ("Accept", "accept"):
        assert headers_to_send({name: asked, "Content-Type": "application/json"}, None) == {
            name: sent,
            "Content-Type": "application/json",
        }


def test_both_the_create_and_the_look_up_ask_for_json() -> None:
    """The answer to the create is lost, and the object is looked up."""
    stored: list[Any] = []

    def answer(seen: Seen) -> Any:
        if seen.path.endswith("/resourcequotas"):
            return 200, {"kind": "ResourceQuotaList", "items": [], "metadata": {"resourceVersion": "1"}}
        if seen.method == "POST":
            stored.append(seen.body)
            return failure(504, "Timeout", "the answer was lost")
        return 200, stored[0]

    with (
        scripted_server(answer) as server,
        GatedApiClient(client.Configuration(host=server.url), gate=Gate()) as api,
    ):
        api.set_default_header("Accept", PROTOBUF)
        core_of(api).create_namespaced_pod("team", pod("x"), _preload_content=False)

    asked = {(each.method, each.headers["accept"]) for each in server.seen}
    assert asked == {("POST", "application/json"), ("GET", "application/json")}
