"""Tasks over HTTP: created, listed page by page, shown, ended; by whom, and what is refused."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from backoff_ctrl.api.status.tasks import FOLLOWED_MAX
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.status.token import read_token
from tests.kit.patience import PATIENCE
from tests.serve.serving import serving, until
from tests.status.asking import ask
from tests.tasks.commanding.conftest import COMMAND, kubelet
from tests.tasks.tasks_written import NAMESPACE, manifest

pytestmark = pytest.mark.long
JSON = "application/json"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``serve --store`` before a sandbox with a quota of two pods, which end after a moment."""
    store = tmp_path_factory.mktemp("served") / "tasks.db"
    with running_sandbox() as sandbox, kubelet(sandbox.url, 0.3):
        sandbox.create_namespace(NAMESPACE)
        sandbox.create_quota(NAMESPACE, "q", {"pods": "2"})
        with serving("--apiserver", sandbox.url, "--store", str(store)) as url:
            yield url


def token(url: str) -> str:
    """The token of the server, as this user finds it."""
    return read_token(urlsplit(url).port or 0)


def post(url: str, task: Any, path: str = "/v1/tasks", **headers: str) -> Any:
    given = {"Content_Type": JSON, "Authorization": f"Bearer {token(url)}", **headers}
    return ask(url, path, method="POST", body=json.dumps(task).encode(), **given)


def test_a_task_is_created_followed_and_listed(served: str) -> None:
    """201 once, 200 for an equal one, 409 for another spec; the ETag spares unchanged answers."""
    made = post(served, manifest("one"))
    assert (made.status, made.json["phase"], made.json["unfinished"]) == (201, "NotReady", True)
    again = post(served, manifest("one", retries={"user": 0}))
    assert (again.status, again.json["uid"]) == (200, made.json["uid"])
    other = post(served, manifest("one", priority=1))
    assert (other.status, other.json["errors"][0]["pointer"]) == (409, "#/body/metadata/name")
    for name in ("two", "three", "four"):
        assert post(served, manifest(name)).status == 201
    names = ("one", "two", "three", "four")
    until(lambda: all(not ask(served, f"/v1/tasks/{NAMESPACE}/{name}").json["unfinished"] for name in names))
    page = ask(served, f"/v1/tasks?namespace={NAMESPACE}&limit=3")
    rest = ask(served, f"/v1/tasks?after={page.json['next']}")
    assert rest.json["next"] is None
    listed = [(each["name"], each["phase"]) for each in [*page.json["items"], *rest.json["items"]]]
    own = [each for each in listed if each[0] in names]  # others may test here too
    assert own == [("one", "Success"), ("two", "Success"), ("three", "Success"), ("four", "Success")]
    assert len(page.json["items"]) == 3
    headers = {name.lower(): value for name, value in rest.headers.items()}
    assert ask(served, f"/v1/tasks?after={page.json['next']}", If_None_Match=headers["etag"]).status == 304
    anybody = ask(served, f"/v1/tasks/{NAMESPACE}/four").json
    assert (anybody["hidden"], anybody["spec"]) == (["container"], {"type": "container"})
    known = ask(served, f"/v1/tasks/{NAMESPACE}/four", Authorization=f"Bearer {token(served)}").json
    assert known["spec"]["container"]["image"] == "busybox"
    shown = anybody
    assert (shown["object"]["kind"], shown["history"][-1]["phase"], shown["spec"]["type"]) == (
        "Pod",
        "Success",
        "container",
    )
    assert ask(served, "/v1/tasks?namespace=nowhere").json["items"] == []
    told = ask(served, "/metrics").body.decode()
    ended = re.search(r'^backoff_ctrl_tasks_ended_total\{phase="Success"\} (\d+)$', told, re.MULTILINE)
    assert ended is not None
    assert int(ended[1]) >= 4
    steps = re.search(r"^backoff_ctrl_task_step_seconds_count (\d+)$", told, re.MULTILINE)
    assert steps is not None
    assert int(steps[1]) >= 8


def test_what_is_wrong_is_pointed_to(served: str) -> None:
    """A pointer into the body, and nothing is stored."""
    for task, pointer in (
        (manifest("x", retries={"usr": 1}), "#/body/spec/retries/usr"),
        (manifest("x", container=None), "#/body/spec/container"),
        (manifest("x", container={"image": "x", "comand": ["a"]}), "#/body/spec/container/comand"),
        (manifest("x", resources={"request": {"memory": "8Gi"}}), "#/body/spec/resources/request"),
        ({**manifest("x"), "kind": "Job"}, "#/body/apiVersion"),
        (manifest("x", needs=["x"]), "#/body/spec/needs"),
    ):
        found = post(served, task)
        assert (found.status, found.json["errors"][0]["pointer"]) == (422, pointer), found
    assert ask(served, f"/v1/tasks/{NAMESPACE}/x").status == 404


