"""Resizes, server-side applies and bodies that can't be read: they are sent once, and may wait after that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings
from backoff_ctrl.k8s.sidecar.http.messages import Request, Response
from tests.proxying.holding.in_memory import (
    PODS,
    Proxied,
    answered,
    full,
    header,
    name_of,
    now,
    pod,
    proxied,
    status_in,
)

JSON = dict[str, Any]
APPLY = b"application/apply-patch+yaml"
STRATEGIC = b"application/strategic-merge-patch+json"
MERGE = b"application/merge-patch+json"
JSON_PATCH = b"application/json-patch+json"
CONFLICT = (
    'Operation cannot be fulfilled on resourcequotas "q": the object has been modified; please apply your changes'
)
FULL = 'pods "y" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
CLAIMS = b"/api/v1/namespaces/team/persistentvolumeclaims"


def applying(proxy: Proxied, name: str = "web", manifest: JSON | None = None, **how: Any) -> asyncio.Task[Response]:
    target = how.pop("target", PODS + b"/" + name.encode()) + b"?fieldManager=helm"
    return proxy.post(manifest or pod(name), target=target, method=b"PATCH", content_type=APPLY, **how)


def resizing(
    proxy: Proxied, name: str, changed: Any, content_type: bytes = STRATEGIC, method: bytes = b"PATCH"
) -> asyncio.Task[Response]:
    target = PODS + b"/" + name.encode() + b"/resize"
    return proxy.post(changed, target=target, method=method, content_type=content_type)


def resources(cpu: str, name: str = "c") -> JSON:
    return {"spec": {"containers": [{"name": name, "resources": {"requests": {"cpu": cpu}}}]}}


def sized(name: str, *cpus: str) -> JSON:
    """A pod whose containers, c, d and so on, request these amounts."""
    names = "cdefg"
    containers = [
        {"name": names[number], "image": "i", "resources": {"requests": {"cpu": cpu}}}
        for number, cpu in enumerate(cpus)
    ]
    return pod(name) | {"spec": {"containers": containers}}


def writes(proxy: Proxied) -> list[Request]:
    return [request for request in proxy.server.asked if request.head.method != b"GET"]


def said(code: int, message: str, **more: Any) -> Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code, **more}
    return answered(code, json.dumps(status).encode(), "application/json")


def first(*answers: Response) -> Callable[[Request], Response | None]:
    """Answer the first writes so; they store nothing."""
    left = list(answers)
    return lambda request: left.pop(0) if left and request.head.method != b"GET" else None


async def small(proxy: Proxied, name: str = "x", *cpus: str) -> None:
    """Create a pod behind the back of the proxy."""
    proxy.server.sandbox.create_quota("team", "cpu", {"requests.cpu": "2"})
    response = await proxy.post(sized(name, *(cpus or ("500m",))))
    assert response.status == 201, response.body
    proxy.server.asked.clear()


# -- how long it is held ---------


async def again_and_again(send: Callable[[], asyncio.Task[Response]]) -> list[Response]:
    """Send a request as client-go does: again after each 429 with ``Retry-After``, ten times at the most."""
    responses = [await send()]
    while len(responses) < 11 and responses[-1].status == 429 and (pause := header(responses[-1], b"retry-after")):
        await asyncio.sleep(int(pause))
        responses.append(await send())
    return responses


@pytest.mark.parametrize("hold", [None, 1.0, 2.5], ids=["one hold", "holds of 1 s", "holds of 2.5 s"])
@pytest.mark.parametrize("kind", ["create", "apply", "resize", "unreadable"])
async def test_all_requests_of_one_call_together_are_held_no_longer_than_the_total(
    kind: str, hold: float | None
) -> None:
    """Whatever is sent, and however often its client comes again; and it is sent once in that time."""
    async with proxied(None, HoldSettings(hold=hold, hold_total=6.0)) as proxy:
        proxy.server.sandbox.create_quota("team", "q", {"pods": "2", "requests.cpu": "1"})
        for name, cpu in (("x", "500m"), ("other", "400m")):
            assert (await proxy.post(sized(name, cpu))).status == 201
        refused = said(403, FULL)
        if kind == "unreadable":
            proxy.server.refuse = lambda request: refused if request.head.method == b"POST" else None
        ways: dict[str, Callable[[], asyncio.Task[Response]]] = {
            "create": lambda: proxy.post(sized("y", "100m")),
            "apply": lambda: applying(proxy, "y", sized("y", "100m")),
            "resize": lambda: resizing(proxy, "x", resources("700m")),
            "unreadable": lambda: proxy.post(b"cbor", content_type=b"application/cbor"),
        }
        began = now()
        proxy.server.asked.clear()
        responses = await again_and_again(ways[kind])
        assert 5.0 < now() - began < 8.0
        assert [each.status for each in responses] == [429] * len(responses)
        assert header(responses[-1], b"retry-after") is None, "the total is over"
        assert len(writes(proxy)) <= 4, "probes alone are sent"
        await asyncio.sleep(30)
        assert (proxy.gate.waiting(), proxy.holding.held_bytes) == ([], 0), "nothing of it is left in line"


async def test_an_apply_that_is_told_to_come_again_keeps_its_place() -> None:
    """There is one create in line for it, however often it comes."""
    async with full(1, HoldSettings(hold=1, hold_total=60)) as proxy:
        (name,) = proxy.others
        call = asyncio.get_running_loop().create_task(again_and_again(lambda: applying(proxy)))
        await asyncio.sleep(0.5)
        later = asyncio.get_running_loop().create_task(again_and_again(lambda: proxy.post(pod("later"))))
        for _ in range(10):
            await asyncio.sleep(0.5)
            assert proxy.gate.counts.waiting == 2
        await proxy.delete(name)
        assert name_of((await call)[-1]) == "web"
        await proxy.delete("web")
        assert name_of((await later)[-1]) == "later"


async def test_an_apply_that_is_repeated_after_its_end_is_sent_again() -> None:
    """Its object may have been changed or deleted since: no earlier answer is an answer to it."""
    async with proxied(2) as proxy:
        proxy.server.latency = 2.0
        left = applying(proxy)
        await asyncio.sleep(0.1)
        left.cancel()
        await asyncio.wait({left})
        proxy.server.latency = 0.002
        await asyncio.sleep(3)
        for status in (201, 200):
            assert (await applying(proxy)).status == status
        await proxy.delete("web")
        assert (await applying(proxy)).status == 201


# -- what never fits ---------


PATCHES = [
    pytest.param(STRATEGIC, b"PATCH", resources("2200m"), id="strategic"),
    pytest.param(
        JSON_PATCH,
        b"PATCH",
        [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "2200m"}],
        id="json patch",
    ),
    pytest.param(APPLY, b"PATCH", {"apiVersion": "v1", "kind": "Pod", **resources("2200m")}, id="apply"),
]


@pytest.mark.parametrize(("content_type", "method", "changed"), PATCHES)
async def test_a_resize_to_more_than_the_whole_quota_is_refused_at_once(
    content_type: bytes, method: bytes, changed: Any
) -> None:
    """The refusal asks for 1700m of 2, which the pod of 500m could get once others end; but 2200m it never gets."""
    async with proxied(None) as proxy:
        await small(proxy)
        query = b"?fieldManager=helm&force=true" if content_type == APPLY else b""
        target = PODS + b"/x/resize" + query
        response = await proxy.post(changed, target=target, method=method, content_type=content_type)
        found = "requested: requests.cpu=1700m, used: requests.cpu=500m, limited: requests.cpu=2"
        assert response.status == 403, response.body
        assert status_in(response)["message"].endswith(found)
        assert now() < 0.5
        assert proxy.gate.counts.waiting == 0


async def test_a_resize_counts_all_containers_of_its_pod() -> None:
    """One of them grows by 500m to 1; with the other the pod has 2200m."""
    async with proxied(None) as proxy:
        await small(proxy, "x", "500m", "1200m")
        assert (await resizing(proxy, "x", resources("1"))).status == 403
        assert now() < 0.5


async def test_a_resize_that_fits_once_others_end_waits_for_them() -> None:
    """Its pod would have 1800m of 2, and another one has 300m."""
    async with proxied(None) as proxy:
        await small(proxy)
        assert (await proxy.post(sized("other", "300m"))).status == 201
        waiting = resizing(proxy, "x", resources("1800m"))
        await asyncio.sleep(1)
        assert proxy.gate.counts.waiting == 1
        await proxy.delete("other")
        response = await waiting
        assert response.status == 200, response.body


@pytest.mark.parametrize("answer", [403, 404, 500])
async def test_a_resize_of_a_pod_that_can_not_be_read_waits(answer: int) -> None:
    """By the refusal alone it may fit."""
    async with proxied(None, HoldSettings(hold=1)) as proxy:
        await small(proxy)
        proxy.server.refuse = lambda request: said(answer, "no") if request.head.method == b"GET" else None
        assert (await resizing(proxy, "x", resources("2200m"))).status == 429


def claim(storage: str) -> JSON:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}


async def test_an_apply_that_enlarges_a_claim_beyond_the_quota_is_refused_at_once() -> None:
    """The refusal names only the 7Gi that are added to 5Gi, of 10Gi."""
    async with proxied(None) as proxy:
        proxy.server.sandbox.create_quota("team", "q", {"requests.storage": "10Gi"})
        assert (await proxy.post(claim("5Gi"), target=CLAIMS)).status == 201
        text = 'persistentvolumeclaims "data" is forbidden: exceeded quota: q, requested: requests.storage=7Gi, used: '
        text += "requests.storage=5Gi, limited: requests.storage=10Gi"
        proxy.server.refuse = first(said(403, text))
        response = await applying(proxy, manifest=claim("12Gi"), target=CLAIMS + b"/data")
        assert (response.status, status_in(response)["message"]) == (403, text)
        assert now() < 0.5


# -- answers that pass by themselves ---------


NOT_STORED = [
    pytest.param(said(409, CONFLICT, details={"name": "q", "kind": "resourcequotas"}), id="conflict"),
    pytest.param(said(500, f"Internal error occurred: {CONFLICT}", reason="InternalError"), id="conflict as a 500"),
    pytest.param(said(500, "Internal error occurred: resource quota evaluation timed out"), id="evaluation timed out"),
    pytest.param(said(500, "error resolving quota: the cache is not ready"), id="quotas not read"),
    pytest.param(said(403, 'pods "web" is forbidden: status unknown for quota: q, resources: pods'), id="not counted"),
    pytest.param(said(500, 'Internal error occurred: failed calling webhook "w": refused'), id="webhook failed"),
    pytest.param(said(403, 'pods "web" is forbidden: error looking up service account team/default'), id="not ready"),
]


@pytest.mark.parametrize("answer", NOT_STORED)
@pytest.mark.parametrize("kind", ["apply", "create", "unreadable"])
async def test_what_stored_nothing_and_passes_is_sent_again(kind: str, answer: Response) -> None:
    """For an apply, which is how Helm 4 creates, as for a POST."""
    async with proxied(5) as proxy:
        proxy.server.refuse = first(answer, answer, answer)
        if kind == "unreadable":
            answers = [answer, answer, answer, answered(201, b"stored", "application/cbor")]
            proxy.server.refuse = first(*answers)
        ways: dict[str, Callable[[], asyncio.Task[Response]]] = {
            "create": lambda: proxy.post(pod("web")),
            "apply": lambda: applying(proxy),
            "unreadable": lambda: proxy.post(b"cbor", content_type=b"application/cbor"),
        }
        response = await ways[kind]()
        assert response.status == 201, response.body
        assert len(writes(proxy)) == 4
        assert 0.0 < now() < 8.0, "not all at once"


async def test_a_resize_is_sent_again_after_a_conflict_on_the_quota() -> None:
    """A patch that was refused changed nothing."""
    async with proxied(None) as proxy:
        await small(proxy)
        proxy.server.refuse = first(said(409, CONFLICT), said(500, f"Internal error occurred: {CONFLICT}"))
        assert (await resizing(proxy, "x", resources("1"))).status == 200


async def test_an_apply_that_changes_an_object_needs_no_room_for_the_whole_of_it() -> None:
    """After a conflict it waits for what it adds, not for another pod's worth."""
    async with full(1) as proxy:
        (name,) = proxy.others
        proxy.server.refuse = first(said(409, CONFLICT))
        labelled = pod(name) | {"metadata": {"name": name, "labels": {"a": "b"}}}
        response = await applying(proxy, name, labelled)
        assert response.status == 200, response.body
        assert now() < 5


