"""Tasks with kubectl, as docs/how-to/tasks-with-kubectl.md shows them: what it prints, and what the server refuses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.cluster.schema import NAME, definition
from backoff_ctrl.k8s.tasks.model import MUTABLE, TaskSpec
from backoff_ctrl.k8s.tasks.plugins.registry import Registry
from tests.cluster.control_plane.binaries import Binaries
from tests.cluster.kubectl.terminals import Said, Terminal
from tests.cluster.objects import made
from tests.cluster.talking import MERGE, Api
from tests.cluster.tasks.custom_resources.conftest import managed, path, task
from tests.cluster.tasks.custom_resources.test_owning import PODS, pod_of

REAL = pytest.mark.only_kubernetes("the sandbox checks no rules in CEL")
FULL: dict[str, Any] = {
    "podTemplate": {"spec": {"containers": []}}, "primaryContainer": "a", "template": {"a": 1}, "custom": [1, "a"],
    "resources": {"requests": {"cpu": 1}}, "env": [{"name": "A"}], "secrets": {"A": {"secret": "s", "key": "k"}},
    "accelerator": {"device": "a100"}, "retries": {"user": 1}, "interruptible": True, "priority": 3, "timeout": "1h",
    "deadline": "1h", "ttl": "1h", "project": "p", "domain": "d", "serviceAccount": "s", "needs": ["b"],
}  # fmt: skip
"""A value for each field of a spec that may not change, beside those of ``task``."""
UNSEEN = {"custom", "needs"}
"""Fields that may be of several types: CEL does not see them, and the webhook of Tasks holds them."""


@pytest.fixture
def terminal(kind: Api, binaries: Binaries, namespace: str) -> Terminal:
    return Terminal(kind.server, binaries.kubectl, namespace)


async def run(terminal: Terminal, *arguments: str, body: object = None) -> Said:
    stdin = None if body is None else json.dumps(body)
    return await asyncio.to_thread(terminal.run, *arguments, stdin=stdin)


async def test_a_task_is_applied_shown_awaited_and_deleted(kind: Api, namespace: str, terminal: Terminal) -> None:
    """Columns say how far it is, which try it is, and what it waits for."""
    full = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    made(await kind.post(f"/api/v1/namespaces/{namespace}/resourcequotas", full))
    async with managed(kind.server, namespace, Registry([PODS])):
        assert (await run(terminal, "apply", "-f", "-", body=task("train"))).code == 0
        await kind.until(path(namespace, "train"), lambda found: (found.get("status") or {}).get("waitsFor"))
        head, row = (await run(terminal, "get", "tasks")).out.splitlines()
        assert head.split() == ["NAME", "TYPE", "PHASE", "TRY", "WAITS", "FOR", "AGE"]
        assert row.split()[:-1] == ["train", "container", "WaitingForResources", "1", "none:", "pods"]
        quota = f"/api/v1/namespaces/{namespace}/resourcequotas/none"
        made(await kind.patch(quota, {"spec": {"hard": {"pods": "1"}}}, MERGE))
        pod = (await pod_of(kind, namespace, "train"))["metadata"]["name"]
        waiting = asyncio.create_task(run(terminal, "wait", "--for=condition=Succeeded", "task/train", "--timeout=60s"))
        status = f"/api/v1/namespaces/{namespace}/pods/{pod}/status"
        made(await kind.patch(status, {"status": {"phase": "Succeeded"}}, MERGE))
        assert (await waiting).out.strip() == "task.backoff-ctrl.dev/train condition met"
    assert (await run(terminal, "delete", "task", "train", "--timeout=60s")).code == 0


@REAL
async def test_explain_says_what_a_field_means(kind: Api, namespace: str, terminal: Terminal) -> None:
    """Each field has a description; values and fields at each depth."""
    await kind.until("/openapi/v3", lambda found: "apis/backoff-ctrl.dev/v1alpha1" in found["paths"])  # a second later
    said = (await run(terminal, "explain", "task.spec")).out
    assert "The task type: it chooses the plugin." in " ".join(said.split())
    for each in ("task.spec", "task.spec.retries", "task.status", "task.status.history"):
        assert "<no description>" not in (await run(terminal, "explain", each)).out, each


@REAL
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"prioritee": 3}, 'unknown field "spec.prioritee"'),
        ({"retries": {"users": 3}}, 'unknown field "spec.retries.users"'),
        ({"priority": "high"}, "spec.priority: Invalid value"),
        ({"retries": {"user": 1001}}, "spec.retries.user: Invalid value: 1001"),
        ({"timeout": "0s"}, 'spec.timeout: Invalid value: "0s": write a duration'),
        ({"timeout": "soon"}, 'spec.timeout: Invalid value: "soon": write a duration'),
        ({"deadline": "soon"}, 'spec.deadline: Invalid value: "soon": write a duration'),
        ({"needs": "train"}, "spec.needs: Invalid value"),
        ({"secrets": {"1": {"secret": "a", "key": "b"}}}, "spec.secrets: Invalid value"),
        ({"secrets": {"A": {"secret": "a"}}}, "spec.secrets.A.key: Required value"),
        ({"type": None}, "spec.type: Required value"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
async def test_a_wrong_field_is_refused_with_its_path(
    kind: Api, namespace: str, terminal: Terminal, spec: Any, said: str
) -> None:
    """By the server, before anything is stored."""
    body = task("train", **spec)
    body["spec"] = {name: value for name, value in body["spec"].items() if value is not None}
    refused = await run(terminal, "create", "-f", "-", body=body)
    assert refused.code == 1
    assert said in refused.err


@REAL
async def test_what_was_applied_does_not_change(kind: Api, namespace: str) -> None:
    """Each field that CEL sees, changed, added and left out; of others that they are there. Requests may be made."""
    fields = TaskSpec.model_json_schema()["properties"].keys()
    assert {*FULL, "type", "container"} == fields - MUTABLE, "give the new field a value in FULL"
    made(await kind.post(path(namespace), task("few")))
    made(await kind.post(path(namespace), task("all", **FULL)))
    for name, value in FULL.items():
        other = {"primaryContainer": "b", "retries": {"user": 2}, "interruptible": False, "priority": 4,
                 "timeout": "2h", "project": "q", "domain": "e", "serviceAccount": "t", "deadline": "2h", "ttl": "2h",
                 "secrets": {"A": {"secret": "s", "key": "l"}}}.get(name)  # fmt: skip
        tries = [("all", {name: None})] if name in UNSEEN else [("few", {name: value}), ("all", {name: None})]
        tries += [] if other is None else [("all", {name: other})]
        for which, change in tries:
            reply = await kind.patch(path(namespace, which), {"spec": change}, MERGE)
            seen = name not in UNSEEN
            assert reply.status == (422 if seen else 200), (change, reply.text)
            assert not seen or f"spec.{name}: Invalid value: it can't be changed" in reply.text
    hidden = await kind.patch(path(namespace, "few"), {"spec": {"container": {"image": "other"}}}, MERGE)
    assert hidden.status == 200, "CEL sees it now: say so in schema.py, and in the webhook"
    made(await kind.patch(path(namespace, "few"), {"spec": {"abort": True}}, MERGE))
    for back in (False, None):
        reply = await kind.patch(path(namespace, "few"), {"spec": {"abort": back}}, MERGE)
        assert (reply.status, "abort can't be taken back" in reply.text) == (422, True)


async def test_the_definition_is_applied_again_unchanged(kind: Api, namespace: str) -> None:
    """The server stores what was written: it adds no field, and drops no field."""
    stored = (await kind.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}")).json["spec"]
    assert stored["versions"] == definition()["spec"]["versions"]
