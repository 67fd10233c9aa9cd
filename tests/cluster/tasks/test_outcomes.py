"""The table of outcomes: what each answer of an API server to a create means for the task. All rows are real."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.tasks.plugins.marks import ATTEMPT, STORE, TASK_UID
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import MERGE
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import task

JSON = dict[str, Any]
FAILURES = (Phase.PERMANENT_FAILURE, Phase.RETRYABLE_FAILURE)


async def failure(bench: Bench, one: Any) -> tuple[str, ErrorKind, bool]:
    """Step until it fails; return code, kind, and whether another attempt may help. Nothing was created."""
    info = await bench.until(one, *FAILURES)
    assert info.error is not None
    assert one.metadata.generated_name not in await bench.pods(one.metadata.namespace)
    return info.error.code, info.error.kind, info.phase is Phase.RETRYABLE_FAILURE


def container(**more: Any) -> JSON:
    return {"container": more}


ENOUGH = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
BAD: list[tuple[str, JSON, str]] = [
    ("a field that is wrong", container(image="busybox:1", env=[{"name": "not a = name"}]), "BadTaskFormat"),
    ("a type that is wrong", container(command="a text"), "BadTaskFormat"),
    ("a field that no server knows", container(portForwarding={"a": 1}), "BadTaskFormat"),
    ("a level that no server knows", container(livenessProbe={"command": ["true"]}), "BadTaskFormat"),
    (
        "a request above its limit",
        container(resources={**ENOUGH, "requests": {"cpu": "2"}}),
        "BadTaskFormat",
    ),
    ("more than a request may have", container(env=[{"name": "A", "value": "x" * 3_400_000}]), "EntityTooLarge"),
]


@pytest.mark.parametrize(("spec", "code"), [each[1:] for each in BAD], ids=[each[0] for each in BAD])
async def test_what_is_wrong_with_the_manifest_fails_for_good(
    bench: Bench, namespace: str, spec: JSON, code: str
) -> None:
    assert await failure(bench, task(namespace=namespace, spec=spec)) == (code, ErrorKind.USER, False)


async def test_a_field_that_the_server_does_not_know_is_named(bench: Bench, namespace: str) -> None:
    """Without strict validation the server would drop it, and the pod would run without."""
    info = await bench.until(task(namespace=namespace, spec=container(portForwarding={"a": 1})), *FAILURES)
    assert 'strict decoding error: unknown field "spec.containers[0].portForwarding"' in info.reason
    assert info.reason.endswith("(correct that field, or leave it out)")


@pytest.mark.only_kubernetes("the sandbox has no store with a limit of its own")
async def test_what_the_store_finds_too_large_fails_for_good(bench: Bench, namespace: str) -> None:
    """What the API server takes, and etcd does not: the answer is a 500, and trying again would never help."""
    spec = container(env=[{"name": "A", "value": "x" * 1_700_000}])
    assert await failure(bench, task(namespace=namespace, spec=spec)) == ("EntityTooLarge", ErrorKind.USER, False)


async def test_a_limit_range_and_a_quota_that_asks_for_limits_are_the_users_to_heed(bench: Bench, room: Room) -> None:
    limits = {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}
    await room.create("limitranges", {"metadata": {"name": "small"}, **limits})
    two = task(namespace=room.namespace, cpu="2")
    assert await failure(bench, two) == ("LimitRangeExceeded", ErrorKind.USER, False)
    await room.quota("memory", {"limits.memory": "1Gi"})
    other = task("other", namespace=room.namespace, spec=container(resources=ENOUGH))
    assert await failure(bench, other) == ("QuotaRequiresResources", ErrorKind.USER, False)


async def test_what_exceeds_the_whole_quota_never_fits_though_a_smaller_one_waits(bench: Bench, room: Room) -> None:
    await room.quota("cpus", {"requests.cpu": "2"})
    holder = task("holder", namespace=room.namespace, cpu="2")
    await bench.until(holder, Phase.QUEUED)
    large = task("large", namespace=room.namespace, cpu="3")
    assert await failure(bench, large) == ("ResourceRequestsExceedLimits", ErrorKind.USER, False)
    exact = task("exact", namespace=room.namespace, cpu="2")
    info = await bench.until(exact, Phase.WAITING_FOR_RESOURCES, holds=_of_quota("cpus"))
    assert (info.wait.resource, info.wait.asked, info.error) == ("requests.cpu", "2", None)  # type: ignore[union-attr]
    assert all(word in info.reason for word in ("cpus", "requests.cpu", "place 1"))
    await bench.set_phase("holder-0", "Succeeded", room.namespace)
    await bench.until(exact, Phase.QUEUED)
    assert (await bench.manager.handle(exact, bench.states["uid-exact", 0])).info.error is None


def _of_quota(name: str) -> Callable[[PhaseInfo], bool]:
    return lambda info: info.wait is not None and info.wait.quota == name


async def test_a_name_that_is_taken_is_a_clear_failure_and_the_other_object_stays(bench: Bench, room: Room) -> None:
    theirs = await room.create("pods", pod("one-0"))
    info = await bench.until(task(namespace=room.namespace), *FAILURES)
    assert info.error is not None
    assert (info.error.code, info.phase) == ("ObjectNameTaken", Phase.PERMANENT_FAILURE)
    await bench.finalize(task(namespace=room.namespace))
    found = await bench.pod("one-0", room.namespace)
    assert found["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert "deletionTimestamp" not in found["metadata"]


@pytest.mark.long
async def test_an_object_that_is_being_deleted_is_waited_for(bench: Bench, room: Room) -> None:
    await room.create("pods", pod("one-0", finalizers=["example.com/held"]))
    await room.delete("pods", "one-0", gracePeriodSeconds="0")
    one = task(namespace=room.namespace)
    info = await bench.until(one, Phase.NOT_READY, holds=lambda info: "being deleted" in info.reason)
    assert "example.com/held" in info.reason
    freed = await room.api.patch(room.path("pods", "one-0"), {"metadata": {"finalizers": None}}, MERGE)
    assert freed.status == 200, freed.text
    await bench.until(one, Phase.QUEUED)
    assert bench.manager.counts.failures == {}


async def test_an_object_of_ours_is_adopted_under_a_full_quota_though_its_state_was_lost(
    bench: Bench, room: Room
) -> None:
    """The crash between the create and the save of its state: the server would say 403 here, not 409."""
    await room.quota("pods", {"pods": "1"})
    one = task(namespace=room.namespace)
    await bench.until(one, Phase.QUEUED)
    uid = (await bench.pod("one-0", room.namespace))["metadata"]["uid"]
    bench.states.clear()
    await bench.restart()
    await bench.until(one, Phase.QUEUED)
    labels = (await bench.pod("one-0", room.namespace))["metadata"]["labels"]
    assert (labels[TASK_UID], labels[ATTEMPT], labels[STORE]) == ("uid-one", "0", "s1")
    state = bench.states["uid-one", 0]
    assert state is not None
    assert state["object"]["uid"] == uid
    again = task(namespace=room.namespace, uid="made-again")
    info = await bench.until(again, *FAILURES)
    assert info.error is not None
    assert info.error.code == "ObjectNameTaken"


async def test_a_namespace_or_a_kind_that_is_missing_is_named(bench: Bench, namespace: str) -> None:
    assert await failure(bench, task(namespace="none-of-that-name")) == ("NamespaceNotFound", ErrorKind.USER, False)
    bench.use_kind("missing", "example.com/v1", "Widget", "widgets")
    template = {"apiVersion": "example.com/v1", "kind": "Widget"}
    widget = task("w", type="missing", namespace=namespace, spec={"template": template})
    assert await failure(bench, widget) == ("KindNotServed", ErrorKind.SYSTEM, False)


@pytest.mark.only_kubernetes("the sandbox lets everybody do everything")
@pytest.mark.parametrize("user", ["nobody"])
async def test_a_missing_right_is_the_platforms_to_give(bench: Bench, namespace: str) -> None:
    """A 403 that no quota and no user is to blame for."""
    info = await bench.until(task(namespace=namespace), *FAILURES)
    assert info.error is not None
    assert (info.phase, info.error.code, info.error.kind) == (
        Phase.RETRYABLE_FAILURE,
        "RuntimeFailure",
        ErrorKind.SYSTEM,
    )
    assert "cannot create resource" in info.error.message
