"""kr8s through a gate with a transport of its own: the example of docs/clients.md."""

import asyncio
import os
import sys
from types import SimpleNamespace

from tests.programs.examples import example
from tests.programs.telling import Telling, pod_manifest

_, kubeconfig, namespace = sys.argv
os.environ["KUBECONFIG"] = kubeconfig
telling = Telling("kr8s")
found = example("kr8s")
made = asyncio.run(found["create_pod"](namespace, pod_manifest("kr8s"), **telling.options))
telling.is_in()
telling.end(SimpleNamespace(gate=found["gate"]), made["metadata"]["name"])
