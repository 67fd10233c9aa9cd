"""Each URL's document, of creates that really wait at a quota of the sandbox."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID
from tests.kit.gated_creates import pod
from tests.kit.patience import PATIENCE
from tests.status.asking import ask

if TYPE_CHECKING:
    from tests.status.asking import Crowd

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def owned(name: str) -> Any:
    """A pod with an owner and labels."""
    manifest = pod(name)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "etl", "uid": "u1", "controller": True}
    manifest["metadata"].update(labels={"app": "etl"}, ownerReferences=[owner])
    return manifest


def test_ceilings_are_as_the_refusal_said(crowd: Crowd) -> None:
    """Learned from it, and blocked until the next probe."""
    crowd.wait_with("second")
    page = crowd.get("/v1/ceilings")
    assert page["next"] is None
    assert RFC_3339.fullmatch(page["as_of"])
    (ceiling,) = page["items"]
    assert RFC_3339.fullmatch(ceiling.pop("heard_at"))
    block = ceiling.pop("block")
    assert (block["state"], block["attempts"]) == ("shut", 0)
    assert RFC_3339.fullmatch(block["next_probe_at"])
    assert ceiling == {
        "namespace": "team", "quota": "q", "resource": "pods", "limited": "1", "used": "1", "held": "0",
        "reserved": "0", "headroom": "0", "unsettled": "0", "kept": False, "source": "learned",
        "trend": None, "waiting": 1,
    }  # fmt: skip


def test_who_waits_is_listed_in_the_order_of_the_line(crowd: Crowd) -> None:
    """With what each asks, whose it is, and its place."""
    crowd.wait_with("second", manifest=owned("second"))
    crowd.wait_with("urgent", priority=100)
    urgent, second = crowd.get("/v1/waiting?namespace=team")["items"]
    assert (urgent["name"], urgent["place"], urgent["priority"]) == ("urgent", 1, 100)
    assert re.fullmatch(r"[0-9a-z-]+", second["id"])
    assert (second["name"], second["place"], second["kind"], second["namespace"]) == ("second", 2, "pods", "team")
    assert second["owner"] == {"api_version": "batch/v1", "kind": "Job", "name": "etl", "uid": "u1"}
    assert second["labels"] == {"app": "etl"}
    assert second["reason"] == "quota"
    assert second["blockers"] == [{"quota": "q", "resource": "pods", "asked": "1", "left": "0", "limited": "1"}]
    assert RFC_3339.fullmatch(second["next_probe_at"])
    assert (second["estimated_at"], second["gang"]) == (None, None)
    assert crowd.get("/v1/waiting?namespace=other")["items"] == []


def test_a_request_has_a_history_while_it_waits_and_after_it(crowd: Crowd) -> None:
    """Under the id that the stored object carries as an annotation."""
    thread = crowd.wait_with("second")
    (waiting,) = crowd.get("/v1/waiting")["items"]
    found = crowd.get(f"/v1/requests/{waiting['id']}")
    assert (found["state"], found["name"], found["complete"]) == ("waiting", "second", True)
    assert found["waiting"] == waiting
    assert [each["event"] for each in found["history"]] == ["refused", "waits"]
    crowd.make_room("first")
    thread.join(PATIENCE)
    stored = crowd.core.read_namespaced_pod("second", "team")
    assert stored.metadata.annotations[CREATE_ID] == waiting["id"]
    found = crowd.get(f"/v1/requests/{waiting['id']}")
    assert (found["state"], found["waiting"]) == ("over", None)
    assert [each["event"] for each in found["history"]][-2:] == ["admitted", "created"]
    assert found["history"][-1]["waited_seconds"] > 0


def test_a_namespace_says_what_was_counted_there(crowd: Crowd) -> None:
    """What was sent, refused and saved is that of one create that waits and one that does not."""
    crowd.wait_with("second").join(0)
    (found,) = crowd.get("/v1/namespaces")["items"]
    assert (found["namespace"], found["mode"], found["watch"], found["waiting"]) == ("team", "enforce", None, 1)
    assert RFC_3339.fullmatch(found["oldest_since"])
    counted = found["counted"]
    assert (counted["sent"], counted["created"], counted["refused"]) == (2, 1, {"quota": 1})
    assert counted["shadow"] is None


def test_overload_policy_gates_and_version_are_shown(crowd: Crowd) -> None:
    """A window's name gives nothing away of the credential."""
    crowd.wait_with("second")
    for window in crowd.get("/v1/overload")["items"]:  # one before the priority level is known, one after
        assert (window["server"], window["in_flight"], window["paused_until"]) == (crowd.sandbox.url, 0, None)
        assert re.fullmatch(r"[0-9a-f]{12}", window["flow"])
    policy = crowd.get("/v1/policy")
    assert (policy["policy"]["base"], policy["mode"]) == (60, {"*": "enforce", "team": "enforce"})
    (gate,) = crowd.get("/v1/gates")["items"]
    assert (gate["gate"], gate["server"], gate["waiting"]) == (crowd.source.name, crowd.sandbox.url, 1)
    version = ask(crowd.url, "/version")
    assert version.json["version"] == gate["version"]
    assert ask(crowd.url, "/version", If_None_Match=version.headers["ETag"]).status == 304
    assert ask(crowd.url, "/livez").body == ask(crowd.url, "/readyz").body == b"ok\n"
