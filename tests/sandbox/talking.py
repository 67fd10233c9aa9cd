"""What the tests of the sandbox share: pods and quotas, requests and their answers, watches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

JSON = dict[str, Any]
TEAM = "/api/v1/namespaces/team"
PODS = f"{TEAM}/pods"
QUOTAS = f"{TEAM}/resourcequotas"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


def pod(
    name: str = "", *, requests: JSON | None = None, limits: JSON | None = None, spec: JSON | None = None, **meta: Any
) -> JSON:
    """A pod with one container; without a name it has a generateName."""
    metadata: JSON = {"name": name, **meta} if name else {"generateName": "p-", **meta}
    resources = {side: values for side, values in (("requests", requests), ("limits", limits)) if values}
    container = {"name": "main", "image": "busybox:1", "resources": resources}
    return {"metadata": metadata, "spec": {"containers": [container], **(spec or {})}}


def quota(name: str, hard: JSON, **spec: Any) -> JSON:
    """A ResourceQuota."""
    return {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}


async def ask(
    session: aiohttp.ClientSession,
    method: str,
    path: str,
    body: Any = None,
    *,
    content_type: str = "",
    accept: str = "",
) -> tuple[int, JSON]:
    """Send one request: status code, and the JSON of the answer."""
    headers = {"Content-Type": content_type or "application/json"}
    if accept:
        headers["Accept"] = accept
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    async with session.request(method, path, data=data, headers=headers) as answer:
        text = await answer.text()
        return answer.status, {"text": text} if answer.content_type == "text/plain" else json.loads(text)


async def create(session: aiohttp.ClientSession, body: JSON, path: str = PODS) -> JSON:
    """Create an object; fails unless the answer is 201."""
    code, answer = await ask(session, "POST", path, body)
    assert code == 201, answer
    return answer


async def refused(session: aiohttp.ClientSession, body: JSON, path: str = PODS) -> str:
    """The message of a create that must be forbidden."""
    code, answer = await ask(session, "POST", path, body)
    assert (code, answer["reason"]) == (403, "Forbidden"), answer
    message: str = answer["message"]
    return message


async def used(session: aiohttp.ClientSession, name: str) -> JSON:
    """``status.used`` of a quota."""
    _, found = await ask(session, "GET", f"{QUOTAS}/{name}")
    amounts: JSON = found["status"]["used"]
    return amounts


async def events(session: aiohttp.ClientSession, path: str) -> AsyncIterator[JSON]:
    """The events of a watch, as they arrive."""
    async with session.get(path) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            yield json.loads(line)


async def first_events(session: aiohttp.ClientSession, path: str, count: int) -> list[JSON]:
    """The first ``count`` events of a watch, which is then closed."""
    found: list[JSON] = []
    stream = events(session, path)
    async for event in stream:
        found.append(event)
        if len(found) == count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return found