@pytest.mark.parametrize(
    "answer",
    [
        said(409, 'Apply failed with 1 conflict: conflict with "else": .spec.x', reason="Conflict"),
        said(422, 'Pod "web" is invalid: spec.containers: Required value', reason="Invalid"),
        said(429, "too many", reason="TooManyRequests"),
        said(503, "the server is currently unable to handle the request"),
        said(403, 'pods "web" is forbidden: failed quota: q: must specify limits.cpu for: c'),
    ],
    ids=lambda answer: str(answer.status),
)
async def test_other_answers_to_an_apply_are_its_clients(answer: Response) -> None:
    """At once: a 429 and a 503 make its client come again by itself."""
    async with proxied(5) as proxy:
        proxy.server.refuse = first(answer)
        response = await applying(proxy)
        assert (response.status, response.body) == (answer.status, answer.body)
        assert (len(writes(proxy)), now() < 0.1) == (1, True)


# -- unknown outcomes ---------


async def test_an_apply_whose_answer_was_lost_is_looked_up_and_sent_again() -> None:
    """It is stored, so the second apply changes nothing, and its caller gets the object."""
    async with full(2) as proxy:
        await proxy.delete(proxy.others[0])
        proxy.server.lost = 1
        response = await applying(proxy)
        assert response.status == 200, response.body
        assert json.loads(response.body)["metadata"]["name"] == "web"
        methods = [request.head.method for request in proxy.server.asked]
        assert methods[-3:] == [b"PATCH", b"GET", b"PATCH"]
        assert proxy.server.asked[-2].head.target == PODS + b"/web"
        assert now() < 2, "it needs no room: it is there"


