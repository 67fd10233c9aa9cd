"""The aio client's session: when it consults the environment, and a server that never answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.aio import client

from backoff_ctrl.k8s.answers.answer import Answer
from backoff_ctrl.k8s.creates.creation import Creation
from backoff_ctrl.k8s.creates.patience import SERVER_LIMIT
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gated.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.replay.virtual_time import run_virtual

if TYPE_CHECKING:
    from pathlib import Path

HOST = "http://api.example:8080"


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove proxies and credentials from the environment."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "netrc"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


async def trusts(**given: Any) -> bool:
    """Return whether a client's session consults the environment at each request. The configuration is not changed."""
    configuration = client.Configuration(host=HOST)
    for name, value in given.items():
        setattr(configuration, name, value)
    api = AsyncGatedApiClient(configuration, gate=AsyncGate())
    async with api, api.rest_client._create_pool_manager() as session:
        assert api.rest_client.configuration is api.configuration
        assert getattr(api.configuration, "client_session_kwargs", None) == given.get("client_session_kwargs")
        return bool(session.trust_env)


async def test_an_environment_without_proxy_or_netrc_is_not_consulted() -> None:
    assert not await trusts()


async def test_a_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert await trusts()
    monkeypatch.setenv("no_proxy", "api.example")
    assert not await trusts()


@pytest.mark.parametrize("name", [".netrc", "_netrc"])
async def test_credentials_are_taken_from_a_netrc_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("machine api.example login a password b\n", "utf-8")
    assert await trusts()


async def test_credentials_are_taken_from_a_netrc_file_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NETRC", "/somewhere/else")
    assert await trusts()


async def test_the_callers_options_of_the_session_are_kept() -> None:
    assert await trusts(client_session_kwargs={"trust_env": True})
    assert not await trusts(client_session_kwargs={"read_bufsize": 2**20})


class Mute:
    """A transport whose server takes the first send and never answers it."""

    def __init__(self) -> None:
        self.looked_at: list[float] = []

    async def send(self, body: dict[str, Any]) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError("never set")

    async def look_up(self, name: str) -> Answer:
        self.looked_at.append(asyncio.get_running_loop().time())
        found = b'{"kind":"Pod","metadata":{"name":"a","annotations":{"backoff-ctrl.dev/create-id":"mine"}}}'
        return Answer(200, {}, found)


def test_a_send_without_an_answer_is_looked_up_once_the_server_has_ended_it() -> None:
    transport = Mute()
    metadata = {"name": "a", "annotations": {"backoff-ctrl.dev/create-id": "mine"}}
    creation = Creation("here", "me", "team", "pods", {"kind": "Pod", "metadata": metadata, "spec": {"containers": []}})

    async def create() -> Answer:
        return await AsyncGate().create(creation, transport)

    assert run_virtual(create()).ok
    assert transport.looked_at == [SERVER_LIMIT]
