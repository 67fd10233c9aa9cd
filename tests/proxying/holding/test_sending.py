"""What is read of manifests and answers, in any form; and creates in protobuf and YAML."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from typing import Any, Final

import pytest

from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID
from backoff_ctrl.k8s.kube.answers.rejections import read_rejection, rejection_of
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.sidecar.holding.sending import READ_MAX, lean, manifest_in, readable, received
from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings
from backoff_ctrl.k8s.sidecar.http.messages import Head, Request, Response
from backoff_ctrl.k8s.sidecar.http.payload import Payload, read
from backoff_ctrl.k8s.sidecar.http.protobuf import field, status_message
from backoff_ctrl.k8s.sidecar.http.yaml_text import LARGEST_YAML
from tests.kit.charged import cases
from tests.proxying.holding.in_memory import (
    PODS,
    PROTOBUF,
    answered,
    full,
    header,
    held,
    pod,
    proxied,
    status_in,
    token,
)
from tests.proxying.payloads.payload_parts import enveloped


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


TYPED: Final[dict[str, Any]] = {"content_type": PROTOBUF, "accept": PROTOBUF + b",application/json"}
ONLY: Final[dict[str, Any]] = {"content_type": PROTOBUF, "accept": PROTOBUF}
_CONTAINER = field(1, b"c") + field(2, b"i")


def typed_pod(prefix: bytes = b"web-", *, name: bytes = b"") -> bytes:
    metadata = (field(1, name) if name else field(1, b"")) + field(2, prefix)
    return enveloped(field(1, metadata) + field(2, field(2, _CONTAINER)) + field(3, b"")).body


def without_numbers(message: str) -> str:
    """Return what is said of a wait, but for the seconds and the place."""
    return re.sub(r"for \d+ s|place \d+", "", message)


def said(body: bytes) -> dict[str, Any]:
    found = read(Payload(body, PROTOBUF))
    assert found is not None
    return found


def in_protobuf(response: Response) -> Response:
    """The sandbox's answer as a typed client gets it from a real server: the pod, or the Status, in protobuf."""
    found = json.loads(response.body)
    if found["kind"] == "Status":
        return answered(response.status, status_message(found), PROTOBUF.decode())
    about = found["metadata"]
    noted = about.get("annotations", {}).items()
    entries = b"".join(field(12, field(1, key.encode()) + field(2, value.encode())) for key, value in noted)
    metadata = field(1, about["name"].encode()) + field(5, about["uid"].encode()) + entries
    body = enveloped(field(1, metadata) + field(2, field(2, _CONTAINER)) + field(3, field(1, b"Pending"))).body
    return answered(response.status, body, PROTOBUF.decode())


class TypedServer:
    """Answers as a real server: protobuf to whom asks for it. (The sandbox itself answers JSON.)"""

    def __init__(self, answer: Any) -> None:
        """``answer`` gives the sandbox's answer to a request."""
        self._answer = answer

    def __call__(self, request: Request) -> Response | None:
        response: Response = self._answer(request)
        wanted = (request.head.get(b"accept") or b"").startswith(PROTOBUF)
        return in_protobuf(response) if wanted and request.head.method != b"DELETE" else response


async def test_a_typed_create_waits_is_marked_and_gets_protobuf() -> None:
    """The name and the create id are appended; the answer is the server's bytes."""
    async with proxied(1) as proxy:
        (name,) = await proxy.fill(1)
        proxy.server.refuse = TypedServer(proxy.server.answer)
        proxy.watch()
        waiting = proxy.post(typed_pod(), **TYPED)
        await asyncio.sleep(1)
        assert (proxy.gate.counts.waiting, proxy.server.posts()) == (1, [])
        await proxy.delete(name)
        response = await waiting
        assert (response.status, header(response, b"content-type")) == (201, PROTOBUF)
        (sent,) = proxy.server.posts()
        assert sent.body.startswith(b"k8s\0")
        metadata = said(sent.body)["metadata"]
        assert [metadata["name"]] == proxy.server.pods()
        assert metadata["annotations"][CREATE_ID] == said(response.body)["metadata"]["annotations"][CREATE_ID]


async def test_a_refusal_in_protobuf_teaches_and_an_answer_in_protobuf_settles() -> None:
    """Nothing but refusals is known here: the amounts in a protobuf Status are read, and the create probes."""
    async with proxied(1) as proxy:
        (name,) = await proxy.fill(1)
        proxy.server.refuse = TypedServer(proxy.server.answer)
        response = await proxy.post(typed_pod(), **TYPED)
        causes = {cause["field"]: cause["message"] for cause in status_in(response)["details"]["causes"]}
        assert (response.status, causes["quota"], causes["left"]) == (429, "q", "0")
        await proxy.delete(name)
        assert (await proxy.post(typed_pod(), **TYPED)).status == 201
        assert proxy.gate.counts.refused["quota"] >= 1
        assert proxy.gate.counts.failed_open == 0


