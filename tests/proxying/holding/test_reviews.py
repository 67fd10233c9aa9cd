"""Who asks is what the API server says, and who may not create is told nothing: reviews before a create waits."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.answers.answer import NotSent
from backoff_ctrl.k8s.sidecar.holding.holding import Holding
from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings
from backoff_ctrl.k8s.sidecar.http.messages import Head, Request, Response
from tests.proxying.holding.in_memory import (
    PODS,
    Proxied,
    answered,
    full,
    hang_up,
    header,
    held,
    name_of,
    now,
    pod,
    proxied,
    reviewed,
    status_in,
    token,
)

ACCESS = b"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WHO = b"/apis/authentication.k8s.io/v1/selfsubjectreviews"
FORGED = token("ann", "forged", "bm9uZQ")
UNKNOWN = b'{"kind":"Status","apiVersion":"v1","message":"Unauthorized","reason":"Unauthorized","code":401}'


def forbidden(kind: str) -> Response:
    status = {"kind": "Status", "apiVersion": "v1", "reason": "Forbidden", "details": {"kind": kind}, "code": 403}
    message = f'{kind} is forbidden: User "x" cannot create resource "{kind}" in API group "" in the namespace "team"'
    return answered(403, json.dumps({**status, "message": message}).encode(), "application/json")


def places(response: Response) -> str:
    causes = status_in(response)["details"]["causes"]
    return "".join(each["message"] for each in causes if each["field"] == "place")


async def put_off(proxy: Proxied, name: str, **how: Any) -> Response:
    return await proxy.post(pod(name), target=PODS + b"?timeout=500ms", **how)


@pytest.mark.parametrize("review", ["answered", "failing"])
async def test_a_forged_token_takes_nobodys_place(review: str) -> None:
    """Its claims are the victim's, issuer and subject; the server does not know it, or is too busy to say so."""
    async with full(1) as proxy:
        victim = proxy.post(pod("mine"), token=token("ann"))
        await asyncio.sleep(0.01)
        other = proxy.post(pod("other"), token="bob")
        await held(proxy, victim, other)
        await hang_up(victim)
        unknown = answered(401, UNKNOWN, "application/json")
        if review == "failing":
            proxy.server.review = lambda _: answered(429, b"busy", "text/plain")
            assert places(await put_off(proxy, "mine", token=FORGED)) == "2"
        else:
            proxy.server.refuse = lambda request: unknown if request.head.method == b"POST" else None
            assert await put_off(proxy, "mine", token=FORGED) == unknown
        proxy.server.review, proxy.server.refuse = reviewed, lambda _: None
        assert places(await put_off(proxy, "mine", token=token("ann", "renewed"))) == "1"
        await hang_up(other)


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ([], forbidden("selfsubjectaccessreviews")),
        ([], answered(401, UNKNOWN, "application/json")),
        ([(b"Authorization", b"Bearer nobody")], None),
        ([(b"Authorization", b"Bearer expired")], answered(401, UNKNOWN, "application/json")),
        ([(b"Authorization", b"Bearer x"), (b"Impersonate-User", b"root")], forbidden("users")),
        ([(b"Authorization", b"Bearer x"), (b"Impersonate-User", b"root")], forbidden("selfsubjectaccessreviews")),
    ],
    ids=[
        "no credentials",
        "no credentials, none allowed",
        "no right",
        "a bad token",
        "no right to impersonate",
        "no right to act as another here, since 1.36",
    ],
)
async def test_who_may_not_create_gets_the_servers_own_answer_at_once(given: Any, answer: Response | None) -> None:
    """And hears nothing of the quota: not its name, not what is left, not who waits. The bytes go as they came."""
    async with full(1) as proxy:
        refused = forbidden("pods")
        proxy.server.refuse = lambda request: refused if request.head.method == b"POST" else None
        proxy.server.review = reviewed if answer is None else lambda _: answer
        body = json.dumps(pod()).encode()
        request = Request(Head(b"POST", PODS, [*given, (b"Content-Type", b"application/json")]), body)
        for _ in range(2):
            assert await proxy.holding.answer(request) == refused
        assert [each.body for each in proxy.server.posts()] == [body] * 2
        assert now() < 0.1
        assert proxy.gate.ledger.snapshot().namespaces["team"].waiting == 0


async def test_a_create_without_credentials_may_wait_where_the_proxy_lends_its_own() -> None:
    """``--use-own-credentials``: whether the proxy itself may not even ask says nothing about creates."""
    async with full(1) as proxy:
        proxy.holding = Holding(proxy.server.ask, proxy.gate, "http://sandbox", lends=True)
        proxy.server.review = lambda _: forbidden("selfsubjectaccessreviews")
        request = Request(Head(b"POST", PODS + b"?timeout=500ms", []), json.dumps(pod()).encode())
        assert (await proxy.holding.answer(request)).status == 429
        assert not proxy.server.posts()


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503, None, "slow", "not JSON"])
async def test_a_review_that_fails_refuses_nobody(status: Any) -> None:
    """It waits as before, and is known by its token: who comes again with it has its place."""
    async with full(1) as proxy:

        def review(_: Request) -> Response:
            if status is None:
                raise NotSent("connection refused")
            if status == 403:
                return forbidden("selfsubjectaccessreviews")
            return answered(201 if status == "not JSON" else status, b"[1]", "application/json")

        proxy.server.review = review
        if status == "slow":
            proxy.server.latency = 60.0
        first = proxy.post(pod("first"), token=token("ann"))
        await asyncio.sleep(2.1)
        other = proxy.post(pod("other"), token="bob")
        await asyncio.sleep(2.1)
        await held(proxy, first, other)
        await hang_up(first)
        again = await proxy.post(pod("first"), token=token("ann"), target=PODS + b"?timeout=1s")
        assert places(again) == "1"
        assert not proxy.server.posts()
        await hang_up(other)