def test_on_this_machine_the_token_of_the_server_is_needed(served: str) -> None:
    """Any local user, and any page in a browser, reaches loopback: they may look, as everywhere here, but not create."""
    body = json.dumps(manifest("theirs")).encode()
    for headers in ({}, {"Authorization": "Bearer guessed-guessed-guessed"}):
        found = ask(served, "/v1/tasks", method="POST", body=body, Content_Type=JSON, **headers)
        assert (found.status, "send the token of this server" in found.json["detail"]) == (401, True)
        assert ask(served, f"/v1/tasks/{NAMESPACE}/x/abort", method="POST", body=b"", **headers).status == 401
    assert post(served, manifest("theirs"), Origin="https://evil.example").status == 403
    assert ask(served, f"/v1/tasks/{NAMESPACE}/theirs").status == 404


def test_the_command_asks_there(served: str, tmp_path: Path) -> None:
    """``task run --gate`` follows to the end; list, show and abort ask the same place."""
    file = tmp_path / "task.json"
    file.write_text(json.dumps(manifest("mine")))

    def task(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [*COMMAND, *words, "--gate", served], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == code, done
        return done.stdout or done.stderr

    assert task("run", "-f", str(file)).endswith("1 task: 1 Success\n")
    assert "mine" in task("list")
    assert f"Task {NAMESPACE}/mine" in task("show", "mine")
    assert "there is no task nobody" in task("abort", "nobody", code=1)
    post(served, manifest("needy", needs=["never"]))
    until(lambda: "does not exist yet" in ask(served, f"/v1/tasks/{NAMESPACE}/needy").json["reason"])
    assert "will end" in task("abort", "needy")
    until(lambda: ask(served, f"/v1/tasks/{NAMESPACE}/needy").json["phase"] == "Aborted")


def test_a_signal_and_another_run_are_asked_for_there(served: str) -> None:
    """By the commands as by requests; what can't be done says why, and the place in the body."""
    waits = manifest("gate", type="signal", container=None)
    assert post(served, waits).status == 201
    place = f"/v1/tasks/{NAMESPACE}/gate"
    until(lambda: ask(served, place).json["phase"] == "Paused")
    for body, status, pointer in (({}, 422, "#/body/value"), ({"value": "x" * 20_000}, 422, "#/body/value"),
                                  ({"valeu": 1}, 422, "#/body")):  # fmt: skip
        found = post(served, body, f"{place}/signal")
        assert (found.status, found.json["errors"][0]["pointer"]) == (status, pointer)
    assert post(served, {"set": []}, f"{place}/again").status == 409
    assert ask(served, f"{place}/signal", method="POST", body=b'{"value": 1}', Content_Type=JSON).status == 401
    words = [*COMMAND, "signal", "gate", "--value", '["a"]', "--gate", served]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done
    until(lambda: ask(served, place).json["phase"] == "Success")
    bearer = f"Bearer {token(served)}"
    before = ask(served, place, Authorization=bearer).json
    assert before["outputs"] == {"value": ["a"]}
    assert post(served, {"value": 2}, f"{place}/signal").status == 409
    wrong = post(served, {"set": [["spec.priority", "high"]]}, f"{place}/again")
    assert (wrong.status, "spec.priority" in wrong.json["detail"]) == (422, True)
    assert post(served, {"set": "spec.priority"}, f"{place}/again").status == 422
    assert ask(served, place).json["uid"] == before["uid"]
    words = [*COMMAND, "run", "--again", "gate", "--set", "spec.signal=2", "--gate", served]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, "1 Success" in done.stdout) == (0, True), done
    after = ask(served, place, Authorization=bearer).json
    assert (after["uid"] != before["uid"], after["outputs"]) == (True, {"value": 2})


