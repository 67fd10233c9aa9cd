"""Tasks of the cluster, carried out by the operator of the chart: their containers are real."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node.objects import limited, pod, widened
from tests.node.user import User

pytestmark = [pytest.mark.node, pytest.mark.timeout(600), pytest.mark.usefixtures("release")]


def task(name: str, namespace: str, command: str, **more: Any) -> dict[str, Any]:
    container = {"image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", command]}
    return {
        "apiVersion": "backoff-ctrl.dev/v1alpha1",
        "kind": "Task",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "container", "container": container, **more},
    }


def phase(user: User, name: str, namespace: str) -> str:
    found = user.find("task", name, namespace)
    return str((found or {}).get("status", {}).get("phase", ""))


def test_a_task_waits_for_quota_and_its_log_is_read(user: User, namespace: str) -> None:
    """A Task waits for a full quota, runs, succeeds, and its log is read by `task logs`."""
    limited(user, namespace, 1)
    user.apply(pod("holder", namespace, "sleep 600"))
    user.until_phase("Running", "holder", namespace)
    user.apply(task("train", namespace, "echo trained"))
    user.until("the Task to wait", lambda: phase(user, "train", namespace) == "WaitingForResources")
    user.kubectl("delete", "pod", "holder", f"--namespace={namespace}", "--now")
    user.kubectl("wait", "--for=condition=Succeeded", "task/train", f"--namespace={namespace}", "--timeout=200s")
    assert user.gate("task", "logs", "train", "--store=cluster", "-n", namespace) == "trained\n"


def test_a_task_is_tried_again(user: User, namespace: str) -> None:
    """A Task whose container fails is tried again, fails, and the log of its last attempt is there."""
    limited(user, namespace, 2)
    user.apply(task("fails", namespace, "echo no >&2; exit 3", retries={"user": 1}))
    user.kubectl("wait", "--for=condition=Failed", "task/fails", f"--namespace={namespace}", "--timeout=200s")
    found = user.find("task", "fails", namespace)
    assert found
    assert found["status"]["attempt"] == 1  # they count from 0
    assert user.gate("task", "logs", "fails", "--store=cluster", "-n", namespace) == "no\n"


def test_a_task_is_aborted(user: User, namespace: str) -> None:
    """A Task that runs is aborted: its pod goes, the Task stays; one that waits is deleted at once."""
    limited(user, namespace, 1)
    user.apply(task("long", namespace, "echo begun; sleep 600"))
    user.until("the Task to run", lambda: phase(user, "long", namespace) == "Running")
    user.apply(task("waits", namespace, "true"))
    user.until("the Task to wait", lambda: phase(user, "waits", namespace) == "WaitingForResources")
    user.kubectl("delete", "task", "waits", f"--namespace={namespace}", "--timeout=60s")
    user.gate("task", "abort", "long", "--store=cluster", "-n", namespace)
    user.until("the Task's end", lambda: phase(user, "long", namespace) == "Aborted")
    user.until("its pod to be gone", lambda: not user.all("pods", namespace))
    widened(user, namespace, 0)
