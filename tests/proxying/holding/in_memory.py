"""The sandbox as the upstream of a sidecar, without sockets: bytes in, bytes out, on the loop's clock."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.kube.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.kube.charges.quotas import read_quota
from backoff_ctrl.k8s.lab.sandbox import ApiError, Sandbox
from backoff_ctrl.k8s.lab.sandbox.http.forms import form_of
from backoff_ctrl.k8s.lab.sandbox.http.server import Sent
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import QUOTAS
from backoff_ctrl.k8s.lab.sandbox.objects.texts import dump
from backoff_ctrl.k8s.lab.sandbox.verbs.requests import Query, target_of, verb_of
from backoff_ctrl.k8s.sidecar.holding.holding import Holding
from backoff_ctrl.k8s.sidecar.holding.settings import HoldSettings
from backoff_ctrl.k8s.sidecar.http.messages import Head, Request, Response

PODS = b"/api/v1/namespaces/team/pods"
PROTOBUF = b"application/vnd.kubernetes.protobuf"
SIGNED = "c2ln"
"""The signature of a token that the server has issued."""


class MemoryServer:
    """Answers whole requests with the sandbox's own operations, ``latency`` seconds after they were sent."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.latency = 0.002
        self.asked: list[Request] = []
        self.down = False
        self.lost = 0  # so many writes are stored, and their answers lost
        self.refuse: Callable[[Request], Response | None] = lambda _: None
        self.reviews: list[Request] = []
        """What callers were asked about: who they are, and what they may."""
        self.review: Callable[[Request], Response] = reviewed

    def posts(self) -> list[Request]:
        return [request for request in self.asked if request.head.method == b"POST"]

    def pods(self) -> list[str]:
        operations, kinds = self.sandbox._front._operations, self.sandbox._core.kinds
        page = operations.read("list", target_of(kinds, PODS.decode()), Query(""), form_of("", ""))
        return [pod["metadata"]["name"] for pod in json.loads(page)["items"]]

    async def ask(self, request: Request, limit: int = 3 * 2**20) -> Response:
        if self.down:
            raise NotSent("connection refused")
        if request.head.target.startswith(b"/apis/auth"):
            self.reviews.append(request)
            await asyncio.sleep(self.latency)
            return self.review(request)
        self.asked.append(request)
        await asyncio.sleep(self.latency / 2)
        response = self.refuse(request) or self.answer(request)
        await asyncio.sleep(self.latency / 2)
        if self.lost and request.head.method in (b"POST", b"PATCH"):
            self.lost -= 1
            raise OutcomeUnknown("the connection was reset")
        return response

    def answer(self, request: Request) -> Response:
        path, _, query = request.head.target.decode().partition("?")
        try:
            target = target_of(self.sandbox._core.kinds, unquote(path).rstrip("/"))  # as a real one does
            asked = Query(query)
            method = request.head.method.decode()
            verb = verb_of(method, target, asked)
            form = form_of((request.head.get(b"accept") or b"").decode(), "")
            operations = self.sandbox._front._operations
            if verb in ("get", "list"):
                return answered(200, operations.read(verb, target, asked, form), "application/json")
            content_type = request.head.get(b"content-type")
            sent = Sent(request.body, None if content_type is None else content_type.decode(), "test")
            code, stored = operations.write(verb, target, asked, sent)
            return answered(code, form.of_one(target, stored), "application/json")
        except ApiError as error:
            return answered(error.code, dump(error.status), "application/json")


def answered(code: int, body: bytes, media_type: str) -> Response:
    return Response(code, b"", [(b"Audit-Id", b"a-1"), (b"Content-Type", media_type.encode())], body)


def reviewed(request: Request) -> Response:
    """A review's answer: anybody may create whose token is signed, or opaque, and is who the token says."""
    secret = (request.head.get(b"authorization") or b"").removeprefix(b"Bearer ").decode()
    acts_as = request.head.get(b"impersonate-user")
    user, parts = secret, secret.split(".")
    if len(parts) == 3:
        if parts[2] != SIGNED:
            return answered(401, b'{"kind":"Status","code":401,"reason":"Unauthorized"}', "application/json")
        user = json.loads(base64.urlsafe_b64decode(parts[1] + "=="))["sub"]
    review = json.loads(request.body)
    if review["kind"] == "SelfSubjectReview":
        review["status"] = {"userInfo": {"username": acts_as.decode() if acts_as else user, "uid": f"u-{user}"}}
    else:
        review["status"] = {"allowed": not user.startswith("nobody")}
    return answered(201, json.dumps(review).encode(), "application/json")


