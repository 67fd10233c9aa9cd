"""A manager of a namespace's Tasks in a process of its own, to be killed: KUBECONFIG NAMESPACE."""

from __future__ import annotations

import asyncio
import sys

from kubernetes import client, config

from backoff_ctrl.k8s.tasks.builtin import registry
from backoff_ctrl.k8s.tasks.cluster.owning import owning
from backoff_ctrl.k8s.tasks.cluster.store import ClusterStore
from backoff_ctrl.k8s.tasks.managing import carry_out
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.through_plugins import through_plugins


async def manage(kubeconfig: str, namespace: str) -> None:
    """Carry out until killed; every object has our finalizer, so none goes unseen."""
    configuration = client.Configuration()
    config.load_kube_config(kubeconfig, client_configuration=configuration)
    settings, plugins = K8sPluginConfig.model_validate({"inject-finalizer": True}), registry()
    async with ClusterStore(configuration, [namespace]) as store:
        make = owning(through_plugins(plugins, configuration), store, plugins)
        await carry_out(store, make, lambda: settings)


if __name__ == "__main__":
    asyncio.run(manage(*sys.argv[1:]))
