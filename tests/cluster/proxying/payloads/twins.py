"""Twins: one object, or one refusal, as a real API server writes it in JSON and in protobuf."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from backoff_ctrl.k8s.kube.charges.resources import resource_of
from tests.cluster.quotas.charging import path_of
from tests.cluster.talking import MERGE, Api
from tests.kit.charged import DATA, Case, cases

JSON = dict[str, Any]
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
PORT_TRIES: Final = 120
RECORD: Final = DATA / "protobuf_twins.jsonl"
"""Written by ``python -m tests.cluster.proxying.payloads.record_twins`` alone: its origin, then a line a twin."""


@dataclass(frozen=True)
class Twin:
    """The same answer in both forms, and the resource that it is an object of; empty for a Status."""

    shows: str
    resource: str
    json: JSON
    protobuf: bytes

    def written(self) -> str:
        coded = base64.b64encode(self.protobuf).decode()
        return json.dumps({"shows": self.shows, "resource": self.resource, "json": self.json, "protobuf": coded})


def recorded() -> list[Twin]:
    found = [json.loads(line) for line in RECORD.read_text().splitlines()]
    return [
        Twin(each["shows"], each["resource"], each["json"], base64.b64decode(each["protobuf"])) for each in found[1:]
    ]


class Raw:
    """Requests whose bodies and answers are bytes, of any form."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def call(
        self, method: str, path: str, body: bytes | None = None, *, sends: str = PROTOBUF, accept: str = PROTOBUF
    ) -> tuple[int, bytes, str]:
        server = self._api.server
        headers = {"Authorization": f"Bearer {server.token(self._api.user)}", "Accept": accept}
        if body is not None:
            headers["Content-Type"] = sends
        connector = aiohttp.TCPConnector(ssl=server.ssl() or True)
        async with (
            aiohttp.ClientSession(server.url, connector=connector) as session,
            session.request(method, path, data=body, headers=headers) as answer,
        ):
            return answer.status, await answer.read(), answer.headers.get("Content-Type", "")


async def space_of(api: Api) -> str:
    """Make a namespace that has its service account: pods can be created in it."""
    name = f"twins-{secrets.token_hex(5)}"
    made = await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made.status == 201, made.text
    await api.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", bool)
    return name


async def twins_of_objects(api: Api, space: str, chosen: Iterable[Case] | None = None) -> list[Twin]:
    """Create the manifests whose charges are known, and read each back in both forms; custom kinds have only JSON."""
    found = []
    for number, case in enumerate(cases() if chosen is None else chosen):
        manifest = case.manifest
        body = {**manifest, "metadata": {**(manifest.get("metadata") or {}), "name": f"c{number}"}}
        if manifest["kind"] == "Event":
            body["involvedObject"] = {**body["involvedObject"], "namespace": space}
        made = await api.post(path_of(manifest, space), body)
        for _ in range(PORT_TRIES):
            if "already allocated" not in made.text:
                break
            await asyncio.sleep(0.5)  # a node port: other tests create the same Services, elsewhere
            made = await api.post(path_of(manifest, space), body)
        assert made.status == 201, made.text
        place = f"{path_of(manifest, space)}/c{number}"
        # who manages what is not read, and would be most of the record
        await api.patch(place, {"metadata": {"managedFields": [{}]}}, MERGE)
        status, protobuf, _ = await Raw(api).call("GET", place)
        if status == 406:
            assert case.theme == "custom" or "example.com" in manifest["apiVersion"], case.key
            continue
        twin = (await api.get(place)).json
        assert (status, twin["metadata"].get("managedFields")) == (200, None), protobuf
        found.append(Twin(case.key, resource_of(manifest), twin, protobuf))
    return found


async def twins_of_refusals(api: Api, space: str) -> list[Twin]:
    """Have requests refused, and read the Status of each in both forms."""
    pods, quotas = (f"/api/v1/namespaces/{space}/{plural}" for plural in ("pods", "resourcequotas"))
    full = {"metadata": {"name": "full"}, "spec": {"hard": {"pods": "0", "requests.cpu": "1"}}}
    made = await api.post(quotas, full)
    assert made.status == 201, made.text
    await api.until(f"{quotas}/full", lambda quota: quota.get("status", {}).get("hard") == full["spec"]["hard"])  # type: ignore[index]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "i"}]}}
    asking = {"resources": {"requests": {"cpu": "500m"}}, "name": "a", "image": "i"}
    requests = (
        ("a full quota", pods, {**pod, "spec": {"containers": [asking]}}),
        ("a quota that wants a request", pods, pod),
        ("an invalid object, with causes", pods, {"metadata": {"name": "P!"}, "spec": {}}),
        ("a name that is taken", quotas, full),
        ("an unknown namespace", "/api/v1/namespaces/missing-one/pods", pod),
    )
    found = []
    for shows, path, body in requests:
        sent = json.dumps(body).encode()
        answers = [await Raw(api).call("POST", path, sent, sends="application/json", accept=form) for form in FORMS]
        (first, in_json, _), (second, protobuf, form) = answers
        assert first == second >= 400
        assert form == PROTOBUF
        found.append(Twin(shows, "", json.loads(in_json), protobuf))
    return found


FORMS: Final = ("application/json", PROTOBUF)
