"""``POST /v1/explain`` of a gate inside a program, and the command that asks it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml
from click.testing import CliRunner
from kubernetes import config

from backoff_ctrl.api.main import cli
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from backoff_ctrl.k8s.status.bodies import BODY_MAX
from tests.explaining.asking import job, pod
from tests.kit.kubeconfigs import write_kubeconfig
from tests.status.asking import Crowd, ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.status.asking import Answer

JSON_TYPE = "application/json"


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    """A gate that was refused once: quota ``q`` of one pod in ``team`` is full."""
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "q", {"pods": "1"})
        made = Crowd(sandbox)
        made.core.create_namespaced_pod("team", pod())
        from backoff_ctrl.engine.facts.quotas import ObservedQuota  # noqa: PLC0415

        one = {"pods": 10**9}
        made.gate.ledger.observe_quota("team", "q", ObservedQuota(one, one, one))
        made.gate.ledger.watching("team")
        yield made
        made.close()


def post(crowd: Crowd, body: bytes, content_type: str = JSON_TYPE, query: str = "", **headers: str) -> Answer:
    """POST a manifest."""
    return ask(crowd.url, f"/v1/explain{query}", method="POST", body=body, Content_Type=content_type, **headers)


@pytest.mark.parametrize("as_yaml", [False, True])
def test_a_gate_explains(crowd: Crowd, as_yaml: bool) -> None:
    """JSON and YAML; the keys are those that scripts read."""
    text = yaml.safe_dump(pod()) if as_yaml else json.dumps(pod())
    found = post(crowd, text.encode(), "application/yaml" if as_yaml else JSON_TYPE)
    assert found.status == 200, found
    document = found.json
    assert document["verdict"] == "wait"
    assert document["blockers"] == [{"quota": "q", "resource": "pods", "asked": "1", "left": "0", "limited": "1"}]
    assert document["estimated_at"] is None
    assert document["footprint"]["amounts"] == {"count/pods": "1", "pods": "1"}
    assert [part["part"] for part in document["parts"]] == ["create"]
    assert "LimitRange" in document["note"]


def test_the_namespace_may_be_in_the_query(crowd: Crowd) -> None:
    """A manifest often has none; two that differ are a mistake."""
    manifest = pod()
    del manifest["metadata"]["namespace"]
    body = json.dumps(manifest).encode()
    assert post(crowd, body, query="?namespace=team").json["verdict"] == "wait"
    assert post(crowd, body, query="?namespace=other").json["verdict"] == "unknown"
    assert post(crowd, body).json["errors"][0]["pointer"] == "#/body/metadata/namespace"
    assert post(crowd, json.dumps(pod()).encode(), query="?namespace=other").status == 400


@pytest.mark.parametrize(
    ("body", "content_type", "status", "pointer"),
    [
        (b"{}", "text/plain", 415, "#/headers/Content-Type"),
        (b"{}", "", 415, "#/headers/Content-Type"),
        (b"", JSON_TYPE, 400, "#/body"),
        (b"[1]", JSON_TYPE, 400, "#/body"),
        (b"a: [", "application/yaml", 400, "#/body"),
        (b"\xff", JSON_TYPE, 400, "#/body"),
        (b"kind: A\n---\nkind: B\n", "application/yaml", 400, "#/body"),
        (b"x" * (BODY_MAX + 1), JSON_TYPE, 413, "#/body"),
        (b"a: &a 1\nb: [" + b"*a, " * 30 + b"*a]\n", "application/yaml", 400, "#/body"),
        (b'{"metadata": {"namespace": 5}}', JSON_TYPE, 400, "#/body/metadata/namespace"),
        (b'{"metadata": {"namespace": "team"}}', JSON_TYPE, 422, "#/body"),
    ],
)
def test_a_bad_body_is_a_problem_with_a_pointer(
    crowd: Crowd, body: bytes, content_type: str, status: int, pointer: str
) -> None:
    """Never a 500, and the gate goes on."""
    found = post(crowd, body, content_type)
    assert (found.status, found.headers["Content-Type"]) == (status, "application/problem+json")
    assert found.json["errors"][0]["pointer"].startswith(pointer)
    assert crowd.gate.ledger.counts.failed_open == 0


def test_only_pages_of_this_machine_may_ask(crowd: Crowd) -> None:
    """Any web page can post to loopback."""
    body = json.dumps(pod()).encode()
    assert post(crowd, body, Origin="https://evil.example").status == 403
    assert post(crowd, body, Origin="null").status == 403
    assert post(crowd, body, Origin="http://localhost:9095").status == 200


def test_a_gate_lends_nobody_the_rights_of_its_program(crowd: Crowd) -> None:
    """A dry run would be sent with them; whether one is wanted is read strictly."""
    body = json.dumps(pod()).encode()
    refused = post(crowd, body, query="?confirm=true")
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (403, "#/query/confirm")
    assert "--kubeconfig" in refused.json["detail"]
    assert post(crowd, body, query="?confirm=false").json["confirmation"] is None
    assert post(crowd, body, query="?confirm=yes").json["errors"][0]["pointer"] == "#/query/confirm"


@pytest.mark.parametrize("name", ["a/../b", "Team", "x" * 64, "-a", "a?b", "\u00e9"])
def test_a_namespace_is_a_name_and_no_path(crowd: Crowd, name: str) -> None:
    """It becomes a part of the paths that the API server is asked for."""
    body = json.dumps({**pod(), "metadata": {"name": "p", "namespace": name}}).encode()
    found = post(crowd, body)
    assert (found.status, found.json["errors"][0]["pointer"]) == (400, "#/body/metadata/namespace")


def test_explain_is_asked_by_post(crowd: Crowd) -> None:
    """The other URLs are not."""
    found = ask(crowd.url, "/v1/explain")
    assert (found.status, found.headers["Allow"]) == (405, "POST")
    assert post(crowd, b"{}", query="?limit=5").status == 400


def run(*arguments: str, stdin: str = "") -> tuple[int, str]:
    """Run the command."""
    done = CliRunner().invoke(cli, ["explain", *arguments], input=stdin)
    return done.exit_code, done.output


def test_the_command_says_it_in_sentences(crowd: Crowd, tmp_path: Path) -> None:
    """With what is in the way, and for a Job what becomes of its pods."""
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([pod(), job(2)]))
    code, text = run("-f", str(file), "--gate", crowd.url)
    assert code == 0, text
    assert text.splitlines() == [
        "Pod team/p: would wait",
        "  quota q: pods asks 1, left 0 of 1",
        "note: LimitRange defaults are not known here and are left out",
        "",
        "Job team/j: would be created now",
        "  and then the objects that it makes would not all fit now",
        "  quota q: pods asks 2, left 0 of 1",
        "note: LimitRange defaults are not known here and are left out",
    ]


def test_the_namespace_is_the_context_s(crowd: Crowd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither the manifest nor -n names one, as for kubectl; else they do."""
    plain, named = (
        json.dumps({**pod(), "metadata": {"name": "p", **more}}) for more in ({}, {"namespace": "elsewhere"})
    )
    file = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", namespace="team")
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", file)
    assert run("-f", "-", "--gate", crowd.url, stdin=plain)[1].startswith("Pod team/p: would wait\n")
    assert run("-f", "-", "--gate", crowd.url, stdin=named)[1].startswith("Pod elsewhere/p: ")
    assert run("-f", "-", "-n", "other", "--gate", crowd.url, stdin=plain)[1].startswith("Pod other/p: ")
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "nothing"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    code, said = run("-f", "-", "--gate", crowd.url, stdin=plain)
    assert (code, "name the namespace, in the manifest or with -n" in said, said.count("\n")) == (2, True, 1), said


