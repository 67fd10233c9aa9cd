"""The trace's pods as tasks of four types: a container, a Job, a custom resource, and one whose operator makes pods.

What each asks of the quota is what its pod in the trace asked; the pods of a cluster share it.
"""

from __future__ import annotations

from typing import Any, Final

from backoff_ctrl.k8s.lab.replay.workload import RUN_SECONDS, UNITS, Pod, Workload

JSON = dict[str, Any]
GROUP: Final = "example.com"
SIMULATIONS: Final = "simulations"
CLUSTERS: Final = "clusters"
COUNTED: Final = f"count/{SIMULATIONS}.{GROUP}"
"""What the quota says of simulations: they have no pods."""
AT_ONCE: Final = 4
"""Simulations at a time in a namespace."""
_STATES: Final = {"": {"phase": "Queued"}, "Running": {"phase": "Running"}, "Succeeded": {"phase": "Success"}}
SETTINGS: Final[JSON] = {
    "plugins": {
        "k8s": {"delete-resource-on-finalize": True},  # a quota of objects counts those that have ended, too
        "generic": [
            {
                "id": "simulation",
                "task-types": ["simulation"],
                "resource": {"api-version": f"{GROUP}/v1", "kind": "Simulation", "plural": SIMULATIONS},
                "state": {"path": "$.status.phase"},
                "states": _STATES,
            },
            {
                "id": "cluster",
                "task-types": ["cluster"],
                "resource": {"api-version": f"{GROUP}/v1", "kind": "Cluster", "plural": CLUSTERS},
                "state": {"path": "$.status.phase"},
                "states": _STATES,
                "pods-made": [
                    {"section": "$.spec.driver", "defaults": False},
                    {"section": "$.spec.workers", "replicas": "$.replicas", "defaults": False},
                ],
            },
        ],
    }
}
"""What the platform tells the generic plugin of the two operators."""


def definitions() -> list[JSON]:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": free, "status": free}}},
    }  # fmt: skip
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {"plural": plural, "kind": kind},
                "versions": [version],
            },
        }
        for plural, kind in ((SIMULATIONS, "Simulation"), (CLUSTERS, "Cluster"))
    ]


def made_for(workload: Workload) -> dict[str, int]:
    """Return how many objects of each kind are made if each is made once: by the manager, and by others for it."""
    count = [len(workload.pods[number::4]) for number in range(4)]
    return {"pods": count[0] + count[1] + 2 * count[3], "jobs": count[1], SIMULATIONS: count[2], CLUSTERS: count[3]}


def tasks_of(workload: Workload) -> list[JSON]:
    """Return a task for each pod, type by type in turn."""
    makers = (_container, _job, _simulation, _cluster)
    return [_task(number, pod, makers[number % 4](pod)) for number, pod in enumerate(workload.pods)]


def _task(number: int, pod: Pod, spec: JSON) -> JSON:
    return {
        "apiVersion": "backoff-ctrl.dev/v1alpha1",
        "kind": "Task",
        "metadata": {
            "name": f"t{number:04}-{spec['type']}",
            "namespace": pod.namespace,
            "annotations": {RUN_SECONDS: repr(pod.run_time)},
        },
        "spec": spec,
    }


def _container(pod: Pod) -> JSON:
    return {"type": "container", "container": _of_pod(pod.demand)}


def _job(pod: Pod) -> JSON:
    return {
        "type": "job",
        "template": {"apiVersion": "batch/v1", "kind": "Job", "spec": {"backoffLimit": 0, "template": _template(pod)}},
    }


def _simulation(pod: Pod) -> JSON:
    template = {"apiVersion": f"{GROUP}/v1", "kind": "Simulation", "spec": {"seconds": pod.run_time}}
    return {"type": "simulation", "template": template}


def _cluster(pod: Pod) -> JSON:
    """Half of the amounts for a driver, half for a worker; a GPU can't be shared."""
    half = {name: amount // 2 for name, amount in pod.demand.items() if not name.startswith("requests.")}
    rest = {name: amount - half.get(name, 0) for name, amount in pod.demand.items()}
    spec = {
        "driver": {"template": _template(pod, rest)},
        "workers": {"replicas": 1, "template": _template(pod, half)},
    }
    return {"type": "cluster", "template": {"apiVersion": f"{GROUP}/v1", "kind": "Cluster", "spec": spec}}


def _template(pod: Pod, demand: Any = None) -> JSON:
    return {
        "metadata": {"annotations": {RUN_SECONDS: repr(pod.run_time)}},
        "spec": {"restartPolicy": "Never", "containers": [_of_pod(pod.demand if demand is None else demand)]},
    }


def _of_pod(demand: Any) -> JSON:
    names = {"limits.cpu": "cpu", "limits.memory": "memory", "requests.nvidia.com/gpu": "nvidia.com/gpu"}
    asked = {"limits.cpu": 0, "limits.memory": 0, **demand}
    amounts = {names[resource]: f"{amount}{UNITS[resource]}" for resource, amount in asked.items()}
    return {"name": "main", "image": "busybox:1", "resources": {"requests": amounts, "limits": amounts}}
