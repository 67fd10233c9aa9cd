"""Whose wish it is: what a caller may have done by the manager, whose account may do more than theirs."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI
from kubernetes import client

from backoff_ctrl.api.status.access import Tokens
from backoff_ctrl.api.status.routing import add_endpoints, handle_problems
from backoff_ctrl.api.status.served_tasks import ServedTasks
from backoff_ctrl.api.status.tasks import ENDPOINTS, TaskEndpoints
from backoff_ctrl.k8s.kube.cluster.asking import Reach
from backoff_ctrl.k8s.status.token import Token
from backoff_ctrl.k8s.tasks.platform import Platform
from backoff_ctrl.k8s.tasks.sqlite import SqliteStore
from tests.tasks.tasks_written import NAMESPACE, manifest

TOKEN = "a-token-of-ann"


@dataclass
class Reviews:
    """An API server that knows one user, and what she may do."""

    rights: set[tuple[str, str, str, str]] = field(default_factory=set)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, _: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        spec = body["spec"]
        if path.endswith("tokenreviews"):
            known = spec["token"] == TOKEN
            return 201, {"status": {"authenticated": known, "user": {"username": "ann", "groups": ["g"]}}}
        self.asked.append(spec)
        what = spec["resourceAttributes"]
        resource = "/".join(filter(None, (what["resource"], what.get("subresource"))))
        right = what["verb"], what["group"], resource, what["namespace"]
        return 201, {"status": {"allowed": right in self.rights}}


@dataclass
class Server:
    """``/v1/tasks`` on a store whose cluster is away."""

    app: FastAPI
    reviews: Reviews
    served: ServedTasks

    async def ask(self, method: str, path: str, body: Any = None, *, token: str = TOKEN) -> tuple[int, dict[str, Any]]:
        text, sent = (body if isinstance(body, bytes) else json.dumps(body).encode()), []
        headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": text, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return sent[0]["status"], json.loads(b"".join(each.get("body", b"") for each in sent[1:]))

    def may(self, verb: str, resource: str, namespace: str = NAMESPACE) -> None:
        name, _, group = resource.partition(".")
        self.reviews.rights.add((verb, group, name, namespace))


@asynccontextmanager
async def serving(file: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """Serve a store to callers with Kubernetes tokens."""
    monkeypatch.setenv("BACKOFF_CTRL_STATUS_TOKEN", "a-secret-of-this-test")
    reviews, app = Reviews(), FastAPI()
    there = client.Configuration(host="http://127.0.0.1:9")
    served = ServedTasks(file, Platform(None), there, "http://127.0.0.1:1", Token(1))
    access = Tokens(cast("Reach", reviews), clock=lambda: float(len(reviews.asked) * 100))  # nothing is kept
    handle_problems(app)
    add_endpoints(app, ENDPOINTS, TaskEndpoints(served, access, time.time), access)
    async with served.running():
        yield Server(app, reviews, served)


def in_file(store: object) -> SqliteStore:
    assert isinstance(store, SqliteStore)
    return store


async def test_a_caller_needs_the_rights_that_the_manager_uses_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of exactly that kind, in exactly that namespace: a Job's creator creates no pods, and nobody elsewhere."""
    pod_template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": pod_template}}
    a_job = manifest("j", type="job", container=None, template=job)
    async with serving(tmp_path / "t.db", monkeypatch) as server:
        server.may("create", "pods", "elsewhere")
        server.may("create", "pods.metrics.k8s.io")
        server.may("list", "pods")
        assert (await server.ask("POST", "/v1/tasks", manifest("p")))[0] == 403
        server.may("create", "jobs.batch")
        assert (await server.ask("POST", "/v1/tasks", manifest("p")))[0] == 403
        assert (await server.ask("POST", "/v1/tasks", a_job))[0] == 201
        assert server.reviews.asked[-1]["groups"] == ["g"]
        assert await server.served.store.list() == [await server.served.store.get(NAMESPACE, "j")]
        assert (await server.ask("POST", f"/v1/tasks/{NAMESPACE}/j/abort", {}))[0] == 403
        ended = {**a_job, "spec": {**a_job["spec"], "abort": True}}
        status, said = await server.ask("POST", "/v1/tasks", ended)
        assert (status, "may not delete jobs.batch" in said["detail"]) == (403, True)
        assert not (await server.served.store.get(NAMESPACE, "j")).abort
        server.may("delete", "jobs.batch")
        assert (await server.ask("POST", "/v1/tasks", ended))[0] == 409
        assert not (await server.served.store.get(NAMESPACE, "j")).abort
        server.may("get", "jobs.batch")
        assert (await server.ask("POST", "/v1/tasks", ended))[0] == 200
        asked = await server.served.store.get(NAMESPACE, "j")
        assert (asked.abort, asked.spec["aborted"]["by"]) == (True, "ann")
        assert (await server.ask("POST", "/v1/tasks", {**a_job, "metadata": {**a_job["metadata"], "name": "k"}}))[
            0
        ] == 201
        assert (await server.ask("POST", f"/v1/tasks/{NAMESPACE}/k/abort", {}))[0] == 200
        assert (await server.served.store.get(NAMESPACE, "k")).spec["aborted"]["by"] == "ann"