async def test_a_lost_answer_is_looked_up_in_protobuf() -> None:
    """The look-up has the creator's credentials and form; the object is recognised, and given as the 201."""
    async with proxied(2) as proxy:
        proxy.server.refuse = TypedServer(proxy.server.answer)
        proxy.server.lost = 1
        response = await proxy.post(typed_pod(), token=token("ann"), **ONLY)
        assert (response.status, header(response, b"content-type")) == (201, PROTOBUF)
        assert [said(response.body)["metadata"]["name"]] == proxy.server.pods()
        post, look_up = proxy.server.asked
        assert (look_up.head.method, look_up.head.get(b"accept")) == (b"GET", PROTOBUF)
        assert look_up.head.get(b"authorization") == post.head.get(b"authorization")


async def test_who_reads_protobuf_alone_is_told_in_protobuf() -> None:
    """Message, causes and Retry-After are those of the JSON; a client that takes JSON gets JSON."""
    async with full(1) as proxy:
        response = await proxy.post(typed_pod(), **ONLY)
        assert (response.status, header(response, b"content-type")) == (429, PROTOBUF)
        assert header(response, b"retry-after") == b"1"
        status = said(response.body)
        assert (status["kind"], status["code"], status["reason"]) == ("Status", 429, "TooManyRequests")
        assert "quota q" in status["message"]
        assert status["details"]["retryAfterSeconds"] == 1
        both = await proxy.post(typed_pod(b"two-"), **TYPED)
        assert header(both, b"content-type") == b"application/json"
        assert without_numbers(status_in(both)["message"]).replace("two-", "web-") == without_numbers(status["message"])


async def test_without_the_right_to_look_up_what_was_sent_stands_in() -> None:
    """A 409 on a name that only the proxy could draw is its own success; the whole manifest is the answer."""
    async with proxied(10) as proxy:
        forbidden = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":'
        forbidden += b'"pods is forbidden: User \\"a\\" cannot get resource \\"pods\\" in API group \\"\\" in the '
        forbidden += b'namespace \\"team\\""}'
        no = answered(403, forbidden, "application/json")
        proxy.server.refuse = lambda request: no if request.head.method == b"GET" else None
        for manifest, how in ((json.dumps(with_env()).encode(), {}), (typed_pod(), ONLY)):
            proxy.server.lost = 1
            response = await proxy.post(manifest, **how)
            assert response.status == 201
            assert response.body == proxy.server.posts()[-1].body, "as it was sent, to the last byte"
        assert len(proxy.server.pods()) == 2


async def test_yaml_is_read_and_marked_too() -> None:
    """Few send it; it waits as any other."""
    manifest = (
        b"apiVersion: v1\nkind: Pod\nmetadata:\n  generateName: web-\nspec:\n  containers:\n  - {name: c, image: i}\n"
    )
    async with proxied(1) as proxy:
        response = await proxy.post(manifest, content_type=b"application/yaml")
        assert response.status == 201
        assert (
            await proxy.post(manifest, content_type=b"application/yaml", target=PODS + b"?timeout=2s")
        ).status == 429
        assert CREATE_ID.encode() in proxy.server.posts()[0].body


async def test_yaml_that_takes_long_to_read_is_sent_once_and_waits_by_its_refusal() -> None:
    """Reading it would hold up everybody else; what the quota says of it is enough to give it its turn."""
    env = "".join(f"    - {{name: V{number}, value: x}}\n" for number in range(250))
    manifest = (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  generateName: web-\nspec:\n  containers:\n"
        f"  - name: c\n    image: i\n    env:\n{env}"
    ).encode()
    assert len(manifest) < LARGEST_YAML
    async with full(1) as proxy:
        (name,) = proxy.others
        waiting = proxy.post(manifest, content_type=b"application/yaml")
        await held(proxy, waiting)
        assert [request.body for request in proxy.server.posts()] == [manifest]
        await proxy.delete(name)
        assert (await waiting).status == 201
        assert [request.body for request in proxy.server.posts()] == [manifest] * 2, "as it came"


def with_env() -> dict[str, Any]:
    manifest = pod()
    manifest["spec"]["containers"][0]["env"] = [{"name": "A", "value": "B"}]
    return manifest
