"""A manager that stood still while another one took its tasks over: it creates nothing any more."""

from __future__ import annotations

from kubernetes.client import Configuration

from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
from backoff_ctrl.k8s.tasks.plugins.manager.manager import PluginManager
from backoff_ctrl.k8s.tasks.plugins.registry import Registry
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import PodPlugin, entry, task


async def test_what_waited_is_not_created_once_the_lease_may_be_anothers(sandbox: BackgroundSandbox) -> None:
    """The quota makes room just then. Nothing is sent, and no attempt fails."""
    sandbox.create_quota("team", "none", {"pods": "0"})
    mine, asked = True, []

    def may_create() -> bool:
        asked.append(mine)
        return mine

    async with Bench(sandbox.url) as bench:
        registry, configuration = Registry([entry(PodPlugin(), "container")]), Configuration(host=sandbox.url)
        async with PluginManager(
            registry, configuration, store="s2", gate=AsyncGate(), may_create=may_create
        ) as manager:
            handled = await manager.handle(task(), None)
            while handled.info.phase is not Phase.WAITING_FOR_RESOURCES:
                await bench.tick()
                handled = await manager.handle(task(), handled.state)
            mine = False
            await bench.call("DELETE", "/api/v1/namespaces/team/resourcequotas/none")
            asked.clear()
            while not asked:
                await bench.tick()
            handled = await manager.handle(task(), handled.state)
            assert handled.info.error is None
            assert await bench.pods() == []
