"""A kopf operator whose handler creates a pod for each config map, with a gated client."""

import asyncio
import os
import sys
from typing import Any

_, kubeconfig, namespace = sys.argv
os.environ["KUBECONFIG"] = kubeconfig  # kopf logs in with it, too

import kopf  # noqa: E402
from kubernetes import client, config  # noqa: E402

from backoff_ctrl import GatedApiClient  # noqa: E402
from tests.programs.telling import Telling, pod_manifest  # noqa: E402

config.load_kube_config(kubeconfig)
telling = Telling("kopf", "kubernetes")
api = GatedApiClient()
made: list[str] = []
done = asyncio.Event()


@kopf.on.create("configmaps", labels={"app": "test"})
def create(name: str, **_: Any) -> None:
    """Create the pod: kopf runs this in a thread of its pool."""
    with telling.waits():
        pod = client.CoreV1Api(api).create_namespaced_pod(namespace, pod_manifest(f"of-{name}"))
    telling.is_in()
    made.append(pod.metadata.name)
    loop.call_soon_threadsafe(done.set)


async def main() -> None:
    """Run the operator until the pod is there."""
    global loop  # noqa: PLW0603
    loop = asyncio.get_running_loop()
    body = {"metadata": {"name": "wish", "labels": {"app": "test"}}}
    client.CoreV1Api().create_namespaced_config_map(namespace, body)
    stop = asyncio.Event()
    running = asyncio.ensure_future(kopf.operator(namespaces=[namespace], standalone=True, stop_flag=stop))
    await asyncio.wait({asyncio.ensure_future(done.wait()), running}, return_when="FIRST_COMPLETED")
    stop.set()
    await running


loop: asyncio.AbstractEventLoop
asyncio.run(main())
telling.end(api, made[0])
api.close()
