"""The objects that the conformance cases work on, and how the cases read the server's answers."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.cluster.talking import Reply

JSON = dict[str, Any]

SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
MODIFIED_TEXT = "the object has been modified; please apply your changes to the latest version and try again"


def of_core(namespace: str, plural: str, *rest: str) -> str:
    return "/".join(("/api/v1/namespaces", namespace, plural, *rest))


def of_group(group: str, namespace: str, plural: str, *rest: str) -> str:
    """A path in a group and version, such as ``batch/v1``."""
    return "/".join((f"/apis/{group}/namespaces", namespace, plural, *rest))


def config(name: str = "", data: dict[str, Any] | None = None, **metadata: Any) -> JSON:
    """A ConfigMap; without a name it has the generateName ``m-``."""
    named: JSON = {"name": name} if name else {"generateName": "m-"}
    body: JSON = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**named, **metadata}}
    return {**body, "data": data} if data is not None else body


def secret(name: str = "", data: dict[str, str] | None = None, **metadata: Any) -> JSON:
    """A Secret: of these no new namespace has any, unlike ConfigMaps. Its values are given in base64."""
    return {**config(name, data, **metadata), "kind": "Secret"}


def pod(name: str = "", spec: JSON | None = None, **metadata: Any) -> JSON:
    """A pod with one container; without a name it has the generateName ``p-``."""
    named: JSON = {"name": name} if name else {"generateName": "p-"}
    containers = [{"name": "main", "image": "busybox:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**named, **metadata},
        "spec": {"containers": containers, **(spec or {})},
    }


def names(listed: JSON) -> list[str]:
    """The names of the items of a list, in order."""
    return [item["metadata"]["name"] for item in listed["items"]]


def refusal(reply: Reply) -> tuple[int, str, str]:
    """Code, reason and message of a Status; fails for any other answer."""
    status = reply.json
    assert (status["kind"], status["apiVersion"], status["metadata"]) == ("Status", "v1", {}), reply.text
    assert (status["status"], status["code"]) == ("Failure", reply.status), reply.text
    return reply.status, status.get("reason", ""), status["message"]


def causes(reply: Reply) -> list[tuple[str, str, str]]:
    """Reason, field and message of each cause of a 422; checks that its message consists of them."""
    code, reason, message = refusal(reply)
    assert (code, reason) == (422, "Invalid"), reply.text
    details = reply.json["details"]
    found = [(each["reason"], each["field"], each["message"]) for each in details["causes"]]
    told = ", ".join(f"{field}: {text}" for _, field, text in found)
    kind = f"{details['kind']}.{details['group']}" if "group" in details else details["kind"]
    expected = f'{kind} "{details.get("name", "")}" is invalid: {told if len(found) == 1 else f"[{told}]"}'
    assert message == expected
    return found


def made(reply: Reply) -> JSON:
    assert reply.status in {200, 201}, reply.text
    return reply.json


def read_token(token: str) -> JSON:
    found: JSON = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    return found


def written_token(said: JSON) -> str:
    return base64.urlsafe_b64encode(json.dumps(said, separators=(",", ":")).encode()).decode().rstrip("=")