class Proxied:
    """A sidecar in front of that server, and what its callers do."""

    def __init__(self, server: MemoryServer, gate: AsyncGate, settings: HoldSettings | None) -> None:
        self.server = server
        self.gate = gate
        self.holding = Holding(server.ask, gate, "http://sandbox", settings)
        self.others: list[str] = []
        """The pods that fill the quota, in the order of their names."""

    def post(
        self,
        manifest: Any,
        *,
        target: bytes = PODS,
        token: str = "ann",
        accept: bytes = b"application/json",
        content_type: bytes = b"application/json",
        method: bytes = b"POST",
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> asyncio.Task[Response]:
        """Send a create to the sidecar; cancel the task to hang up."""
        body = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
        given = [(b"Authorization", f"Bearer {token}".encode()), (b"Accept", accept), (b"Content-Type", content_type)]
        given += [(b"Content-Length", str(len(body)).encode()), *headers]
        request = Request(Head(method, target, given), body)
        assert self.holding.reads(request.head), "the proxy reads this request"
        return asyncio.get_running_loop().create_task(self.holding.answer(request))

    async def repeat(self, manifest: Any, **how: Any) -> list[Response]:
        """Send a create as client-go does: again after each 429 with ``Retry-After``, ten times at the most."""
        responses = []
        for _ in range(11):
            responses.append(await self.post(manifest, **how))
            retry_after = Head(b"", b"", responses[-1].headers).get(b"retry-after")
            if responses[-1].status != 429 or retry_after is None:
                break
            await asyncio.sleep(int(retry_after))
        return responses

    def watch(self) -> None:
        """Report quotas to the gate as they change, as the watch does."""
        ledger = self.gate.ledger

        def report(quota: Any) -> None:
            metadata = quota["metadata"]
            ledger.observe_quota(metadata["namespace"], metadata["name"], read_quota(quota))

        core = self.server.sandbox._core
        core.store.listen(lambda kind, _, stored: report(stored) if kind is QUOTAS else None)
        for name in ("q",):
            report(self.server.sandbox.get(QUOTAS, "team", name))
        ledger.watching("team")

    async def fill(self, count: int) -> list[str]:
        """Create so many pods without the proxy; return their names."""
        before = set(self.server.pods())
        head = Head(b"POST", PODS, [(b"Content-Type", b"application/json")])
        for _ in range(count):
            response = await self.server.ask(Request(head, json.dumps(pod(prefix="other-")).encode()))
            assert response.status == 201, response.body
        self.server.asked.clear()
        return [name for name in self.server.pods() if name not in before]

    async def delete(self, name: str) -> None:
        head = Head(b"DELETE", PODS + b"/" + name.encode() + b"?gracePeriodSeconds=0", [])
        response = await self.server.ask(Request(head, b""))
        assert response.status == 200, response.body


@asynccontextmanager
async def proxied(
    hard: int | None = 1, settings: HoldSettings | None = None, *, policy: Policy | None = None, mode: Any = None
) -> AsyncIterator[Proxied]:
    """A sidecar in front of a server whose namespace ``team`` has a quota ``q`` of so many pods (None: no quota)."""
    sandbox = Sandbox(late_events=0.0)
    core = sandbox._core
    core.pacing.loop = asyncio.get_running_loop()
    core.controller.start()
    sandbox.create_namespace("team")
    if hard is not None:
        sandbox.create_quota("team", "q", {"pods": str(hard)})
    try:
        yield Proxied(MemoryServer(sandbox), AsyncGate(policy=policy, mode=mode), settings)
    finally:
        core.controller.stop()
        core.pacing.loop = None


@asynccontextmanager
async def full(hard: int = 1, settings: HoldSettings | None = None, **more: Any) -> AsyncIterator[Proxied]:
    """The same, once others have filled the quota and the sidecar watches it."""
    async with proxied(hard, settings, **more) as proxy:
        proxy.others = await proxy.fill(hard)
        proxy.watch()
        yield proxy


def pod(name: str | None = None, prefix: str = "web-") -> dict[str, Any]:
    """A pod's manifest, under a name of its creator's or with a prefix."""
    metadata = {"generateName": prefix} if name is None else {"name": name}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def token(subject: str, stamp: str = "", signature: str = SIGNED) -> str:
    claims = {"iss": "https://cluster", "sub": f"system:serviceaccount:team:{subject}", "jti": stamp}
    parts = (json.dumps(part).encode() for part in ({"alg": "RS256"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), signature])


def status_in(response: Response) -> dict[str, Any]:
    found = json.loads(response.body)
    assert found["kind"] == "Status", found
    return dict(found)


def header(response: Response, name: bytes) -> bytes | None:
    return Head(b"", b"", response.headers).get(name)


def name_of(response: Response) -> str:
    assert response.status == 201, response.body
    return str(json.loads(response.body)["metadata"]["name"])


def now() -> float:
    return asyncio.get_running_loop().time()


async def hang_up(task: asyncio.Task[Response]) -> None:
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def held(proxy: Proxied, *tasks: asyncio.Task[Response]) -> None:
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in tasks)
    assert proxy.gate.counts.waiting >= len(tasks)
