"""What operators do to a running gate, over HTTP and by command, at a real gate on the sandbox."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any

from kubernetes import client

from backoff_ctrl.api.main import run
from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.k8s.status.actions import audit
from backoff_ctrl.k8s.status.token import read_token
from tests.kit.gated_creates import pod
from tests.kit.patience import PATIENCE
from tests.status.asking import Answer, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.status.asking import Crowd


def act(crowd: Crowd, action: str, *, token: str | None = None, **body: Any) -> Answer:
    """Send one action."""
    given = read_token(crowd.server.port) if token is None else token
    return ask(
        crowd.url, f"/v1/actions/{action}", method="POST", body=json.dumps(body).encode(),
        Authorization=f"Bearer {given}", Content_Type="application/json",
    )  # fmt: skip


def waiting(crowd: Crowd) -> list[dict[str, Any]]:
    """Who waits, in order."""
    items: list[dict[str, Any]] = crowd.get("/v1/waiting")["items"]
    return items


def until(holds: Callable[[], bool]) -> None:
    """Ask again and again."""
    pause = threading.Event()
    while not holds():
        pause.wait(0.01)


def test_a_paused_namespace_sends_nothing_until_it_is_resumed(crowd: Crowd) -> None:
    """Although there is room; why it waits is said; other namespaces go on."""
    crowd.sandbox.create_namespace("other")
    assert act(crowd, "pause", namespace="other", why="maintenance").status == 200
    crowd.wait_with("late", namespace="other")
    (item,) = waiting(crowd)
    assert (item["name"], item["reason"], item["blockers"]) == ("late", "paused-by-operator", [])
    found = {each["namespace"]: each["paused"] for each in crowd.get("/v1/namespaces")["items"]}
    assert found == {"team": False, "other": True}
    done = act(crowd, "resume", namespace="other")
    assert (done.status, done.json["done"]) == (200, "creates in namespace other continue")
    crowd.threads[0].join(PATIENCE)
    assert not crowd.threads[0].is_alive()
    assert crowd.core.read_namespaced_pod("late", "other").metadata.name == "late"
    again = act(crowd, "resume", namespace="other")
    assert (again.status, again.json["detail"]) == (409, "namespace other is not paused")


def test_a_pause_outlives_an_internal_error(crowd: Crowd) -> None:
    """The engine that begins anew is told of it."""
    assert act(crowd, "pause", namespace="other").status == 200
    before = crowd.gate.controller
    crowd.gate.ledger.engine.act(lambda *_: 1 / 0)
    assert crowd.gate.controller is not before
    assert crowd.gate.ledger.is_halted("other")


def test_a_namespace_that_is_not_enforced_cannot_be_paused(crowd: Crowd) -> None:
    """Its creates would be sent all the same: nobody should believe otherwise."""
    crowd.gate.ledger.mode = lambda _: "shadow"
    found = act(crowd, "pause", namespace="team")
    assert found.status == 409
    assert "not in the mode enforce" in found.json["detail"]


def test_a_waiter_is_moved_to_the_front(crowd: Crowd) -> None:
    """Its priority and its place show it, and it goes in first."""
    crowd.wait_with("second")
    crowd.wait_with("third")
    done = act(crowd, "prioritize", id=waiting(crowd)[1]["id"], priority=7)
    assert (done.status, done.json["done"]) == (200, "pods team/third has priority 7 now, and place 1 in line")
    assert [(each["name"], each["priority"], each["place"]) for each in waiting(crowd)] == [
        ("third", 7, 1),
        ("second", 0, 2),
    ]
    crowd.make_room("first")
    crowd.threads[1].join(PATIENCE)
    assert [each.metadata.name for each in crowd.core.list_namespaced_pod("team").items] == ["third"]


def test_a_cancelled_create_leaves_the_line_and_its_caller_learns_why(crowd: Crowd) -> None:
    """It was never sent; the others go on."""
    errors: list[Exception] = []

    def create() -> None:
        try:
            crowd.core.create_namespaced_pod("team", pod("second"))
        except Exception as error:  # noqa: BLE001 - whatever it is
            errors.append(error)

    crowd.wait_with("third")
    thread = threading.Thread(target=create)
    thread.start()
    crowd.threads.append(thread)
    until(lambda: len(waiting(crowd)) == 2)
    (victim,) = (each["id"] for each in waiting(crowd) if each["name"] == "second")
    assert act(crowd, "cancel", id=victim, by="ann", why="wrong team").status == 200
    thread.join(PATIENCE)
    assert [str(error) for error in errors] == ["pods team/second was cancelled by ann: wrong team"]
    assert [each["name"] for each in waiting(crowd)] == ["third"]
    assert crowd.get(f"/v1/requests/{victim}")["history"][-1]["event"] == "cancelled"
    assert act(crowd, "cancel", id=victim).status == 404


def test_a_learned_quota_is_forgotten_a_watched_one_is_not(crowd: Crowd) -> None:
    """What the watch reports is what the server says."""
    crowd.wait_with("second")
    assert len(crowd.get("/v1/ceilings")["items"]) == 1
    assert act(crowd, "forget", namespace="team", quota="none").status == 404
    crowd.gate.ledger.observe_quota("b", "q", ObservedQuota({"pods": 1}, {"pods": 1}, {"pods": 1}))
    crowd.gate.ledger.watching("b")
    assert act(crowd, "forget", namespace="b", quota="q").status == 409
    with client.ApiClient(client.Configuration(host=crowd.sandbox.url)) as api:  # the gate does not see it
        plain: Any = client.CoreV1Api(api)
        plain.delete_namespaced_pod("first", "team", grace_period_seconds=0)
        until(lambda: plain.read_namespaced_resource_quota("q", "team").status.used == {"pods": "0"})
    assert act(crowd, "forget", namespace="team", quota="q").status == 200
    crowd.threads[0].join(PATIENCE)  # nothing holds it any more
    assert not crowd.threads[0].is_alive()


def test_every_action_is_one_line_of_the_audit_log(crowd: Crowd, caplog: pytest.LogCaptureFixture) -> None:
    """Who, what, from where, why, and what came of it; without characters that forge lines."""
    with caplog.at_level(logging.WARNING, audit.name):
        act(crowd, "pause", namespace="team", by="ann\nforged", why="release")
        act(crowd, "cancel", id="none", by="bob")
    done, refused = (line.getMessage() for line in caplog.records if line.name == audit.name)
    what, _, came_of_it = done.partition("; ")
    assert what == "pause namespace team by ann?forged: release (from loopback)"
    assert came_of_it == "creates in namespace team wait until you resume it"
    assert refused.startswith("not done: cancel create none by bob (from loopback); no create with the id 'none'")


def test_the_commands_find_the_token_and_act(
    crowd: Crowd, capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same user and machine by themselves; else from a file or the environment."""
    crowd.wait_with("second")
    (item,) = waiting(crowd)
    here = ["--gate", crowd.url]
    assert run(["act", "pause", "team", *here, "--why", "release"]) == 0
    assert capsys.readouterr().out == "creates in namespace team wait until you resume it\n"
    assert run(["act", "resume", "team", *here, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["action"] == "resume"
    assert run(["act", "prioritize", item["id"], "-3", *here]) == 0
    assert waiting(crowd)[0]["priority"] == -3
    file = tmp_path / "token"
    file.write_text("wrong-but-long-enough\n")
    assert run(["act", "cancel", item["id"], *here, "--token-file", str(file)]) == 2
    assert "answers 401: actions need the header Authorization" in capsys.readouterr().err
    assert run(["act", "cancel", "none", *here]) == 1
    assert "no create with the id 'none' is under way" in capsys.readouterr().err
    assert run(["act", "forget", "team", "q", *here]) == 0
    assert run(["act", "cancel", item["id"], "--gate", "http://gate.example:80"]) == 2
    assert "there is no token to act with" in capsys.readouterr().err
    monkeypatch.setenv("BACKOFF_CTRL_STATUS_TOKEN", "x" * 20)
    assert run(["act", "pause", "team", *here]) == 2
