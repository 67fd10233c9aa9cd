"""An API server in memory, below the official clients, and a create through each way into the gate."""

from __future__ import annotations

import asyncio
import http.client
import io
import itertools
import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import urllib3
from kubernetes import client
from multidict import CIMultiDict

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.any_gate import AnyGate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.clients.gating import waiting
from backoff_ctrl.k8s.gate.threads import Gate
from tests.kit.official import aio
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    Opened = tuple[AnyGate, Callable[[], Any], Callable[[], None]]

HOST = "http://in-memory"
JSON = {"Content-Type": "application/json", "X-Kubernetes-Pf-Prioritylevel-Uid": "level"}
POLICY = Policy(base=0.004, cap=0.01, settle_time=0.001)
NUMBERS = itertools.count()


class LostError(Exception):
    """The server has stored the object, and its answer is lost."""


@dataclass
class Server:
    """Answers as an API server; ``first`` says how the first POST ends: "refused", "lost" or "invalid".

    "keyed" is "refused" for a create with an idempotency key.
    """

    first: str
    number: int = field(default_factory=lambda: next(NUMBERS))
    stored: dict[str, Any] = field(default_factory=dict)
    posts: int = 0
    answered: bool = False  # the create was answered for the last time

    @property
    def stage(self) -> str:
        """How far the create is, as the server sees it."""
        return "answered" if self.answered else "posted" if self.posts else "unseen"

    @property
    def namespace(self) -> str:
        """A namespace that nobody has asked for, so that nothing is remembered of it."""
        return f"team-{self.number}"

    @property
    def pod(self) -> dict[str, Any]:
        """A manifest of a shape that nobody has asked for."""
        spec = {"hostname": f"host-{self.number}", "containers": [{"name": "c", "image": "i"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}

    def answer(self, method: str, url: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Return status and object."""
        name = url.rpartition("/")[2]
        if method == "POST":
            self.posts += 1
            return self._create(body)
        if name == "resourcequotas":
            quota = {"spec": {"hard": {"pods": "1"}}, "status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}}
            return 200, {"kind": "ResourceQuotaList", "items": [{"metadata": {"name": "q"}, **quota}]}
        self.answered = name in self.stored
        return (200, self.stored[name]) if name in self.stored else _failure(404, "NotFound", "not found")

    def _create(self, body: Any) -> tuple[int, dict[str, Any]]:
        if self.first == "invalid":
            self.answered = True
            return _failure(422, "Invalid", "spec: Required value")
        if self.first in ("refused", "keyed") and self.posts == 1:
            text = "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
            return _failure(403, "Forbidden", f'pods "p" is forbidden: {text}')
        metadata = body["metadata"]
        name = metadata.get("name") or f"{metadata['generateName']}{self.posts}"
        if name in self.stored:
            return _failure(409, "AlreadyExists", f'pods "{name}" already exists')
        self.stored[name] = {**body, "metadata": {**metadata, "name": name, "uid": f"uid-{self.posts}"}}
        if self.first == "lost" and self.posts == 1:
            raise LostError
        self.answered = True
        return 201, self.stored[name]


def _failure(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}


class _Wire:
    """Stands in for the connections of the client for threads."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def request(self, method: str, url: str, *_: Any, body: Any = None, **__: Any) -> urllib3.HTTPResponse:
        try:
            status, said = self._server.answer(method, url, body and json.loads(body))
        except LostError as error:
            raise urllib3.exceptions.ProtocolError("the connection was reset") from error
        return urllib3.HTTPResponse(
            body=io.BytesIO(json.dumps(said).encode()),
            headers=JSON,
            status=status,
            reason=http.client.responses[status],
            preload_content=False,
        )

    def clear(self) -> None:
        """Nothing is open."""


class _AioWire:
    """The same for asyncio."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def request(self, *, method: str, url: str, data: Any = None, **_: Any) -> _Read:
        await asyncio.sleep(0)
        try:
            status, said = self._server.answer(method, url, data and json.loads(data))
        except LostError as error:
            raise aiohttp.ServerDisconnectedError from error
        return _Read(status, json.dumps(said).encode())


class _Read:
    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.reason, self.headers = status, http.client.responses[status], CIMultiDict(JSON)
        self._body = body

    async def read(self) -> bytes:
        return self._body


def threads(server: Server) -> Opened:
    """A gate, a create through the client for threads, which returns the name, and what closes the client."""
    gate, core = _gated(server)
    return gate, lambda: core.create_namespaced_pod(server.namespace, server.pod).metadata.name, core.api_client.close


def async_req(server: Server) -> Opened:
    """The same with ``async_req``."""
    gate, core = _gated(server)

    def create() -> Any:
        return core.create_namespaced_pod(server.namespace, server.pod, async_req=True).get(PATIENCE).metadata.name

    return gate, create, core.api_client.close


def _gated(server: Server) -> tuple[Gate, Any]:
    gate = Gate(policy=POLICY, rng=random.Random(1))
    gate.ledger.line.list_quotas_first(60.0)
    api: Any = GatedApiClient(client.Configuration(host=HOST), gate=gate)
    api.rest_client.pool_manager = _Wire(server)
    return gate, client.CoreV1Api(api)


def in_asyncio(server: Server) -> Opened:
    """The same for asyncio."""
    gate = AsyncGate(policy=POLICY, rng=random.Random(1))
    gate.ledger.line.list_quotas_first(60.0)

    async def make() -> Any:
        api: Any = AsyncGatedApiClient(aio.Configuration(host=HOST), gate=gate)
        if api.rest_client.pool_manager is not None:  # older clients open it at once
            await api.rest_client.pool_manager.close()
        api.rest_client.pool_manager = _AioWire(server)
        return api

    core: Any = aio.CoreV1Api(asyncio.run(make()))

    async def create() -> Any:
        async with asyncio.timeout(PATIENCE):
            return (await core.create_namespaced_pod(server.namespace, server.pod)).metadata.name

    return gate, lambda: asyncio.run(create()), lambda: None


def options(first: str) -> AbstractContextManager[None]:
    """Options that every create has: a time limit that it does not reach, a callback, and perhaps a key."""
    key = f"key-{next(NUMBERS)}" if first == "keyed" else None
    return waiting(timeout=PATIENCE, on_wait=lambda _: None, key=key)
