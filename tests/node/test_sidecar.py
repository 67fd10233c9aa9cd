"""Sidecar and creator in one pod: who starts, ends and is killed first."""

from __future__ import annotations

import pytest

from tests.node.objects import creator, limited, pod, sidecar, used, waits, warnings, widened
from tests.node.user import User

pytestmark = [pytest.mark.node, pytest.mark.timeout(600), pytest.mark.usefixtures("release")]


def test_it_begins_before_the_creator_and_ends_after_it(user: User, namespace: str) -> None:
    """The sidecar listens before the creator starts, ends with code 0 after it, and no event warns."""
    limited(user, namespace, 2)
    user.apply(creator("creator", namespace, "step"))
    user.until_phase("Succeeded", "creator", namespace)
    found = user.find("pod", "creator", namespace)
    assert found
    ours = user.until("the sidecar's end", lambda: sidecar(found)["state"].get("terminated"))
    (main,) = found["status"]["containerStatuses"]
    ended = main["state"]["terminated"]
    assert ours["exitCode"] == 0
    assert ours["startedAt"] <= ended["startedAt"] <= ended["finishedAt"] <= ours["finishedAt"]
    assert warnings(user, namespace, "creator") == []


def test_a_sidecar_is_ended_while_a_create_waits(user: User, namespace: str) -> None:
    """A sidecar that gets SIGTERM while a create waits comes back, and its creator creates its pod once."""
    limited(user, namespace, 1)
    user.apply(creator("creator", namespace, "step"))
    user.until_phase("Running", "creator", namespace)
    user.until("the create to wait", lambda: waits(user, namespace, "creator"))
    words = ("python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)")
    user.kubectl("exec", "creator", f"--namespace={namespace}", "--container=backoff-ctrl", "--", *words)
    again = user.until("the sidecar's second life", lambda: restarted(user, namespace, "creator"))
    assert again == 1
    widened(user, namespace, 2)
    user.until_phase("Succeeded", "creator", namespace)
    user.until_phase("Succeeded", "step", namespace)


def test_a_sidecar_is_killed_while_a_create_waits(user: User, namespace: str) -> None:
    """A sidecar that is killed while a create waits has sent nothing, and kubectl ends with an error."""
    limited(user, namespace, 1)
    user.apply(creator("creator", namespace, "step"))
    user.until_phase("Running", "creator", namespace)
    user.until("the create to wait", lambda: waits(user, namespace, "creator"))
    found = user.find("pod", "creator", namespace)
    assert found
    container = sidecar(found)["containerID"].removeprefix("containerd://")
    address = f"--address={user.folder}/containerd.sock"
    user.types(["ctr", address, "--namespace=k8s.io", "--timeout=20s", "task", "kill", "--signal=SIGKILL", container])
    user.until_phase("Failed", "creator", namespace)
    assert "EOF" in user.kubectl("logs", "creator", f"--namespace={namespace}", "--container=creator")
    widened(user, namespace, 2)
    user.apply(creator("second", namespace, "step"))
    user.until_phase("Succeeded", "step", namespace)


def test_a_creator_is_deleted_while_its_create_waits(user: User, namespace: str) -> None:
    """A creator's pod that is deleted while its create waits is gone within its grace; nothing is created for it."""
    limited(user, namespace, 1)
    user.apply(creator("creator", namespace, "step"))
    user.until_phase("Running", "creator", namespace)
    user.until("the create to wait", lambda: waits(user, namespace, "creator"))
    user.kubectl("delete", "pod", "creator", f"--namespace={namespace}", "--timeout=60s")
    user.apply(pod("other", namespace, "true"))
    user.until_phase("Succeeded", "other", namespace)
    assert user.find("pod", "step", namespace) is None
    assert user.until("the quota to be free", lambda: used(user, namespace) == 0)


def restarted(user: User, namespace: str, name: str) -> int:
    found = user.find("pod", name, namespace)
    assert found
    ours = sidecar(found)
    return int(ours["restartCount"]) if ours.get("ready") else 0
