"""From the first step to the last: a pod is created through the gate, followed by a watch, and ends."""

from __future__ import annotations

from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import task


async def test_a_task_is_created_followed_and_ends_and_its_end_stays(bench: Bench) -> None:
    one = task()
    await bench.until(one, Phase.QUEUED)
    assert await bench.pods() == ["one-0"]
    await bench.set_phase("one-0", "Running")
    await bench.until(one, Phase.RUNNING)
    await bench.set_phase("one-0", "Succeeded")
    await bench.until(one, Phase.SUCCESS)
    await bench.call("DELETE", "/api/v1/namespaces/team/pods/one-0")
    assert (await bench.step(one)).phase is Phase.SUCCESS
    assert bench.manager.counts.launches == {("container", "created"): 1}


async def test_a_full_quota_is_a_wait_that_says_what_it_waits_for_and_ends_with_room(
    bench: Bench, sandbox: BackgroundSandbox
) -> None:
    sandbox.create_quota("team", "cpus", {"requests.cpu": "1"})
    first, second = task("first"), task("second")
    await bench.until(first, Phase.QUEUED)
    info = await bench.until(second, Phase.WAITING_FOR_RESOURCES, holds=lambda info: info.wait and info.wait.quota)
    assert info.wait is not None
    assert (info.wait.quota, info.wait.resource, info.wait.place) == ("cpus", "requests.cpu", 1)
    assert "cpus" in info.reason
    assert info.error is None
    again = await bench.step(second)
    assert again.version >= info.version
    await bench.set_phase("first-0", "Succeeded")
    await bench.until(second, Phase.QUEUED)
    assert await bench.pods() == ["first-0", "second-0"]