async def test_who_may_change_the_quota_decides_who_goes_first_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each creator would put its own tasks ahead of all others in the namespace."""
    async with serving(tmp_path / "t.db", monkeypatch) as server:
        server.may("create", "pods")
        status, said = await server.ask("POST", "/v1/tasks", manifest("first", priority=1))
        assert (status, "may not update resourcequotas" in said["detail"]) == (403, True)
        assert await server.served.store.list() == []
        for name, priority in (("as-others", 0), ("behind-others", -1)):
            assert (await server.ask("POST", "/v1/tasks", manifest(name, priority=priority)))[0] == 201
        server.may("update", "resourcequotas")
        assert (await server.ask("POST", "/v1/tasks", manifest("first", priority=1)))[0] == 201


async def test_what_a_task_runs_is_shown_to_who_may_read_such_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of that kind: to see that there is a task is less than to see its variables; no error tells them either."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "s3cret"}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": pod}}}
    a_job = manifest("j", type="job", container=None, template=job, env=[{"name": "KEY", "value": "s3cret"}])
    async with serving(tmp_path / "t.db", monkeypatch) as server:
        for verb, resource in (("create", "jobs.batch"), ("create", "pods"), ("list", "pods"), ("get", "pods")):
            server.may(verb, resource)
        server.may("delete", "jobs.batch")
        path = f"/v1/tasks/{NAMESPACE}/j"
        asked = [
            await server.ask("POST", "/v1/tasks", a_job),
            await server.ask("GET", path),
            await server.ask("POST", "/v1/tasks", manifest("j")),
            await server.ask("POST", f"{path}/abort", {}),
        ]
        assert [status for status, _ in asked] == [201, 200, 409, 200]
        assert "s3cret" not in json.dumps(asked)
        assert asked[1][1]["hidden"] == ["env", "template"]
        server.may("get", "jobs.batch")
        found = (await server.ask("GET", path))[1]
        assert (found["hidden"], found["spec"]["env"][0]["value"]) == ([], "s3cret")


async def test_a_hidden_spec_can_not_be_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A right guess is answered as a wrong one is, word for word, until one may see what such objects run."""
    guesses = [manifest("p", env=[{"name": "KEY", "value": value}]) for value in ("s3cret", "guess")]
    guesses.append(manifest("p"))
    async with serving(tmp_path / "t.db", monkeypatch) as server:
        server.may("create", "pods")
        assert (await server.ask("POST", "/v1/tasks", guesses[0]))[0] == 201
        said = [await server.ask("POST", "/v1/tasks", guess) for guess in guesses]
        assert [status for status, _ in said] == [409] * 3
        assert len({json.dumps(each) for _, each in said}) == 1
        assert said[0][1]["errors"][0]["pointer"] == "#/body/metadata/name"
        server.may("get", "pods")
        said = [await server.ask("POST", "/v1/tasks", guess) for guess in guesses]
        assert [status for status, _ in said] == [200, 409, 409]
        assert "spec.env" in said[1][1]["detail"]


async def test_a_namespace_full_of_tasks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """403 with what to do, as a full quota is: to ask again does not help."""
    async with serving(tmp_path / "t.db", monkeypatch) as server:
        server.may("create", "pods")
        in_file(server.served.store).tables.most = 1
        assert (await server.ask("POST", "/v1/tasks", manifest("a")))[0] == 201
        status, said = await server.ask("POST", "/v1/tasks", manifest("b"))
        assert (status, said["errors"][0]["pointer"]) == (403, "#/body/metadata/namespace")
        assert "task delete NAME" in said["detail"]


async def test_nobody_unknown_has_a_body_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is parsed or built: 401, not what is wrong with the body."""
    async with serving(tmp_path / "t.db", monkeypatch) as server:
        assert (await server.ask("POST", "/v1/tasks", b"{", token="guessed"))[0] == 401
        assert (await server.ask("POST", "/v1/tasks", b"{"))[0] == 400


async def test_a_store_that_breaks_while_it_is_served_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with the sentence of the store, for a list as for one task."""
    async with serving(tmp_path / "t.db", monkeypatch) as server:
        server.may("create", "pods")
        server.may("list", "pods", "")
        server.may("list", "pods")
        assert (await server.ask("POST", "/v1/tasks", manifest("p")))[0] == 201
        tables = in_file(server.served.store).tables
        with tables.writing() as run:
            run("UPDATE tasks SET status = '{broken'")
        for path in ("/v1/tasks", f"/v1/tasks/{NAMESPACE}/p"):
            status, said = await server.ask("GET", path)
            assert (status, "task team/p in the store can't be read" in said["detail"]) == (503, True), said


async def test_a_log_needs_the_right_to_get_logs_and_to_forget_a_task_that_to_delete_its_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To see pods is not enough: what a program writes is often as secret as what it is given."""
    path = f"/v1/tasks/{NAMESPACE}/p"
    async with serving(tmp_path / "t.db", monkeypatch) as server:
        server.may("create", "pods")
        server.may("list", "pods")
        server.may("get", "pods")
        assert (await server.ask("POST", "/v1/tasks", manifest("p", needs=["never"])))[0] == 201
        status, said = await server.ask("GET", f"{path}/log")
        assert (status, "may not get pods/log" in said["detail"]) == (403, True)
        assert server.reviews.asked[-1]["resourceAttributes"]["subresource"] == "log"
        server.may("get", "pods/log")
        status, said = await server.ask("GET", f"{path}/log")
        assert (status, "has no object yet" in said["detail"]) == (409, True)
        assert (await server.ask("DELETE", path))[0] == 403
        server.may("delete", "pods")
        assert (await server.ask("DELETE", path))[0] == 409
