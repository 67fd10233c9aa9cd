"""docs/status-api.md, as its reader follows it: its program, its commands, what they print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.engine import ObservedQuota
from tests.gated_creates import pod
from tests.kubeconfigs import write_kubeconfig
from tests.pages import blocks, typed
from tests.status.asking import Crowd, ask
from tests.tasks.sandbox_process import sandbox_process

PAGE = "docs/status-api.md"


def command(begin: str) -> tuple[list[str], str]:
    """Return the words and the printed lines of the one command that begins so."""
    (found,) = (each for each in typed(PAGE) if each.command.startswith(begin))
    return found.command.split()[1:], found.printed


def cells(table: str) -> list[list[str]]:
    """Return the words of a table, without a trend, which takes a minute; how many seconds it says is left open."""
    return [re.sub(r"\d+s", "Ns", re.sub(r"\+\d+", "", line)).split() for line in table.splitlines()]


@pytest.fixture
def full(crowd: Crowd) -> Crowd:
    """The quota of the page: eight pods, all there, and another one that waits."""
    crowd.core.delete_namespaced_resource_quota("q", "team")
    crowd.sandbox.create_quota("team", "q", {"pods": "8"})
    for number in range(7):
        crowd.core.create_namespaced_pod("team", pod(f"more-{number}"))
    crowd.wait_with("second")
    return crowd


def test_the_tables_are_those_of_the_page(full: Crowd, capsys: pytest.CaptureFixture[str]) -> None:
    """But for ages and trends."""
    words, printed = command("backoff-ctrl ceilings")
    assert run([*words, "--gate", full.url]) == 0
    assert cells(capsys.readouterr().out) == cells(printed)

    words, printed = command("backoff-ctrl waiting")
    assert run([full.url if word.startswith("http") else word for word in words]) == 0
    assert cells(capsys.readouterr().out) == cells(printed)


def test_an_explanation_is_that_of_the_page(
    crowd: Crowd, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a Job whose eight pods ask for more than is left."""
    amounts = {"requests.cpu": 10 * 10**9}
    crowd.gate.ledger.observe_quota("team", "q", ObservedQuota(amounts, amounts, {"requests.cpu": 8 * 10**9}))
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team"},
        "spec": {"parallelism": 8, "completions": 8, "template": template},
    }
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(json.dumps(job), encoding="utf-8")
    crowd.gate.ledger.watching("team")
    words, printed = command("backoff-ctrl explain")
    run([*words, "--gate", crowd.url])
    assert capsys.readouterr().out == printed


def test_the_program_serves_what_the_url_of_the_page_asks_for() -> None:
    """Whatever port it gets: the page's may be taken."""
    (block,) = blocks(PAGE, "python")
    names: dict[str, Any] = {}
    exec(compile(block.text, str(block), "exec"), names)
    words, _ = command("curl")
    (path,) = (word.partition("/")[2] for word in words if "/" in word)
    try:
        assert ask(names["status"].url, f"/{path}").json["items"] == []
    finally:
        names["status"].close()


@pytest.mark.long
def test_serve_says_where_it_listens_and_shows_the_gate(
    full: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a free port."""
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(tmp_path / "config", full.sandbox.url))
    words, printed = command("backoff-ctrl serve")
    words = [full.url if word.startswith("http") else word for word in words]
    with sandbox_process(tmp_path, *words, "--listen", "127.0.0.1:0") as url:
        assert urlsplit(printed.split()[-1]).hostname == urlsplit(url).hostname
        (waits,) = ask(url, "/v1/waiting?namespace=team").json["items"]
    assert waits["name"] == "second"
