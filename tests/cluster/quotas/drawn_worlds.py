"""Namespaces at random: a LimitRange, quotas with scopes, pods that use them, and manifests to try there."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.cluster.quotas.quota_room import claim, pod

JSON = dict[str, Any]
CPUS: Final = ("250m", "500m", "1", "1500m", "2", "3")
MEMORY: Final = ("64Mi", "128M", "256Mi", "1Gi", "1500M")
SCOPES: Final = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating")
OF_PODS: Final = ("pods", "requests.cpu", "limits.cpu", "requests.memory", "limits.memory", "cpu")
OTHERS: Final = ("count/pods", "count/jobs.batch", "persistentvolumeclaims", "requests.storage", "count/configmaps")
MARK: Final = {"ephemeral-storage": "1Mi"}
"""A default that every drawn LimitRange has, by which one sees that admission knows it."""


def draw_limit_range(random: Random) -> JSON | None:
    if random.random() < 0.4:
        return None
    container: JSON = {"type": "Container", "defaultRequest": dict(MARK), "default": dict(MARK)}
    if random.random() < 0.6:
        container["defaultRequest"]["cpu"] = random.choice(("100m", "250m"))
        container["default"]["cpu"] = random.choice(("250m", "1"))
    if random.random() < 0.4:
        container["default"]["memory"] = container["defaultRequest"]["memory"] = "128Mi"
    if random.random() < 0.4:
        container["max"] = {"cpu": "2", **({"memory": "1Gi"} if random.random() < 0.3 else {})}
    if random.random() < 0.3:
        container["min"] = {"cpu": "100m"}
    if random.random() < 0.2:
        container["maxLimitRequestRatio"] = {"cpu": "10"}
    items = [container]
    if random.random() < 0.3:
        items.append({"type": "Pod", "max": {"cpu": "3"}, "min": {"cpu": "150m"}})
    if random.random() < 0.3:
        items.append({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "5Gi"}})
    return {"metadata": {"name": "l"}, "spec": {"limits": items}}


def draw_quotas(random: Random) -> list[tuple[JSON, JSON]]:
    """Draw the hard amounts and the further spec of one to three quotas."""
    return [_quota(random) for _ in range(random.randint(1, 3))]


def _quota(random: Random) -> tuple[JSON, JSON]:
    spec: JSON = {}
    names = [*OF_PODS, *OTHERS]
    if random.random() < 0.5:
        scope = random.choice(SCOPES)
        names = ["pods"] if scope == "BestEffort" else [*OF_PODS]
        if random.random() < 0.5 and scope != "BestEffort":
            spec["scopeSelector"] = {"matchExpressions": [{"scopeName": scope, "operator": "Exists"}]}
        else:
            spec["scopes"] = [scope]
    chosen = random.sample(names, min(len(names), random.randint(1, 3)))
    return {name: _hard(random, name) for name in chosen}, spec


def _hard(random: Random, name: str) -> str:
    if "storage" in name:
        return random.choice(("2Gi", "4Gi", "10Gi"))
    if "memory" in name:
        return random.choice(("512Mi", "1Gi", "4Gi", "8G"))
    if "cpu" in name:
        return random.choice(("1", "2", "4", "5500m", "8"))
    return str(random.choice((0, 1, 2, 4, 8, 20)))


def draw_manifest(random: Random, name: str) -> tuple[str, JSON]:
    """Draw a manifest: its resource, and the object."""
    kind = random.random()
    if kind < 0.65:
        return "pods", {"apiVersion": "v1", "kind": "Pod", **pod(name, spec=draw_pod_spec(random))}
    if kind < 0.8:
        return "jobs.batch", draw_job(random, name)
    if kind < 0.92:
        storage = random.choice(("512Mi", "1Gi", "3Gi", "8Gi"))
        return "persistentvolumeclaims", {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            **claim(name, storage),
        }
    return "configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def draw_job(random: Random, name: str) -> JSON:
    """Draw a Job of one to four pods at a time."""
    spec = {**draw_pod_spec(random), "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": random.randint(1, 4), "completions": 8, "template": {"spec": spec}},
    }


def draw_pod_spec(random: Random) -> JSON:
    """Draw a pod's spec: one or two containers, perhaps one that runs before them, perhaps a deadline."""
    spec: JSON = {"containers": [_container(random, f"c{n}") for n in range(random.choice((1, 1, 2)))]}
    if random.random() < 0.2:
        spec["initContainers"] = [_container(random, "first")]
    if random.random() < 0.3:
        spec["activeDeadlineSeconds"] = 600
    return spec


def _container(random: Random, name: str) -> JSON:
    requests: JSON = {}
    limits: JSON = {}
    for resource, amounts in (("cpu", CPUS), ("memory", MEMORY)):
        low, high = sorted(random.choices(range(len(amounts)), k=2))
        if random.random() < 0.6:
            requests[resource] = amounts[low]
        if random.random() < 0.5:
            limits[resource] = amounts[high]
    return {"name": name, "image": "busybox:1", "resources": {"requests": requests, "limits": limits}}
