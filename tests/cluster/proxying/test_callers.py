"""Who asks, as a real API server says it: forged and renewed tokens, accounts without a right, and no credentials."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.sidecar import Proxy, asked, proxy
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import Api
from tests.status.asking import Answer

HOLDS: Final = ("--hold", "3", "--hold-total", "600")
GROUP: Final = "rbac.authorization.k8s.io"


async def _asked(running: Proxy, token: str | None, namespace: str, name: str, **headers: str) -> Answer:
    return await asked(running.url, f"/api/v1/namespaces/{namespace}/pods", token, pod(name), **headers)


def _place(told: Answer) -> str:
    assert told.status == 429, told
    (place,) = [each["message"] for each in told.json["details"]["causes"] if each["field"] == "place"]
    return str(place)


@pytest.mark.parametrize("user", [None, "nobody", "unknown", "impersonating"])
async def test_who_may_not_create_hears_nothing_of_the_quota(
    user: str | None, kubernetes: Server, real_api: Api, real_namespace: str, tmp_path: Path
) -> None:
    """The answer is the server's own, word for word."""
    await Room(real_api, real_namespace).quota("secret-quota", {"pods": "0"})
    token = None if user is None else {"nobody": kubernetes.token("nobody"), "unknown": "no-such-token"}.get(user)
    given = {"Impersonate_User": "admin"} if user == "impersonating" else {}
    token = kubernetes.token("creator") if user == "impersonating" else token
    async with proxy(kubernetes.kubeconfig("creator"), tmp_path, *HOLDS) as running:
        assert _place(await _asked(running, kubernetes.token("creator"), real_namespace, "first")) == "1"
        answer = await _asked(running, token, real_namespace, "x", **given)
        assert answer.status in {401, 403}, "held, it would be answered 429"
        assert b"quota" not in answer.body


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
    made = [await real_api.post(f"{accounts}/ann/token", {"spec": {"expirationSeconds": 3600 + n}}) for n in range(2)]
    tokens = [each.json["status"]["token"] for each in made]
    assert tokens[0] != tokens[1]
    head, claims, _ = tokens[0].split(".")
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"].endswith(":ann")
    forged = f"{head}.{claims}.{base64.urlsafe_b64encode(b'x' * 256).decode().rstrip('=')}"
    await Room(real_api, real_namespace).quota("q", {"pods": "0"})
    async with proxy(kubernetes.kubeconfig("creator"), tmp_path, *HOLDS) as running:

        async def asked_by(token: str, name: str) -> Answer:
            return await _asked(running, token, real_namespace, name)

        assert _place(await asked_by(tokens[0], "mine")) == "1"
        other = asyncio.ensure_future(asked_by(kubernetes.token("creator"), "other"))
        assert (await asked_by(forged, "mine")).status == 401
        assert _place(await asked_by(tokens[1], "mine")) == "1"
        await other
