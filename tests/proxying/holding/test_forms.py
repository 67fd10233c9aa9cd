"""What is read of manifests and answers, and in which form objects are asked for."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from backoff_ctrl.k8s.answers.rejections import read_rejection, rejection_of
from backoff_ctrl.k8s.charges.footprint import footprint
from backoff_ctrl.k8s.proxy.holding.sending import READ_MAX, lean, manifest_in, readable, received
from backoff_ctrl.k8s.proxy.holding.settings import HoldSettings
from backoff_ctrl.k8s.proxy.http.messages import Head, Request, Response
from backoff_ctrl.k8s.proxy.http.protobuf import status_message
from tests.charged import cases
from tests.proxying.holding.in_memory import PODS, PROTOBUF, in_virtual_time, pod, proxied


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", None])
def test_answers_that_the_server_compressed_are_read(encoding: bytes | None) -> None:
    """Go asks for it, and the server does so with large answers; the bytes stay as they are."""
    plain = json.dumps({"kind": "Pod", "metadata": {"uid": "u-1"}}).encode()
    body = plain if encoding is None else gzip.compress(plain)
    headers = [(b"Content-Type", b"application/json")] + ([(b"Content-Encoding", encoding)] if encoding else [])
    answer = received(Response(201, b"", headers, body))
    assert (answer.json() or {}).get("metadata") == {"uid": "u-1"}
    assert answer.body is body


def test_an_answer_that_is_not_what_it_says_is_not_read() -> None:
    """It goes to the caller all the same."""
    for headers in ([(b"Content-Encoding", b"gzip")], [(b"Content-Type", PROTOBUF)], []):
        answer = received(Response(201, b"", list(headers), b"\x00\xffnothing"))
        assert answer.json() is None
        assert answer.said() == b"\x00\xffnothing"


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (
            403,
            "Forbidden",
            'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4',
        ),
        (403, "Forbidden", 'pods is forbidden: User "ann" cannot create resource "pods" in API group ""'),
        (409, "AlreadyExists", 'pods "p" already exists'),
        (429, "TooManyRequests", "the server has asked for the client to provide credentials"),
    ],
)
def test_a_status_in_protobuf_means_what_it_means_in_json(code: int, reason: str, message: str) -> None:
    """Lane, message, amounts and how long to wait."""
    status = {"kind": "Status", "message": message, "reason": reason, "code": code, "status": "Failure"}
    status["details"] = {"name": "p", "kind": "pods", "retryAfterSeconds": 7}
    answer = received(Response(code, b"", [(b"Content-Type", PROTOBUF)], status_message(status)))
    assert rejection_of(answer) == read_rejection(code, {}, json.dumps(status))


@pytest.mark.parametrize(
    ("accepted", "asked"),
    [
        (None, b"application/json"),
        (PROTOBUF + b",application/json", PROTOBUF + b",application/json"),
        (b"application/json;as=Table;v=v1;g=meta.k8s.io,application/json", b"application/json"),
        (b"application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", b"application/json"),
        (b"application/cbor", b"application/json"),
        (b"*/*", b"application/json"),
    ],
)
def test_a_look_up_asks_for_what_can_be_read(accepted: bytes | None, asked: bytes) -> None:
    """Of the creator's own forms, if it can be; a table shows no annotations."""
    assert readable(accepted) == asked


def test_what_is_kept_of_a_waiting_pod_is_charged_the_same() -> None:
    """Environments and volumes are left out: they may be long, and are never charged."""
    pods = [case.manifest for case in cases() if case.manifest["kind"] == "Pod"]
    assert len(pods) > 50
    for manifest in pods:
        assert charged(lean(manifest)) == charged(manifest)
    manifest = {"spec": {"containers": [{"name": "c", "env": [{"name": "A"}], "image": "i"}], "volumes": [{}]}}
    request = Request(Head(b"POST", PODS, []), json.dumps(manifest).encode())
    assert manifest_in(request, "pods") == {"spec": {"containers": [{"name": "c"}]}}


def charged(manifest: Any) -> object:
    try:
        return footprint(manifest, resource="pods")
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"a":1,"a":2}', b"null", b"[" * 100_000])
def test_what_is_no_manifest_is_not_read(body: bytes) -> None:
    """It is sent as it is, and the server says what is wrong with it."""
    assert manifest_in(Request(Head(b"POST", PODS, []), body), "pods") is None


def test_a_body_that_would_take_long_is_not_read() -> None:
    """It is sent as it is, and waits if a quota refuses it: nobody else waits for its reading."""
    for size, is_read in ((READ_MAX - 100, True), (READ_MAX, False)):
        body = b'{"metadata":{"name":"%b"},"spec":{}}' % (b"x" * size)
        request = Request(Head(b"POST", PODS, [(b"Content-Type", b"application/json")]), body)
        assert (manifest_in(request, "pods") is not None) is is_read


def test_a_compressed_body_is_not_read() -> None:
    """No API server takes one."""
    request = Request(Head(b"POST", PODS, [(b"Content-Encoding", b"gzip")]), b"{}")
    assert manifest_in(request, "pods") is None


@in_virtual_time
async def test_a_refusal_that_is_written_here_has_the_servers_bytes() -> None:
    """With all resources of the quota that lack room, in its order."""
    async with proxied(None, HoldSettings(answer="quota", hold=1)) as proxy:
        await proxy.fill(1)
        proxy.server.sandbox.create_quota("team", "q", {"pods": "1", "count/pods": "1", "services": "1"})
        proxy.watch()
        head = Head(b"POST", PODS, [(b"Content-Type", b"application/json")])
        direct = await proxy.server.ask(Request(head, json.dumps(pod("web")).encode()))
        proxy.server.asked.clear()
        written = await proxy.post(pod("web"))
        assert b"requested: count/pods=1,pods=1, used: count/pods=1,pods=1" in direct.body
        assert (written.status, written.body.rstrip(), proxy.server.posts()) == (403, direct.body.rstrip(), [])
        assert written.body.endswith(b"}\n")
