"""docs/status-api.md, as its reader follows it: its program, its commands, what they print."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.engine import ObservedQuota
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.workloads.admitting.kinds import WAIT
from tests.explaining.asking import job
from tests.explaining.asking import pod as asked_pod
from tests.kit.gated_creates import pod
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.pages import blocks, typed
from tests.status.asking import Crowd, ask
from tests.tasks.sandbox_process import sandbox_process

PAGE = "docs/status-api.md"


def command(begin: str) -> tuple[list[str], str]:
    """Return the words and the printed lines of the one command that begins so."""
    begun = [each for each in typed(PAGE) if each.command.startswith(begin)]
    (found,) = [each for each in begun if each.command == begin] or begun
    return found.command.split()[1:], found.printed


def cells(table: str) -> list[list[str]]:
    """Return the words of a table, without a trend, which takes a minute; how many seconds it says is left open."""
    return [re.sub(r"\d+s", "Ns", re.sub(r"\btrend\b|\+\d+", "", line)).split() for line in table.splitlines()]


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
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(
        json.dumps({**job(8, {"cpu": "1"}), "metadata": {"name": "train", "namespace": "team"}})
    )
    crowd.gate.ledger.watching("team")
    words, printed = command("backoff-ctrl explain -f job.yaml")
    run([*words, "--gate", crowd.url])
    assert capsys.readouterr().out == printed


def test_what_waits_for_the_operator_is_explained_as_on_the_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two others wait before it, and an operator leads."""
    monkeypatch.chdir(tmp_path)
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team", labels={WAIT: "true"})
        sandbox.create_quota("team", "q", {"requests.cpu": "10"})

        def create(path: str, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            assert ask(sandbox.url, path, method="POST", body=text, Content_Type="application/json").status == 201

        create("/api/v1/namespaces/team/pods", {**asked_pod({"cpu": "8"}), "metadata": {"name": "there"}})
        for name in ("first", "second"):
            waiting = {**job(8, {"cpu": "1"}, suspend=True), "metadata": {"name": name}}
            create("/apis/batch/v1/namespaces/team/jobs", waiting)
        renewed = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": renewed}
        lease = {"metadata": {"name": "backoff-ctrl-operator"}, "spec": spec}
        create("/apis/coordination.k8s.io/v1/namespaces/default/leases", lease)
        file = write_kubeconfig(tmp_path / "config", sandbox.url, namespace="team")
        Path("job.yaml").write_text(json.dumps({**job(8, {"cpu": "1"}, suspend=True), "metadata": {"name": "train"}}))
        words, printed = command("backoff-ctrl explain -f job.yaml --context prod")
        run([*("here" if word == "prod" else word for word in words), "--kubeconfig", file])
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