def test_a_gate_knows_of_a_suspended_job_what_it_asks(crowd: Crowd) -> None:
    """And who knows whether it is resumed."""
    said = run("-f", "-", "--gate", crowd.url, stdin=json.dumps(job(2, suspend=True)))[1].splitlines()
    assert said[1:3] == [
        "  and once it is resumed the objects that it makes would not all fit now",
        "  quota q: pods asks 2, left 0 of 1",
    ]
    assert "whether the operator resumes it is known to the cluster" in said[3]


def test_the_command_prints_the_document(crowd: Crowd) -> None:
    """One manifest, one object; several, a list."""
    one = run("-f", "-", "--gate", crowd.url, "--json", stdin=json.dumps(pod()))
    assert (one[0], json.loads(one[1])["verdict"]) == (0, "wait")
    two = run("-f", "-", "--gate", crowd.url, "--json", stdin=yaml.safe_dump_all([pod(), job()]))
    assert [each["footprint"]["kind"] for each in json.loads(two[1])] == ["Pod", "Job"]


def test_wrong_use_is_one_sentence(crowd: Crowd) -> None:
    """Exit code 2."""
    bad = run("-f", "-", "--gate", crowd.url, stdin="apiVersion: v1\nkind: Pod\nspec: {}\nmetadata: {namespace: team}")
    assert bad[0] == 2
    assert "spec.containers" in bad[1]
    assert run("-f", "-", "--gate", crowd.url, stdin="kind: Pod")[0] == 2
    both = run("-f", "-", "--gate", crowd.url, "--context", "x", stdin="kind: Pod")
    assert (both[0], "only one of them" in both[1]) == (2, True)
