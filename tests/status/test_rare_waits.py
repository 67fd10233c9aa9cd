"""Creates that follow another one with their key, creates that never fit, and a gate whose watch is lost."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.k8s.kube.watching.status import EVERYWHERE, WatchRecord
from backoff_ctrl.k8s.lab.sandbox import running_sandbox
from tests.kit.gated_creates import pod
from tests.kit.patience import PATIENCE
from tests.serve.serving import until
from tests.status.asking import Crowd, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

CPU = 10**9


def metrics(crowd: Crowd, name: str) -> list[str]:
    """The samples of a metric."""
    return [line for line in ask(crowd.url, "/metrics").body.decode().splitlines() if line.startswith(name + "{")]


def test_who_follows_another_create_is_shown_behind_the_line(crowd: Crowd) -> None:
    """It waits, too, though it has no place: in the list and its pages, the counts, the metrics and its history."""
    threads = [crowd.wait_with("keyed", key="k") for _ in range(3)]
    crowd.wait_with("other")
    listed = crowd.get("/v1/waiting")["items"]
    found = [(each["name"].partition("*")[0], each["place"], each["reason"]) for each in listed]
    assert [each[1:] for each in found] == [(1, "quota"), (2, "quota"), (None, "same-key"), (None, "same-key")]
    assert [each[0] for each in found] == ["keyed", "other", "keyed", "keyed"]
    assert listed[2]["since"] <= listed[3]["since"]
    paged: list[Any] = []
    after: str | None = ""
    while after is not None:
        page = crowd.get("/v1/waiting?namespace=team&limit=1" + (f"&after={after}" if after else ""))
        paged += page["items"]
        after = page["next"]
    assert paged == listed
    (namespace,) = crowd.get("/v1/namespaces")["items"]
    assert namespace["waiting"] == 4
    assert 'backoff_ctrl_waiting{namespace="team",reason="same-key"} 2' in metrics(crowd, "backoff_ctrl_waiting")
    assert crowd.get(f"/v1/requests/{listed[2]['id']}")["state"] == "waiting"
    crowd.make_room("first")
    for thread in threads:
        thread.join(PATIENCE)
    until(lambda: [each["reason"] for each in crowd.get("/v1/waiting")["items"]] == ["quota"])  # it was let probe, too
    assert not any("same-key" in line for line in metrics(crowd, "backoff_ctrl_waiting"))


@pytest.fixture(params=["fail", "wait"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    """A gate that knows a quota of one CPU, and what to do with what never fits there."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # creates that are cancelled at the end
    with running_sandbox() as sandbox:
        sandbox.create_namespace("team")
        sandbox.create_quota("team", "small", {"requests.cpu": "1"})
        made = Crowd(sandbox, on_never_fits=request.param)
        try:
            hard = {"requests.cpu": CPU}
            made.gate.ledger.observe_quota("team", "small", ObservedQuota(hard, {"requests.cpu": 0}, hard))
            made.gate.ledger.watching("team")
            yield made
        finally:
            made.close()


def test_what_never_fits_is_told_with_its_quota_and_what_the_gate_does(small: Crowd) -> None:
    """Declined at once, with a decision and a metric that say so; or waiting for that reason. Explain says which."""
    fails = small.gate.ledger.policy.on_never_fits == "fail"
    body = json.dumps(pod("big", cpu="2")).encode()
    path = "/v1/explain?namespace=team"
    found = ask(small.url, path, method="POST", body=body, Content_Type="application/json").json
    assert found["verdict"] == "never"
    assert ("declines at once what never fits" in found["note"]) == fails
    assert ("wait until the limit is raised" in found["note"]) == (not fails)
    if not fails:
        small.wait_with("big", manifest=pod("big", cpu="2"))
        (item,) = small.get("/v1/waiting")["items"]
        assert (item["reason"], [each["resource"] for each in item["blockers"]]) == ("never-fits", ["requests.cpu"])
        return
    with pytest.raises(client.ApiException):
        small.core.create_namespaced_pod("team", pod("big", cpu="2"))
    (told,) = list(small.service.ring.after(0).decisions)
    assert (told.event, told.reason, told.quota, told.resource) == ("declined", "never-fits", "small", "requests.cpu")
    assert small.get(f"/v1/requests/{told.id}")["history"][-1]["resource"] == "requests.cpu"
    (line,) = metrics(small, "backoff_ctrl_declines_total")
    assert line == 'backoff_ctrl_declines_total{namespace="team",reason="never-fits"} 1'


async def test_a_gate_whose_watch_is_lost_is_not_ready(crowd: Crowd) -> None:
    """A reason for each place; one that never could watch is ready, since it learns."""
    record: Any = WatchRecord()
    crowd.source.record = lambda: record
    record.quotas("team", seen=False, why="may not list")
    assert ask(crowd.url, "/readyz").status == 200
    record.quotas(EVERYWHERE, seen=True)
    assert ask(crowd.url, "/readyz").status == 200
    record.quotas(EVERYWHERE, seen=False, why="the server went away")
    lost = ask(crowd.url, "/readyz")
    assert (lost.status, lost.body.decode()) == (
        503, "quotas of all namespaces: watch lost: the server went away\n"
    )  # fmt: skip
    assert ask(crowd.url, "/livez").status == 200
    record.quotas(EVERYWHERE, seen=True)
    assert ask(crowd.url, "/readyz").body == b"ok\n"
