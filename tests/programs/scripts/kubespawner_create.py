"""KubeSpawner's create of a user's pod (with its own retries), on a gated client of kubernetes_asyncio."""

import asyncio
import os
import sys
from functools import partial
from typing import Any

_, kubeconfig, namespace = sys.argv
os.environ["KUBECONFIG"] = kubeconfig

from jupyterhub.utils import exponential_backoff  # noqa: E402
from kubernetes_asyncio import client  # noqa: E402
from kubespawner import KubeSpawner  # noqa: E402

from backoff_ctrl import AsyncGatedApiClient  # noqa: E402
from tests.programs.telling import Telling  # noqa: E402

telling = Telling("jupyterhub-kubespawner", "jupyterhub", "kubernetes_asyncio")


class GatedSpawner(KubeSpawner):
    """The spawner with a gated client. ``k8s_api_request_timeout`` is longer than a user may have to wait."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.gated = AsyncGatedApiClient(client.Configuration.get_default_copy())
        self.api = client.CoreV1Api(self.gated)


async def main() -> None:
    """Create the pod as ``KubeSpawner.start`` does."""
    waits = {"k8s_api_request_timeout": 300, "k8s_api_request_retry_timeout": 300}
    spawner = GatedSpawner(
        _mock=True, namespace=namespace, enable_user_namespaces=False, image="busybox", start_timeout=300, **waits
    )
    pod = await spawner.get_pod_manifest()
    with telling.waits():
        await exponential_backoff(
            partial(spawner._make_create_pod_request, pod, spawner.k8s_api_request_timeout),
            "could not create the pod",
            timeout=spawner.k8s_api_request_retry_timeout,
        )
    telling.is_in()
    telling.end(spawner.gated, pod.metadata.name)
    await spawner.gated.close()


asyncio.run(main())
