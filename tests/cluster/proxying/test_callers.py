"""Who asks, as a real API server says it: forged and renewed tokens, accounts without a right, and no credentials."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.sidecar import Proxy, proxy
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import Api

HOLDS: Final = ("--hold", "3", "--hold-total", "600")
GROUP: Final = "rbac.authorization.k8s.io"


async def _asked(running: Proxy, token: str | None, namespace: str, name: str, **headers: str) -> tuple[int, Any]:
    """Create a pod over a connection of its own; return the status and the Status."""
    host, port = running.url.rpartition("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    content = json.dumps(pod(name)).encode()
    lines = [f"POST /api/v1/namespaces/{namespace}/pods HTTP/1.1", f"Host: {host}", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(content)}", "Connection: close"]
    lines += [] if token is None else [f"Authorization: Bearer {token}"]
    lines += [f"{key.replace('_', '-')}: {value}" for key, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + content)
    async with asyncio.timeout(60):
        raw = await reader.read()
    writer.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)


def _place(told: tuple[int, Any]) -> str:
    status, said = told
    assert status == 429, said
    places = [each["message"] for each in said["details"]["causes"] if each["field"] == "place"]
    assert len(places) == 1, json.dumps(said)
    return str(places[0])


@pytest.mark.parametrize("user", [None, "nobody", "unknown", "impersonating"])
async def test_who_may_not_create_hears_nothing_of_the_quota(
    user: str | None, kubernetes: Server, real_api: Api, real_namespace: str, tmp_path: Path
) -> None:
    """The answer is the server's own, word for word, and comes at once."""
    await Room(real_api, real_namespace).quota("secret-quota", {"pods": "0"})
    token = None if user is None else {"nobody": kubernetes.token("nobody"), "unknown": "no-such-token"}.get(user)
    given = {"Impersonate_User": "admin"} if user == "impersonating" else {}
    token = kubernetes.token("creator") if user == "impersonating" else token
    async with proxy(kubernetes.kubeconfig("creator"), tmp_path, *HOLDS) as running:
        assert _place(await _asked(running, kubernetes.token("creator"), real_namespace, "first")) == "1"
        async with asyncio.timeout(5):
            status, said = await _asked(running, token, real_namespace, "x", **given)
        assert status in {401, 403}
        assert "quota" not in json.dumps(said)


async def test_a_place_is_its_users_whatever_a_token_claims(
    kubernetes: Server, real_api: Api, real_namespace: str, tmp_path: Path
) -> None:
    """A renewed token of an account has the account's place; a forged one with its issuer and subject has none."""
    accounts = f"/api/v1/namespaces/{real_namespace}/serviceaccounts"
    assert (await real_api.post(accounts, {"metadata": {"name": "ann"}})).status == 201
    bound = {
        "metadata": {"name": "ann"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "creates"},
        "subjects": [{"kind": "ServiceAccount", "name": "ann", "namespace": real_namespace}],
    }
    roles = f"/apis/{GROUP}/v1/namespaces/{real_namespace}/rolebindings"
    assert (await real_api.post(roles, bound)).status == 201
    tokens = [
        (await real_api.post(f"{accounts}/ann/token", {"spec": {"expirationSeconds": 3600 + more}})).json["status"][
            "token"
        ]
        for more in range(2)
    ]
    assert tokens[0] != tokens[1]
    head, claims, _ = tokens[0].split(".")
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"].endswith(":ann")
    forged = f"{head}.{claims}.{base64.urlsafe_b64encode(b'x' * 256).decode().rstrip('=')}"
    await Room(real_api, real_namespace).quota("q", {"pods": "0"})
    async with proxy(kubernetes.kubeconfig("creator"), tmp_path, *HOLDS) as running:

        async def asked(token: str, name: str) -> tuple[int, Any]:
            return await _asked(running, token, real_namespace, name)

        assert _place(await asked(tokens[0], "mine")) == "1"
        other = asyncio.ensure_future(asked(kubernetes.token("creator"), "other"))
        assert (await asked(forged, "mine"))[0] == 401
        assert _place(await asked(tokens[1], "mine")) == "1"
        await other
