"""``K8sPluginConfig``: what the platform sets for the objects of all plugins. Keys and defaults are Flyte 1.16's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Quantity = str
"""A Kubernetes quantity, ``500m`` or ``2Gi``."""


def _key(name: str) -> str:
    return name.replace("_", "-")


class Settings(BaseModel):
    """A section: keys are written with dashes, an unknown key is refused, nothing changes once it is read."""

    model_config = ConfigDict(alias_generator=_key, populate_by_name=True, extra="forbid", frozen=True)


class K8sPluginConfig(Settings):
    """The section ``plugins.k8s``. Manifests' parts (tolerations, affinity) are plain Kubernetes JSON."""

    inject_finalizer: bool = False
    default_annotations: dict[str, str] = Field(
        default_factory=lambda: {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    )
    default_labels: dict[str, str] = Field(default_factory=dict)
    default_env_vars: dict[str, str] = Field(default_factory=dict)
    default_env_vars_from_env: dict[str, str] = Field(default_factory=dict)
    default_env_from_configmaps: list[str] = Field(default_factory=list)
    default_env_from_secrets: list[str] = Field(default_factory=list)
    default_cpus: Quantity = "1000m"
    default_memory: Quantity = "1024Mi"
    default_tolerations: list[dict[str, Any]] = Field(default_factory=list)
    default_node_selector: dict[str, str] = Field(default_factory=dict)
    default_affinity: dict[str, Any] | None = None
    scheduler_name: str = ""
    interruptible_tolerations: list[dict[str, Any]] = Field(default_factory=list)
    interruptible_node_selector: dict[str, str] = Field(default_factory=dict)
    interruptible_node_selector_requirement: dict[str, Any] | None = None
    non_interruptible_node_selector_requirement: dict[str, Any] | None = None
    resource_tolerations: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    delete_resource_on_finalize: bool = False
    create_container_error_grace_period: timedelta = timedelta(minutes=3)
    create_container_config_error_grace_period: timedelta = timedelta(0)
    image_pull_backoff_grace_period: timedelta = timedelta(minutes=3)
    image_pull_policy: str = ""
    pod_pending_timeout: timedelta = timedelta(0)
