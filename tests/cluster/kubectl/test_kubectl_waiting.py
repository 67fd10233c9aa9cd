"""kubectl watches, waits and meets quotas."""

from __future__ import annotations

import json

import pytest

from tests.cluster.kubectl.terminals import Terminals, manifest, pod

pytestmark = pytest.mark.go

_CONTAINER = {"name": "main", "image": "busybox:1", "imageID": "", "restartCount": 0, "ready": True,
              "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}  # fmt: skip
_RUNNING = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [_CONTAINER],
}


def _begin(kubectl: Terminals, name: str) -> None:
    """Set a pod to Running, as a kubelet does."""
    kubectl("patch", "pod", name, "--subresource=status", "-p", json.dumps({"status": _RUNNING}))


def test_a_watch_shows_each_change_as_a_row(kubectl: Terminals) -> None:
    """`kubectl get pods -w` prints the existing pods, then every change in order; on request with the event types."""
    kubectl("create", "-f", "-", stdin=pod("a"))
    with (
        kubectl.follow("get", "pods", "-w") as rows,
        kubectl.follow("get", "pods", "-w", "--output-watch-events", "--no-headers") as events,
    ):
        assert rows(2) == ["NAME READY STATUS RESTARTS AGE", "a 0/1 Pending 0 AGE"]
        assert events(1) == ["ADDED a 0/1 Pending 0 AGE"]
        _begin(kubectl, "a")
        assert rows(1) == ["a 1/1 Running 0 AGE"]
        assert events(1) == ["MODIFIED a 1/1 Running 0 AGE"]
        kubectl("create", "-f", "-", stdin=pod("b"))
        assert rows(1) == ["b 0/1 Pending 0 AGE"]
        kubectl("delete", "pod", "b", "--grace-period=0", "--force")
        assert events(1) == ["ADDED b 0/1 Pending 0 AGE"]
        assert [row.split()[0] for row in events(2)] == ["MODIFIED", "DELETED"]


def test_wait_ends_when_its_condition_holds(kubectl: Terminals) -> None:
    """It waits for a condition, for a field, or for a deletion, and reports a timeout."""
    kubectl("create", "-f", "-", stdin=pod("a"))
    assert "timed out" in kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=5s", code=1)
    _begin(kubectl, "a")

    assert kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=60s") == "pod/a condition met\n"
    assert (
        kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/a", "--timeout=60s") == "pod/a condition met\n"
    )
    kubectl("delete", "pod", "a", "--grace-period=0", "--force")
    kubectl("wait", "--for=delete", "pod/a", "--timeout=60s")
    assert "not found" in kubectl("wait", "--for=condition=Ready", "pod/a", "--timeout=5s", code=1)


def test_wait_sees_changes_while_it_waits(kubectl: Terminals) -> None:
    """It ends as soon as the change that it waits for happens."""
    kubectl("create", "-f", "-", stdin=pod("a"))
    with kubectl.follow("wait", "--for=condition=Ready", "pod/a", "--timeout=60s") as said:
        _begin(kubectl, "a")
        assert said(1) == ["pod/a condition met"]


def test_every_command_shows_the_refusal_of_a_full_quota(kubectl: Terminals) -> None:
    """create, apply, apply --server-side and run print the server's message; describe shows used and hard."""
    kubectl("create", "quota", "few", "--hard=pods=1,requests.cpu=1,limits.memory=1Gi")
    limits = [{"type": "Container", "default": {"memory": "128Mi"}}]
    kubectl("create", "-f", "-", stdin=manifest("LimitRange", "l", {"limits": limits}))
    kubectl("wait", "--for=jsonpath={.status.hard.pods}=1", "quota/few", "--timeout=60s")
    kubectl("create", "-f", "-", stdin=pod("a"))

    for command in (("create",), ("apply",), ("apply", "--server-side")):
        said = kubectl(*command, "-f", "-", stdin=pod("b"), code=1)
        assert "exceeded quota: few, requested: " in said
        assert "used: " in said
    assert "must specify requests.cpu" in kubectl("run", "c", "--image=busybox", code=1)
    kubectl("wait", "--for=jsonpath={.status.used.pods}=1", "quota/few", "--timeout=60s")
    assert "pods: 1/1, requests.cpu: 100m/1 limits.memory: 128Mi/1Gi" in kubectl("get", "quota", "few")
    assert "pods 1 1" in kubectl("describe", "quota", "few")
    assert "limits.memory 128Mi 1Gi" in kubectl("describe", "namespace", kubectl.namespace)
    assert "128Mi" in kubectl("describe", "limits", "l")


def test_scopes_are_explained(kubectl: Terminals) -> None:
    """`kubectl describe quota` describes what a scope means."""
    kubectl("create", "quota", "short", "--hard=pods=1", "--scopes=Terminating,NotBestEffort")
    kubectl("wait", "--for=jsonpath={.status.hard.pods}=1", "quota/short", "--timeout=60s")

    assert "Matches all pods that have an active deadline" in kubectl("describe", "quota", "short")


def test_events_are_shown_for_their_object(kubectl: Terminals) -> None:
    """`kubectl get events` and `kubectl events` list them; `describe` shows them below the pod."""
    kubectl("create", "-f", "-", stdin=pod("a"))
    uid = {side: each.out for side, each in zip(
        ("real", "ours"), kubectl.each("get", "pod", "a", "-o", "jsonpath={.metadata.uid}"), strict=True)}  # fmt: skip
    for terminal, its in ((kubectl.kubernetes, uid["real"]), (kubectl.sandbox, uid["ours"])):
        involved = {"apiVersion": "v1", "kind": "Pod", "name": "a", "namespace": kubectl.namespace, "uid": its}
        event = manifest("Event", "a.1", involvedObject=involved, reason="Waiting", message="room is scarce ",
                         type="Warning", count=3, source={"component": "gate", "host": "here"},
                         firstTimestamp="2026-01-01T00:00:00Z", lastTimestamp="2026-01-01T00:00:09Z")  # fmt: skip
        made = terminal.run("create", "-f", "-", stdin=json.dumps(event))
        assert made.code == 0, made.err

    assert "Warning Waiting pod/a room is scarce" in kubectl("get", "events")
    assert "Warning Waiting" in kubectl("events", "--for=pod/a")
    assert "room is scarce" in kubectl("describe", "pod", "a")


def test_a_pod_without_a_node_has_no_log(kubectl: Terminals) -> None:
    """Of a container that must be named where there are two."""
    two = [{"name": name, "image": "busybox:1"} for name in ("x", "y")]
    kubectl("create", "-f", "-", stdin=pod("a"))
    kubectl("create", "-f", "-", stdin=manifest("Pod", "b", {"containers": two}))

    assert kubectl("logs", "a") == ""
    assert "container nope is not valid for pod a" in kubectl("logs", "a", "-c", "nope", code=1)
    assert kubectl("logs", "b") == 'Defaulted container "x" out of: x, y\n'
    assert 'pods "none" not found' in kubectl("logs", "none", code=1)
