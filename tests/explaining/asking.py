"""Shared by the tests of explain: manifests, quotas and LimitRanges, and who answers for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.kube.charges.admission_rules import items_of
from backoff_ctrl.k8s.kube.charges.device_claims import UNKNOWN, Devices
from backoff_ctrl.k8s.status import explaining

if TYPE_CHECKING:
    from backoff_ctrl.k8s.status.shapes import Explained

JSON = dict[str, Any]


def container(requests: JSON | None = None, limits: JSON | None = None) -> JSON:
    """A container with these amounts."""
    return {"name": "c", "image": "i", "resources": {"requests": requests or {}, "limits": limits or {}}}


def pod(requests: JSON | None = None, limits: JSON | None = None, **spec: Any) -> JSON:
    """A pod of one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team"},
        "spec": {"containers": [container(requests, limits)], **spec},
    }


def job(parallelism: int = 1, requests: JSON | None = None, **spec: Any) -> JSON:
    """A Job whose pods have one container."""
    template = {"spec": {"restartPolicy": "Never", "containers": [container(requests)]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "team"},
        "spec": {"parallelism": parallelism, "completions": parallelism, "template": template, **spec},
    }


def quota(name: str, hard: JSON, used: JSON | None = None, **spec: Any) -> JSON:
    """A ResourceQuota as the server returns it."""
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": dict.fromkeys(hard, "0") | (used or {})},
    }


def limit_range(name: str, *items: JSON) -> JSON:
    """A LimitRange."""
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {"limits": list(items)}}


def explain(
    manifest: JSON, *quotas: JSON, ranges: list[JSON] | None = None, devices: Devices | None = UNKNOWN
) -> Explained:
    """Explain a manifest by these quotas, which are all of its namespace. ``devices`` None: nobody may ask for them."""

    def known(_: object) -> Devices:
        assert devices is not None
        return devices

    ask, _ = explaining.asking_listed("team", quotas)
    return explaining.explain(manifest, ask, None if ranges is None else items_of(ranges), 0.0, known)[0]
