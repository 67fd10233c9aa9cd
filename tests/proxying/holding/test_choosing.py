"""Which requests the sidecar reads, and which stream past."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from backoff_ctrl.k8s.gate.creates.calls import read_collection
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.kube.charges.quotas import read_quota
from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings, patience_of
from backoff_ctrl.k8s.sidecar.http.messages import Head, Request, Response
from backoff_ctrl.k8s.sidecar.http.requests import Part, RequestReader
from tests.kit.spellings import TARGETS, Spelling, recorded
from tests.proxying.holding.in_memory import PODS, answered, full, header, held, name_of, now, pod, proxied, status_in

NS = "/api/v1/namespaces/team/"
APPLY = b"application/apply-patch+yaml"
PLANTED = "exceeded quota: fake, requested: pods=1, used: pods=5, limited: pods=5"
LEASES = "count/leases.coordination.k8s.io"
JOBS = b"/apis/batch/v1/namespaces/team/jobs"


def head(method: str, target: str, *headers: tuple[bytes, bytes]) -> Head:
    return Head(method.encode(), target.encode(), list(headers))


READ = [
    head("POST", NS + "pods"),
    head("POST", NS + "pods?fieldManager=x&timeout=5s"),
    head("POST", NS + "persistentvolumeclaims"),
    head("POST", NS + "services"),
    head("PATCH", NS + "pods/web?fieldManager=x", (b"content-type", APPLY)),
    head("PATCH", NS + "pods/web/resize", (b"Content-Type", b"application/merge-patch+json")),
    head("PUT", NS + "pods/web/resize"),
    head("POST", NS + "pods", (b"Content-Length", str(3 << 20).encode())),
]
PASSES = [
    head("GET", NS + "pods"),
    head("DELETE", NS + "pods/web"),
    head("POST", NS + "pods?dryRun=All"),
    head("PATCH", NS + "pods/web?dryRun=All", (b"Content-Type", APPLY)),
    head("POST", NS + "pods/web/exec?command=ls"),
    head("POST", NS + "pods/web/eviction"),
    head("POST", NS + "pods/web/binding"),
    head("POST", NS + "serviceaccounts/a/token"),
    head("POST", NS + "bindings"),
    head("POST", NS + "events"),
    head("POST", "/apis/coordination.k8s.io/v1/namespaces/team/leases"),
    head("POST", NS + "configmaps"),
    head("POST", "/apis/batch/v1/namespaces/team/jobs"),
    head("POST", "/apis/authorization.k8s.io/v1/namespaces/team/localsubjectaccessreviews"),
    head("POST", "/api/v1/namespaces"),
    head("PUT", NS + "pods/web"),
    head("PATCH", NS + "pods/web", (b"Content-Type", b"application/merge-patch+json")),
    head("PATCH", NS + "pods/web/status", (b"Content-Type", APPLY)),
    head("POST", NS + "pods", (b"Content-Length", str((3 << 20) + 1).encode())),
    head("POST", NS + "pods", (b"Content-Length", b"9" * 5000)),
    head("POST", "/api/v1/namespaces/team/pods/../secrets"),
    Head(b"POST", b"\xff\xfe", []),
]


@pytest.mark.parametrize("given", [*READ, *PASSES], ids=lambda given: f"{given.method} {given.target}"[:80])
async def test_creates_that_a_quota_may_refuse_are_read_and_all_else_passes(given: Head) -> None:
    """Of kinds that most quotas are about; never what stores nothing, is urgent, too large or only tried."""
    async with proxied() as proxy:
        assert proxy.holding.reads(given) is (given in READ)


async def test_other_kinds_are_read_once_a_quota_names_them() -> None:
    """As the watch reports it; of that namespace alone. Else every ConfigMap would stand in line."""
    async with proxied(None) as proxy:
        proxy.server.sandbox.create_quota("team", "q", {"count/jobs.batch": "1", "configmaps": "5", LEASES: "1"})
        assert not proxy.holding.reads(Head(b"POST", JOBS, []))
        proxy.watch()
        assert proxy.holding.reads(Head(b"POST", JOBS, []))
        assert proxy.holding.reads(head("POST", NS + "configmaps"))
        assert not proxy.holding.reads(head("POST", NS + "secrets"))
        assert not proxy.holding.reads(Head(b"POST", JOBS.replace(b"team", b"other"), []))
        lease = "/apis/coordination.k8s.io/v1/namespaces/team/leases/leader"
        assert not proxy.holding.reads(head("PATCH", lease, (b"Content-Type", APPLY))), "a lost lease does harm"


async def test_other_kinds_are_read_once_a_refusal_of_one_that_passed_named_them() -> None:
    """And the amounts are known then: the next create waits, and is not sent."""
    async with proxied(None) as proxy:
        proxy.server.sandbox.create_quota("team", "q", {"count/jobs.batch": "1"})
        created = Head(b"POST", JOBS, [(b"Content-Type", b"application/json")])
        refusals = 0
        for name in ("a", "b"):
            response = await proxy.server.ask(Request(created, json.dumps(job(name)).encode()))
            if proxy.holding.watches(created, response.status):
                refusals += 1
                proxy.holding.passed(created, response.status, response.headers, response.body)
            else:
                proxy.holding.passed(created, response.status, response.headers, b"")
            assert proxy.holding.reads(created) is (name == "b")
        assert refusals == 1
        proxy.server.asked.clear()
        assert (await proxy.post(job("c"), target=JOBS + b"?timeout=600ms")).status == 429
        assert not proxy.server.posts(), "the first probe comes later"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            f"pods/{quote(PLANTED)}/exec",
            f'pods "{PLANTED}" is forbidden: User "eve" cannot create resource "pods/exec"',
        ),
        (f"pods/{quote(PLANTED)}", f'pods "{PLANTED}" is forbidden: User "eve" cannot patch resource "pods"'),
        ("pods/web/exec", f'pods "web" is forbidden: {PLANTED}'),
    ],
)
async def test_a_quota_that_a_path_names_is_not_believed(target: str, message: str) -> None:
    """Else anybody, without a right, could have the next create of any namespace wait, and its memory fill up."""
    async with proxied(1) as proxy:
        given = head("POST" if target.endswith("exec") else "PATCH", NS + target, (b"Content-Type", APPLY))
        status = {"kind": "Status", "apiVersion": "v1", "message": message, "details": {"name": PLANTED}}
        body = json.dumps(status, separators=(",", ":")).encode()
        assert proxy.holding.watches(given, 403)
        proxy.holding.passed(given, 403, [(b"Content-Type", b"application/json")], body)
        assert not proxy.gate.ledger.snapshot().namespaces, "nothing is known"
        assert (await proxy.post(pod())).status == 201
        assert now() < 0.1


async def test_where_the_mode_is_off_nothing_is_read() -> None:
    """The body streams past."""
    async with proxied(mode={"team": "off"}) as proxy:
        assert not proxy.holding.reads(READ[0])
        assert proxy.holding.reads(head("POST", "/api/v1/namespaces/other/pods"))


async def test_an_apply_that_creates_is_sent_once_and_held_if_a_quota_refuses_it() -> None:
    """It is never marked: what it names, its field manager owns. An apply that changes nothing is not held."""
    async with full(1) as proxy:
        (name,) = proxy.others
        how: dict[str, Any] = {"method": b"PATCH", "content_type": APPLY}
        manifest = json.dumps(pod("web")).encode()
        target = PODS + b"/web?fieldManager=me"
        waiting = proxy.post(manifest, target=target, **how)
        await asyncio.sleep(1)
        assert (len(proxy.server.asked), proxy.gate.counts.waiting) == (1, 1)
        await proxy.delete(name)
        response = await waiting
        assert (response.status, header(response, b"audit-id")) == (201, b"a-1")
        sent = [request.body for request in proxy.server.asked if request.head.method == b"PATCH"]
        assert sent == [manifest, manifest]
        again = await proxy.post(manifest, target=target, **how)
        assert again.status == 200


async def test_a_body_that_cannot_be_read_is_held_with_the_amounts_of_its_refusal() -> None:
    """Sent as it is, and never again in doubt: nobody could tell whether it is stored."""
    async with proxied(None) as proxy:
        proxy.server.sandbox.create_quota("team", "q", {"pods": "1", "requests.cpu": "1"})
        proxy.watch()
        refused = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \\"x\\" is '
        refused += b"forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=500m, limited: "
        refused += b'requests.cpu=1","reason":"Forbidden","code":403}'
        answers = [_response(403, refused), _response(201, b"\x00stored")]
        proxy.server.refuse = lambda request: answers.pop(0) if request.head.method == b"POST" else None
        response = await proxy.post(b"\xd9\xd9\xf7cbor", content_type=b"application/cbor")
        assert (response.status, response.body) == (201, b"\x00stored"), "the quota has room, says the watch"
        assert [request.body for request in proxy.server.posts()] == [b"\xd9\xd9\xf7cbor"] * 2

        proxy.server.asked.clear()
        answers.append(_response(201, b"\x00other"))
        left = proxy.post(b"cbor, too", content_type=b"application/cbor")
        await asyncio.sleep(0.001)
        left.cancel()
        await asyncio.wait({left})
        again = await proxy.post(b"cbor, too", content_type=b"application/cbor")
        assert (again.status, again.body, len(proxy.server.posts())) == (201, b"\x00other", 1), "it went on"

        proxy.server.refuse = lambda _: _response(400, b"what is this?")
        response = await proxy.post(b"{", content_type=b"application/json")
        assert (response.status, response.body) == (400, b"what is this?")


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "learning"])
async def test_an_unreadable_create_that_waits_says_what_for(watched: bool) -> None:
    """The amounts are those of the refusal. It is not sent again at once: the refusal has taught."""
    async with proxied(1, HoldSettings(hold=0.4)) as proxy:
        await proxy.fill(1)
        if watched:
            proxy.watch()
        text = b'pods \\"x\\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
        refusal = b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"' + text + b'","code":403}'
        proxy.server.refuse = lambda request: _response(403, refusal) if request.head.method == b"POST" else None
        response = await proxy.post(b"cbor", content_type=b"application/cbor")
        causes = {cause["field"]: cause["message"] for cause in status_in(response)["details"]["causes"]}
        assert (response.status, causes["asked"], len(proxy.server.posts())) == (429, "1", 1)


@pytest.mark.parametrize(
    ("mode", "asked", "answer"), [("enforce", 5, "wait"), ("shadow", 1, "wait"), ("enforce", 1, "quota")]
)
async def test_an_unreadable_create_gets_the_servers_own_refusal(mode: Any, asked: int, answer: Any) -> None:
    """At once if it never fits or its namespace is not enforced; and where that is the answer to all."""
    async with proxied(1, HoldSettings(answer=answer, hold=0.4), mode=mode) as proxy:
        await proxy.fill(1)
        text = f'pods \\"x\\" is forbidden: exceeded quota: q, requested: pods={asked}, used: pods=1, limited: pods=1'
        refusal = f'{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"{text}","code":403}}'
        proxy.server.refuse = lambda _: _response(403, refusal.encode())
        response = await proxy.post(b"cbor", content_type=b"application/cbor")
        assert (response.status, response.body.decode(), len(proxy.server.posts())) == (403, refusal, 1)
        assert now() < (0.1 if answer == "wait" else 0.5)


async def test_a_namespace_where_other_kinds_are_created_is_watched() -> None:
    """Its quotas may name that kind. Where nothing watches, such answers are not looked at."""
    async with proxied() as proxy:
        created = head("POST", NS + "configmaps")
        assert not proxy.holding.watches(created, 201)
        told: list[str] = []
        proxy.gate.ledger.subscribe(Blocked(told.append))
        for given, status in ((created, 201), (created, 409), (PASSES[0], 200), (head("POST", NS + "events"), 201)):
            if proxy.holding.watches(given, status):
                proxy.holding.passed(given, status, [], b"")
        assert told == ["team"]


class Blocked(Subscriber):
    """Notes in which namespaces a quota holds creates up."""

    def __init__(self, told: Callable[[str], object]) -> None:
        self._told = told

    def blocked(self, namespace: str) -> None:
        self._told(namespace)


def job(name: str) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


def _response(status: int, body: bytes) -> Response:
    return answered(status, body, "application/json")


SPELLINGS = recorded()
UNKNOWN = {"/api/v1/namespaces/TEAM/pods"}
"""Refused because there is no such namespace, which only the server knows."""
named = pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.target)


def received(target: str) -> Head | None:
    """The head of a create with this target, as the sidecar's listener reads it; None: it is refused there."""
    reader = RequestReader()
    reader.feed(f"POST {target} HTTP/1.1\r\nHost: server\r\nContent-Length: 0\r\n\r\n".encode())
    kind, asked = reader.parts[0]
    return asked.head if kind is Part.HEAD else None  # type: ignore[union-attr]