def test_without_a_store_it_says_how_to_have_one() -> None:
    """404 with what to do; and a store that can't be used is one sentence at the start."""
    with running_sandbox() as sandbox:
        with serving("--apiserver", sandbox.url) as url:
            found = ask(url, "/v1/tasks")
            assert (found.status, "--store FILE" in found.json["detail"]) == (404, True)
        done = subprocess.run(
            [sys.executable, "-m", "backoff_ctrl", "serve", "--listen", "127.0.0.1:0", "--apiserver", sandbox.url,
             "--store", "/"],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert (done.returncode, "--store: / can't be opened" in done.stderr) == (2, True), done


def test_a_tasks_log_is_read_and_the_task_forgotten_over_http(served: str) -> None:
    """By the command, and by whoever has the token of the server; what has not ended is not forgotten."""
    assert post(served, manifest("logged")).status == 201
    path = f"/v1/tasks/{NAMESPACE}/logged"
    until(lambda: not ask(served, path).json["unfinished"])
    key = f"Bearer {token(served)}"
    said = b"there is no container, and so no log.\n"
    made = ask(served, path).json["object"]["name"]
    for query in ("", "?follow=true", f"?follow=false&container={made}"):
        answer = ask(served, f"{path}/log{query}", Authorization=key)
        assert (answer.status, answer.body.endswith(said)) == (200, True), answer
    assert ask(served, f"{path}/log").status == 401
    assert ask(served, f"{path}/log?follow=yes", Authorization=key).json["errors"][0]["pointer"] == "#/query/follow"
    assert ask(served, f"{path}/log?container=none", Authorization=key).status == 409
    assert ask(served, f"/v1/tasks/{NAMESPACE}/nobody/log", Authorization=key).status == 404

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        done = [*COMMAND, *words, "--gate", served]
        return subprocess.run(done, capture_output=True, text=True, timeout=PATIENCE, check=False)

    for options in ((), ("-f",)):
        done = command("logs", "logged", *options)
        assert (done.returncode, done.stdout.endswith(said.decode())) == (0, True), done
    assert command("logs", "logged", "-c", "none").returncode == 1
    assert post(served, manifest("waits", needs=["never"])).status == 201
    assert (command("delete", "waits").returncode, ask(served, path, method="DELETE").status) == (1, 401)
    file = json.dumps(manifest("logged"))
    again = subprocess.run(
        [*COMMAND, "run", "-f", "-", "--gate", served],
        input=file,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    hint = f"`backoff-ctrl task run --again logged -n {NAMESPACE} --gate {served}` to run it again"
    assert hint in again.stdout, again
    assert command("delete", "logged").stdout == f"task {NAMESPACE}/logged is forgotten\n"
    assert ask(served, path).status == 404
    assert command("delete", "logged").returncode == 1


def test_who_leaves_a_log_that_is_still_empty_makes_room(served: str) -> None:
    """As many as may follow, of a task that waits: nothing of theirs is left once they have hung up."""
    assert post(served, manifest("silent", needs=["nobody-ends"])).status == 201
    assert post(served, manifest("speaks")).status == 201
    until(lambda: not ask(served, f"/v1/tasks/{NAMESPACE}/speaks").json["unfinished"])
    key = f"Bearer {token(served)}"
    path = f"/v1/tasks/{NAMESPACE}/{{}}/log"
    where = urlsplit(served)
    followers = []

    def follow() -> None:
        follower = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE)
        follower.request("GET", path.format("silent") + "?follow=true", headers={"Authorization": key})
        followers.append(follower)

    def is_full() -> bool:
        if ask(served, path.format("speaks"), Authorization=key).status == 503:
            return True
        follow()  # one of them may have found this question in its place
        return False

    for _ in range(FOLLOWED_MAX):
        follow()
    until(is_full)
    for follower in followers:
        follower.close()
    until(lambda: ask(served, path.format("speaks"), Authorization=key).status == 200)


def test_who_follows_a_log_is_told_that_the_server_ends(tmp_path: Path) -> None:
    """Before the first line there is a sentence to give, and nothing to be logged."""
    with running_sandbox() as sandbox, ThreadPoolExecutor() as others:
        sandbox.create_namespace(NAMESPACE)
        with serving("--apiserver", sandbox.url, "--store", str(tmp_path / "tasks.db")) as url:
            assert post(url, manifest("waits", needs=["nobody-ends"])).status == 201
            path, key = f"/v1/tasks/{NAMESPACE}/waits/log", f"Bearer {token(url)}"
            follower = http.client.HTTPConnection(urlsplit(url).hostname or "", urlsplit(url).port, timeout=PATIENCE)
            follower.request("GET", f"{path}?follow=true", headers={"Authorization": key})
            assert ask(url, path, Authorization=key).status == 409  # so its request, which came before, is under way
            said = others.submit(follower.getresponse)
        assert said.result().status == 503
        assert "this server ends" in json.loads(said.result().read())["detail"]
        follower.close()
