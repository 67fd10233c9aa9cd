"""lightkube through a gate with a transport of its own: the example of docs/clients.md."""

import os
import sys
from types import SimpleNamespace

from tests.programs.examples import example
from tests.programs.telling import Telling, pod_manifest

_, kubeconfig, namespace = sys.argv
os.environ["KUBECONFIG"] = kubeconfig
telling = Telling("lightkube")
found = example("lightkube")
made = found["create_pod"](namespace, pod_manifest("light"), **telling.options)
telling.is_in()
telling.end(SimpleNamespace(gate=found["gate"]), made["metadata"]["name"])
