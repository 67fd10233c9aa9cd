"""``serve --store`` is a gate of itself: whoever looks at it sees which of its tasks wait, and for what."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox, running_sandbox
from tests.kit.patience import PATIENCE
from tests.serve.serving import serving, until
from tests.status.asking import ask
from tests.tasks.serving.test_tasks_over_http import post
from tests.tasks.tasks_written import NAMESPACE, manifest

pytestmark = pytest.mark.long


@contextmanager
def one_waits(folder: Path) -> Iterator[tuple[BackgroundSandbox, str]]:
    """Two tasks at a quota of one pod: the second waits."""
    with running_sandbox() as sandbox:
        sandbox.create_namespace(NAMESPACE)
        sandbox.create_quota(NAMESPACE, "q", {"pods": "1"})
        with serving("--apiserver", sandbox.url, "--store", str(folder / "tasks.db"), quiet=False) as url:
            assert post(url, manifest("one")).status == 201
            until(lambda: sandbox.used(NAMESPACE, "q") == {"pods": "1"})
            assert post(url, manifest("two")).status == 201
            until(lambda: listed(url, "waiting"))
            yield sandbox, url


def listed(url: str, what: str) -> list[Any]:
    found: list[Any] = ask(url, f"/v1/{what}").json["items"]
    return found


def act(url: str, *arguments: str) -> str:
    """Act on it as its user does: the command finds the token."""
    command = [sys.executable, "-m", "backoff_ctrl", "act", *arguments, "--gate", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


def test_its_line_is_seen_wherever_people_look(tmp_path: Path) -> None:
    """In the list of who waits, of gates and of ceilings, in an explanation, on the page, and by Prometheus."""
    with one_waits(tmp_path) as (_, url):
        (waits,) = listed(url, "waiting")
        assert (waits["namespace"], waits["place"], waits["reason"]) == (NAMESPACE, 1, "quota")
        assert [(each["quota"], each["resource"]) for each in waits["blockers"]] == [("q", "pods")]
        (gate,) = listed(url, "gates")
        assert (gate["gate_url"], gate["waiting"]) == (url, 1)
        until(lambda: [each["waiting"] for each in listed(url, "ceilings")] == [1])
        (seen,) = (each for each in listed(url, "namespaces") if each["namespace"] == NAMESPACE)
        assert (seen["waiting"], seen["fullest"]) == (1, 1.0)
        for what in ("overload", "policy"):
            assert {each["gate_url"] for each in listed(url, what)} == {url}
        page = ask(url, "/").body.decode()
        assert re.search(r"<b>team/two</b>.*?WaitingForResources.*?q pods asks 1, left 0", page, re.DOTALL)
        assert "<b>1</b> create waits" in page
        history = ask(url, f"/v1/requests/{waits['id']}").json
        assert (history["state"], history["waiting"]["reason"]) == ("waiting", "quota")
        told = ask(url, "/metrics").body.decode()
        of = f'namespace="{NAMESPACE}"'
        for line in (
            f'backoff_ctrl_waiting{{{of},reason="quota"}} 1',
            f'backoff_ctrl_blocked{{{of},resourcequota="q",resource="pods"}} 1',
            f'backoff_ctrl_ceiling_headroom{{{of},resourcequota="q",resource="pods"}} 0',
            f'backoff_ctrl_task_objects{{kind="pods",{of},state="living"}} 1',
            "backoff_ctrl_task_creates_under_way 1",
            'backoff_ctrl_tasks{phase="WaitingForResources"} 1',
        ):
            assert f"\n{line}\n" in told, line
        assert told.count("\nbackoff_ctrl_ceiling_limited{") == 1
        assert told.count("\nbackoff_ctrl_gate_info{") == 1


def test_its_user_acts_there(tmp_path: Path) -> None:
    """With the token that the server drew; without it nobody does."""
    with one_waits(tmp_path) as (_, url):
        refused = ask(
            url, "/v1/actions/pause", method="POST", body=json.dumps({"namespace": NAMESPACE}).encode(),
            Content_Type="application/json",
        )  # fmt: skip
        assert refused.status == 401
        assert "wait until you resume it" in act(url, "pause", NAMESPACE)
        assert [each["reason"] for each in listed(url, "waiting")] == ["paused-by-operator"]


def test_without_the_lease_it_says_that_it_has_no_line(tmp_path: Path) -> None:
    """Another process carries the tasks out: an empty list does not mean that nothing waits."""
    store = tmp_path / "tasks.db"
    with (
        one_waits(tmp_path) as (sandbox, _),
        serving("--apiserver", sandbox.url, "--store", str(store), quiet=False) as second,
    ):
        until(lambda: ask(second, "/v1/waiting").json["unreachable"])
        page = ask(second, "/v1/waiting").json
        assert (page["items"], [each["gate"] for each in page["unreachable"]]) == ([], [second])
        assert "another process has the lease" in page["unreachable"][0]["why"]
        assert "backoff_ctrl_gate_info" not in ask(second, "/metrics").body.decode()