async def test_a_free_create_costs_no_request() -> None:
    """Nobody asks who it is. Nor does anybody where nothing is enforced."""
    async with proxied(3) as proxy:
        proxy.watch()
        for _ in range(3):
            name_of(await proxy.post(pod()))
        assert not proxy.server.reviews
    async with full(1, mode="shadow") as proxy:
        assert (await proxy.post(pod())).status == 403
        assert not proxy.server.reviews


async def test_a_review_holds_for_a_minute() -> None:
    """One for each token; whether it may create is asked for each kind and namespace. All at once ask once."""
    async with full(1, HoldSettings(hold=1)) as proxy:
        await asyncio.gather(*(put_off(proxy, f"w-{number}", token="ann") for number in range(20)))
        asked = [request.head.target for request in proxy.server.reviews]
        assert sorted(asked) == [WHO, ACCESS]
        for request in proxy.server.reviews:
            assert request.head.get(b"authorization") == b"Bearer ann"
        attributes = json.loads(proxy.server.reviews[asked.index(ACCESS)].body)["spec"]["resourceAttributes"]
        assert {name: value for name, value in attributes.items() if value} == {
            "namespace": "team", "verb": "create", "resource": "pods",
        }  # fmt: skip
        await put_off(proxy, "w-1", token="ann", headers=[(b"Impersonate-User", b"carl")])
        assert len(proxy.server.reviews) == 4, "acting as another user it is another caller"
        assert proxy.server.reviews[-1].head.get(b"impersonate-user") == b"carl"
        await asyncio.sleep(60)
        await put_off(proxy, "w-1", token="ann")
        assert len(proxy.server.reviews) == 6


async def test_who_begins_to_wait_unforeseen_is_asked_for_in_line() -> None:
    """Nothing was known of the quota, so that the first create was sent: its refusal proves that it may wait."""
    async with proxied(1, HoldSettings(hold=1)) as proxy:
        await proxy.fill(1)
        left = proxy.post(pod("mine"), token=token("ann"))
        await held(proxy, left)
        assert len(proxy.server.reviews) == 2
        other = proxy.post(pod("other"), token="bob")
        await held(proxy, left, other)
        await hang_up(left)
        assert places(await put_off(proxy, "mine", token=token("ann", "renewed"))) == "1"
        await hang_up(other)


async def test_who_may_not_create_leaves_the_line_it_joined_unforeseen() -> None:
    """Its quotas are listed first, and full: it is passed on as soon as the server says that it may not."""
    async with proxied(1) as proxy:
        proxy.gate.ledger.line.list_quotas_first(100.0)
        await proxy.fill(1)
        refused = forbidden("pods")
        proxy.server.refuse = lambda request: refused if request.head.method == b"POST" else None
        assert await proxy.post(pod(), token="nobody") == refused
        assert now() < 0.1
        snapshot = proxy.gate.ledger.snapshot().namespaces["team"]
        assert (snapshot.waiting, snapshot.seats) == (0, 0)


async def test_who_may_not_create_is_not_told_that_it_never_fits() -> None:
    """Nor is it where the list of quotas says so, before anybody could ask."""
    huge = pod("huge")
    huge["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "9"}}
    async with proxied(None) as proxy:
        proxy.gate.ledger.line.list_quotas_first(100.0)
        proxy.server.sandbox.create_quota("team", "q", {"requests.cpu": "4"})
        refused = forbidden("pods")
        proxy.server.refuse = lambda request: refused if request.head.method == b"POST" else None
        for _ in range(2):
            assert await proxy.post(huge, token="nobody") == refused
        proxy.server.refuse = lambda _: None
        proxy.server.asked.clear()
        assert "exceeded quota: q" in status_in(await proxy.post(huge, token="ann"))["message"]
        assert not proxy.server.posts()


async def test_a_refusal_by_the_quota_proves_the_right_that_a_review_denied() -> None:
    """It was granted within the minute: the create waits by its refusal."""
    async with full(1) as proxy:
        (name,) = proxy.others
        waiting = proxy.post(pod("web"), token="nobody")
        await held(proxy, waiting)
        assert len(proxy.server.posts()) == 1
        await proxy.delete(name)
        assert name_of(await waiting) == "web"


async def test_who_is_asked_for_at_the_end_of_the_proxy_comes_again() -> None:
    """It does not begin to wait."""
    async with full(1) as proxy:
        proxy.server.latency = 1.0
        asked = proxy.post(pod("web"))
        await asyncio.sleep(0.1)
        await proxy.holding.close()
        response = await asked
        assert (response.status, header(response, b"retry-after"), now() < 2) == (429, b"5", True)