def test_every_spelling_is_on_record() -> None:
    """In its order; at least 60, of which 30 are stored."""
    assert [spelling.target for spelling in SPELLINGS] == list(TARGETS)
    assert sum(spelling.outcome == "stored" for spelling in SPELLINGS) >= 30


@named
async def test_the_sidecar_holds_what_the_server_stores_and_nothing_else(spelling: Spelling) -> None:
    """What is only tried, or refused, never waits."""
    async with proxied() as proxy:
        proxy.gate.ledger.observe_quota("team", "jobs", read_quota({"spec": {"hard": {"count/jobs.batch": "9"}}}))
        head = received(spelling.target)
        reads = head is not None and proxy.holding.reads(head)
        assert reads is (spelling.outcome == "stored" or spelling.target in UNKNOWN)


@named
def test_a_gated_client_reads_a_url_as_the_server_does(spelling: Spelling) -> None:
    """Behind the address of its server."""
    path = spelling.target.removeprefix("http://server").removeprefix("https://server")
    target = read_collection("https://host", f"https://host{path}")
    assert target is not None or spelling.outcome != "stored"
    assert target is None or spelling.outcome != "tried"
    if target is not None and spelling.outcome == "stored":
        assert (target.namespace, target.resource) in {("team", "pods"), ("team", "jobs.batch")}