@pytest.mark.parametrize("code", [500, 502, 504])
async def test_an_apply_whose_outcome_is_unknown_and_that_is_absent_is_sent_again(code: int) -> None:
    """So a POST is, too."""
    async with proxied(2) as proxy:
        proxy.server.refuse = first(said(code, "etcdserver: request timed out"), said(code, "the same"))
        response = await applying(proxy)
        assert response.status == 201, response.body
        assert (proxy.server.pods(), len(writes(proxy))) == (["web"], 3)


async def test_an_apply_whose_outcome_stays_unknown_ends_with_the_servers_answer() -> None:
    """After some tries, as a POST does."""
    async with proxied(2) as proxy:
        broken = said(500, "boom")
        proxy.server.refuse = lambda request: None if request.head.method == b"GET" else broken
        response = await applying(proxy)
        assert (response.status, response.body) == (500, broken.body)
        assert 3 <= len(writes(proxy)) <= 8


async def test_in_line_too_an_apply_is_looked_up() -> None:
    """It waited for room, was sent, and its answer was lost."""
    async with full(1) as proxy:
        (name,) = proxy.others
        waiting = applying(proxy)
        await asyncio.sleep(1)
        proxy.server.lost = 1
        await proxy.delete(name)
        assert (await waiting).status == 200
        assert proxy.server.pods() == ["web"]


async def test_a_resize_whose_outcome_is_unknown_is_its_clients() -> None:
    """A patch may do more when it is sent twice."""
    async with proxied(None) as proxy:
        await small(proxy)
        proxy.server.refuse = first(said(500, "boom"))
        assert (await resizing(proxy, "x", resources("1"))).status == 500
        proxy.server.lost = 1
        assert (await resizing(proxy, "x", resources("1"))).status == 504
        assert len(writes(proxy)) == 2
