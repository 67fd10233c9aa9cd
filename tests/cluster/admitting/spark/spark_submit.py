"""Plays ``spark-submit`` in cluster mode, and the driver that it starts: makes the driver's pod, and the executors'.

It takes the arguments that the Spark operator calls it with, and finds its server by ``KUBECONFIG``. The driver's pod
belongs to its SparkApplication, as the operator's webhook says; the executors' pods belong to the driver's.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any, Final

from kubernetes import client, config

GROUP: Final = ("sparkoperator.k8s.io", "v1beta2")
LABEL: Final = "spark.kubernetes.driver.label."


def main(arguments: list[str]) -> None:
    given = dict(value.split("=", 1) for name, value in pairwise(arguments) if name == "--conf")
    labels = {name.removeprefix(LABEL): value for name, value in given.items() if name.startswith(LABEL)}
    namespace, name = given["spark.kubernetes.namespace"], labels["sparkoperator.k8s.io/app-name"]
    config.load_kube_config()
    core: Any = client.CoreV1Api()
    custom: Any = client.CustomObjectsApi()
    found = custom.get_namespaced_custom_object(*GROUP, namespace, "sparkapplications", name)
    owner = {"apiVersion": "/".join(GROUP), "kind": "SparkApplication", "name": name, "uid": found["metadata"]["uid"]}
    driver = core.create_namespaced_pod(
        namespace,
        pod(given["spark.kubernetes.driver.pod.name"], {**labels, "spark-role": "driver"}, owner, "driver"),
    )
    above = {"apiVersion": "v1", "kind": "Pod", "name": driver.metadata.name, "uid": driver.metadata.uid}
    for number in range(int(given["spark.executor.instances"])):
        core.create_namespaced_pod(
            namespace, pod(f"{name}-exec-{number + 1}", {**labels, "spark-role": "executor"}, above, "executor")
        )


def pod(name: str, labels: dict[str, str], owner: dict[str, str], role: str) -> dict[str, Any]:
    """A pod of 1 CPU."""
    container = {"name": f"spark-kubernetes-{role}", "image": "spark:4.0.0", "resources": {"requests": {"cpu": "1"}}}
    metadata = {"name": name, "labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    return {"metadata": metadata, "spec": {"containers": [container], "restartPolicy": "Never"}}


if __name__ == "__main__":
    main(sys.argv[1:])