@pytest.mark.parametrize(
    ("path", "found_at"),
    [
        (b"/api/v1/%6eamespaces%2fteam/%70ods", b"/api/v1/%6eamespaces%2fteam/%70ods/odd"),
        (PODS + b"%2f/", PODS + b"/odd"),
    ],
)
async def test_an_odd_spelling_waits_and_is_found_again(path: bytes, found_at: bytes) -> None:
    """Its answer is lost: the object is looked up where the server has it."""
    async with full(1) as proxy:
        (name,) = proxy.others
        waiting = proxy.post(pod("odd"), target=path)
        await held(proxy, waiting)
        proxy.server.lost = 1
        await proxy.delete(name)
        assert name_of(await waiting) == "odd"
        assert [each.head.target for each in proxy.server.asked if each.head.method == b"GET"] == [found_at]


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        (b"timeout=4s", 2.0), (b"t%69meout=4s", 2.0), (b"x=1&timeout=%34s", 2.0), (b"timeout=4s;", 8.0),
        (b"timeout=%zz", 8.0), (b"timeout=4", 8.0), (b"", 8.0),
    ],
)  # fmt: skip
def test_a_callers_time_out_is_read_as_the_server_reads_it(query: bytes, seconds: float) -> None:
    """A value that Go drops limits nothing."""
    assert patience_of(PODS + b"?" + query, 8.0) == seconds
