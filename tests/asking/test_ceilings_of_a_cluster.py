"""``backoff-ctrl ceilings --kubeconfig``: the quotas of a cluster, without a gate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.api.main import run
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.kit.kubeconfigs import write_kubeconfig
from tests.kit.scripted_server import Seen, api_server

if TYPE_CHECKING:
    from pathlib import Path


def test_quotas_are_shown_as_a_gate_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fullest first; filters choose; the JSON has the keys of the status API."""
    with running_sandbox() as sandbox:
        for namespace, limit in (("a", "4"), ("b", "2")):
            sandbox.create_namespace(namespace)
            sandbox.create_quota(namespace, "q", {"pods": limit, "requests.cpu": "10"})
        file = write_kubeconfig(tmp_path / "config", sandbox.url)
        assert run(["ceilings", "--kubeconfig", file, "-A", "--json"]) == 0
        items = json.loads(capsys.readouterr().out)["items"]
        assert {(each["namespace"], each["resource"], each["limited"]) for each in items} == {
            ("a", "pods", "4"), ("a", "requests.cpu", "10"), ("b", "pods", "2"), ("b", "requests.cpu", "10"),
        }  # fmt: skip
        assert {each["source"] for each in items} == {"observed"}
        assert run(["ceilings", "--kubeconfig", file, "-n", "b", "--resource", "pods"]) == 0
        head, line = (each.split() for each in capsys.readouterr().out.splitlines())
        assert head[:3] == ["namespace", "quota", "resource"]
        assert line[:8] == ["b", "q", "pods", "0", "2", "2", "0%", "observed"]
        assert run(["ceilings", "--kubeconfig", file, "-n", "none"]) == 0
        out, err = capsys.readouterr()
        assert out == "The cluster has no ceilings of namespace none.\n"
        assert err.startswith("backoff-ctrl: namespace none does not exist: ")


def listed(names: list[str], more: str = "") -> dict[str, Any]:
    """A list of quotas, each full."""
    full = {"pods": "1"}
    status = {"hard": full, "used": full}
    items: list[Any] = [
        {"metadata": {"namespace": "team", "name": name}, "spec": {"hard": full}, "status": status} for name in names
    ]
    return {"kind": "ResourceQuotaList", "metadata": {"continue": more}, "items": items}


def test_all_pages_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By ``continue``; a quota that can't be read has no ceilings, and harms no other."""

    def answer(seen: Seen) -> Any:
        if "continue=" in seen.path:
            return 200, listed(["second"])
        page = listed(["first"], "more")
        page["items"].append({"metadata": {"name": "odd"}, "spec": {"scopes": ["Later"]}})
        return 200, page

    with api_server(answer) as script:
        assert run(["ceilings", "-A", "--kubeconfig", write_kubeconfig(tmp_path / "config", script.url), "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert [(each["quota"], each["headroom"]) for each in items] == [("first", "0"), ("second", "0")]


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (403, "may not list resourcequotas in all namespaces: choose one with -n, or ask for a role such as view"),
        (500, "answered 500 to the list of resourcequotas: try again"),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int, sentence: str
) -> None:
    """Exit code 2."""
    with api_server(lambda _: (status, {"kind": "Status", "metadata": {}})) as script:
        assert run(["ceilings", "-A", "--kubeconfig", write_kubeconfig(tmp_path / "config", script.url)]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["ceilings", "--kubeconfig", "f", "--gate", "http://x"], "give only one of them"),
        (["ceilings", "--kubeconfig", "/nonexistent"], "/nonexistent"),
        (["waiting", "--kubeconfig", "f"], "only a gate knows who waits"),
        (["waiting", "--context", "c"], "ask the gate with --gate URL"),
    ],
)
def test_what_a_cluster_cannot_answer_is_said(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, nothing on stdout."""
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, sentence in err) == ("", True)
