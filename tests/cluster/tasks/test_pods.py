"""Pods of tasks on a server: what is built is accepted, and statuses mean the same once the server has stored them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.kinds.pods import container, pod, sidecar
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginContext, PluginEntry, TaskContext, TaskMetadata
from tests.cluster.quotas.quota_room import Room
from tests.cluster.talking import MERGE, Api
from tests.tasks.phases.pods import AGES, ENDED, NOW, PENDING, PLUGIN, RUNNING, told

JSON = dict[str, Any]

EVERYTHING: JSON = {
    "default-env-vars": {"A": "a"},
    "default-env-from-configmaps": ["c"],
    "default-env-from-secrets": ["s"],
    "default-tolerations": [{"key": "team", "operator": "Exists"}],
    "default-node-selector": {"pool": "tasks"},
    "default-affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
                ]
            }
        }
    },
    "scheduler-name": "other",
    "interruptible-tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    "interruptible-node-selector": {"spot": "true"},
    "interruptible-node-selector-requirement": {"key": "spot", "operator": "In", "values": ["true"]},
    "resource-tolerations": {"nvidia.com/gpu": [{"key": "gpu", "operator": "Exists"}]},
    "add-tolerations-for-extended-resources": ["nvidia.com/gpu"],
    "image-pull-policy": "Always",
    "default-pod-security-context": {"runAsUser": 1000},
    "default-security-context": {"allowPrivilegeEscalation": False},
    "default-pod-dns-config": {"options": [{"name": "ndots", "value": "1"}]},
    "enable-host-networking-pod": True,
    "gpu-unpartitioned-toleration": {"key": "whole", "operator": "Exists"},
    "task-resources": {"limits": {"cpu": "2"}},
}
GPU = {"resources": {"limits": {"gpu": 1, "cpu": 64, "ephemeral-storage": "1Gi"}}}
ONE: JSON = {"container": {"image": "busybox", "command": ["true"], **GPU}, "env": [{"name": "B", "value": "$(A)"}]}
TEMPLATE: JSON = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "initContainers": [{"name": "init", "image": "busybox"}],
        "containers": [{"name": "main", "image": "busybox"}, {"name": "side", "image": "busybox", **GPU}],
        "tolerations": [{"key": "team", "operator": "Exists"}],
    },
}
BUILT: list[tuple[str, PluginEntry, JSON]] = [
    ("container", container, {**ONE, "accelerator": {"device": "a100", "partitionSize": "1g.5gb"}}),
    ("raw-container", container, {**ONE, "accelerator": {"device": "a100", "unpartitioned": True}}),
    ("pod", pod, {"podTemplate": TEMPLATE}),
    ("sidecar", sidecar, {"podTemplate": TEMPLATE, "primaryContainer": "main", "env": [{"name": "B"}]}),
]  # fmt: skip


@pytest.mark.only_kubernetes("the sandbox checks fewer fields of pods")
@pytest.mark.parametrize("config", [{}, EVERYTHING], ids=["defaults", "everything"])
@pytest.mark.parametrize(("kind", "entry", "spec"), BUILT, ids=[row[0] for row in BUILT])
async def test_what_is_built_is_created(room: Room, kind: str, entry: PluginEntry, spec: JSON, config: JSON) -> None:
    """Under strict validation: the server knows and keeps all fields."""
    task = TaskMetadata(room.namespace, "t", "uid", 0, "t-0", interruptible=True)
    built = entry.plugin.build_resource(TaskContext(task, kind, spec, K8sPluginConfig.model_validate(config)))
    body = {**built, "metadata": {**built["metadata"], "name": "t-0"}}

    reply = await room.api.post(room.path("pods"), body, params={"fieldValidation": "Strict"})

    assert reply.status == 201, reply.text
    made = reply.json
    assert _contains(made, _canonical(body)), made
    queued = entry.plugin.get_task_phase(PluginContext(K8sPluginConfig(), NOW), made)
    lowered = (
        "limits.cpu lowered from 64 to 2, the platform's limit"
        if config
        else "the pod is pending, and none of its conditions says why yet"
    )
    assert queued.phase.title == "Queued"
    assert lowered in queued.reason


def _canonical(body: Any) -> Any:
    """Return a manifest as the server shows it: amounts are texts, in their shortest form."""
    if isinstance(body, dict):
        return {
            key: {name: _SHORT.get(str(amount), str(amount)) for name, amount in value.items()}
            if key in ("requests", "limits")
            else _canonical(value)
            for key, value in body.items()
        }
    return [_canonical(each) for each in body] if isinstance(body, list) else body


_SHORT = {"1000m": "1", "1024Mi": "1Gi"}


def _contains(made: Any, asked: Any) -> bool:
    """Whether all that was asked for is there; the server adds defaults."""
    if isinstance(asked, dict):
        return isinstance(made, dict) and all(key in made and _contains(made[key], asked[key]) for key in asked)
    if isinstance(asked, list):
        return isinstance(made, list) and len(made) >= len(asked) and all(map(_contains, made, asked))
    return bool(made == asked)


STORED = [(row[1], row[2]) for row in (*PENDING, *ENDED, *RUNNING)] + [(row[1], row[3]) for row in AGES if not row[2]]


async def test_statuses_mean_the_same_once_they_are_stored(api: Api, room: Room) -> None:
    """Each row of the table is written to a pod of its own, and read back; a server prunes what is no status."""
    context = PluginContext(K8sPluginConfig(), NOW)
    at_once = asyncio.Semaphore(16)

    async def stored(number: int, row: JSON) -> str:
        listed = row["spec"].get("containers") or row["status"].get("containerStatuses") or [{"name": "main"}]
        body = {
            "metadata": {**row["metadata"], "name": f"p{number}", "namespace": room.namespace},
            "spec": {"containers": [{"name": name, "image": "x"} for name in {each["name"]: 0 for each in listed}]},
        }
        async with at_once:
            made = await room.create("pods", body)
            path = room.path("pods", made["metadata"]["name"], "status")
            done = await api.patch(path, {"status": row["status"]}, MERGE)
        assert done.status == 200, (row, done.text)
        return told(PLUGIN.get_task_phase(context, done.json))

    rows = [(row, said) for row, said in STORED if "creationTimestamp" not in row["metadata"]]
    found = await asyncio.gather(*(stored(number, row) for number, (row, _) in enumerate(rows)))

    wrong = [(row["status"], said, was) for (row, said), was in zip(rows, found, strict=True) if said != was]
    assert wrong == []
    assert len(found) > 80
