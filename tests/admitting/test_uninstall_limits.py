"""``backoff-ctrl uninstall`` against an API server whose answers are scripted: its waits end, and say what to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from backoff_ctrl.api.operator import uninstall
from tests.kit.scripted_server import Seen, api_server

EMPTY: Any = (200, {"metadata": {"resourceVersion": "1"}, "items": []})


@pytest.mark.long
def test_letting_tasks_go_ends_after_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their list is asked for again and again; the pod of a hook would be ended without a word."""
    monkeypatch.setattr(uninstall, "LETS_GO_WITHIN", 1.0)

    def answer(seen: Seen) -> tuple[int, Any]:
        path, _, query = seen.path.partition("?")
        fails = path.endswith("/tasks") and query != "limit=1"
        return (500, {"kind": "Status", "message": "etcd is away"}) if fails else EMPTY

    with api_server(answer) as script:
        words = ["--yes", f"--apiserver={script.url}"]
        done = CliRunner().invoke(uninstall.command, words, standalone_mode=False)
    assert done.return_value == 1, done.output
    assert "Tasks: not all of them were let go within 1 s: run it again" in done.output


DEPLOYMENT = "/apis/apps/v1/namespaces/gates/deployments/operator"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gates/leases/operator"
HERE = ("--yes", "--namespace=gates", "--operator=operator")


class Cluster:
    """A Deployment that can be patched, and a Lease; nothing waits."""

    def __init__(self, lease: Callable[[int], dict[str, Any]] = lambda _: {}, running: int = 0) -> None:
        """``lease`` returns the spec of the Lease at each look; ``running``: replicas that do not end."""
        self.deployment: dict[str, Any] = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}}
        self.deployment["status"] = {"replicas": running}
        self.looks = 0
        self._lease = lease

    def __call__(self, seen: Seen) -> tuple[int, Any]:
        path = seen.path.partition("?")[0]
        if path == DEPLOYMENT:
            if seen.method == "PATCH":
                self.deployment["spec"] |= seen.body.get("spec", {})
                self.deployment["metadata"] |= {"annotations": seen.body["metadata"].get("annotations", {})}
            return 200, self.deployment
        if path == LEASE:
            self.looks += 1
            return 200, {"spec": self._lease(self.looks)}
        return (404, {"kind": "Status"}) if path.endswith("/tasks") else EMPTY


def left(cluster: Callable[[Seen], tuple[int, Any]], *words: str) -> tuple[int, str]:
    """Run the command; return its exit code, and what it said."""
    with api_server(cluster) as script:
        given = [*HERE, *words, f"--apiserver={script.url}"]
        done = CliRunner().invoke(uninstall.command, given, standalone_mode=False)
    assert done.exception is None, done.output
    return done.return_value, done.output


@pytest.mark.long
@pytest.mark.parametrize("why", ["a replica", "its leader"])
def test_an_operator_that_does_not_end_is_started_again(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """And nothing is let go: it would have that wait again. A leader that renews its Lease lives."""
    monkeypatch.setattr(uninstall, "STOPS_WITHIN", 2.5)
    renewed = {"holderIdentity": "one", "leaseDurationSeconds": 1}
    cluster = Cluster(running=1) if why == "a replica" else Cluster(lambda look: {**renewed, "renewTime": str(look)})
    code, said = left(cluster)
    assert (code, "operator has not ended within 2.5 s: kubectl -n gates get pods" in said) == (1, True), said
    assert cluster.deployment["spec"]["replicas"] == 2
    assert "let go" not in said


@pytest.mark.long
def test_a_leader_whose_node_is_gone_has_ended_when_its_lease_has_lapsed() -> None:
    cluster = Cluster(lambda _: {"holderIdentity": "one", "leaseDurationSeconds": 1, "renewTime": "once"})
    began = time.monotonic()
    assert left(cluster)[0] == 0
    assert time.monotonic() - began > 1
    assert cluster.deployment["spec"]["replicas"] == 0


def test_where_no_operator_is_installed_nothing_is_done() -> None:
    def none(seen: Seen) -> tuple[int, Any]:
        assert (seen.method, seen.path) == ("GET", DEPLOYMENT), seen
        return 404, {"kind": "Status"}

    said = "the operator: namespace gates has no Deployment operator, so no step is needed\n"
    assert left(none, "--if-installed") == (0, said)
    code, said = left(none, "--narrow")
    assert (code, "namespace gates has no Deployment operator: name it" in said) == (1, True), said


def test_an_api_server_that_refuses_the_deployment_stops_it() -> None:
    """Not even with ``--if-installed``: whether there is one is unknown then."""

    def refuses(seen: Seen) -> tuple[int, Any]:
        assert (seen.method, seen.path) == ("GET", DEPLOYMENT), seen
        return 403, {"kind": "Status", "message": "no"}

    assert left(refuses, "--if-installed")[0] == 1


def test_putting_back_ends_after_its_limit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A pod that is ended has 30 s. What can be put back before is."""
    monkeypatch.setattr(uninstall, "PUTS_BACK_WITHIN", 0.1)
    done = list[str]()

    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    async def quick() -> str:
        done.append("quick")
        return "put back"

    leaving: Any = type("Leaving", (), {"back": [("first", quick), ("stuck", never), ("last", quick)]})
    asyncio.run(uninstall._put_back(leaving))
    assert done == ["quick"]
    assert "not all was put back within 0.1 s: run it again, or set it by hand" in capsys.readouterr().err
