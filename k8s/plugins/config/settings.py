"""``K8sPluginConfig``: what the platform sets for the objects of all plugins. Keys and defaults are Flyte 1.16's.

Beside them one key of our own, ``task-resources``: what Flyte keeps in its admin service.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.quantities import parse_quantity

from .durations import Duration  # noqa: TC001  # pydantic reads annotations at run time


def _quantity(value: object) -> str:
    """Return a quantity as text. Raises ``ValueError`` for what is none, and for one below zero."""
    try:
        amount = parse_quantity(value)  # type: ignore[arg-type]  # it refuses other types
    except QuantityError as error:
        raise ValueError(str(error)) from None
    if amount < 0:
        raise ValueError(f"{value} is less than nothing: write a quantity of 0 or more, such as 500m or 2Gi")
    return str(value)


Quantity = Annotated[str, BeforeValidator(_quantity)]
"""A Kubernetes quantity, ``500m`` or ``2Gi``; a number will do."""

Part = dict[str, Any]
"""A part of a manifest as plain Kubernetes JSON: the API server checks it."""


def _key(name: str) -> str:
    return name.replace("_", "-")


class Settings(BaseModel):
    """A section: keys are written with dashes, an unknown key is refused, nothing changes once it is read."""

    model_config = ConfigDict(alias_generator=_key, populate_by_name=True, extra="forbid", frozen=True)


class CoPilot(Settings):
    """The section ``co-pilot``: read so that Flyte's files are accepted. Tasks of this project move no data."""

    name_prefix: str = Field(default="flyte-copilot-", alias="name")
    image: str = "cr.flyte.org/flyteorg/flytecopilot:v0.0.15"
    default_input_path: str = "/var/flyte/inputs"
    default_output_path: str = "/var/flyte/outputs"
    input_vol_name: str = "flyte-inputs"
    output_vol_name: str = "flyte-outputs"
    start_timeout: Duration = timedelta(0)
    timeout: Duration = timedelta(hours=1)
    cpu: Quantity = "500m"
    memory: Quantity = "128Mi"
    storage: str = ""


class ProjectResources(Settings):
    """Defaults and limits of one project, or of one of its domains; what it does not name is the platform's."""

    project: str
    domain: str = ""
    defaults: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)


class TaskResources(Settings):
    """What a container of a task gets where it asks for nothing, and the most that it may have.

    ``above_limits``: a container that asks for more is given the limit, and told so; or its task is refused.
    """

    defaults: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)
    projects: tuple[ProjectResources, ...] = ()
    above_limits: Literal["clamp", "refuse"] = "clamp"


class K8sPluginConfig(Settings):
    """The section ``plugins.k8s``. Manifests' parts (tolerations, affinity) are plain Kubernetes JSON."""

    inject_finalizer: bool = False
    default_annotations: dict[str, str] = Field(
        default_factory=lambda: {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    )
    default_labels: dict[str, str] = Field(default_factory=dict)
    default_env_vars: dict[str, str] = Field(default_factory=dict)
    default_env_vars_from_env: dict[str, str] = Field(default_factory=dict)
    """Name in the container -> name in our own environment; the loader puts the values into ``default_env_vars``."""
    default_env_from_configmaps: list[str] = Field(default_factory=list)
    default_env_from_secrets: list[str] = Field(default_factory=list)
    default_cpus: Quantity = "1000m"
    default_memory: Quantity = "1024Mi"
    default_tolerations: list[Part] = Field(default_factory=list)
    default_node_selector: dict[str, str] = Field(default_factory=dict)
    default_affinity: Part | None = None
    scheduler_name: str = ""
    interruptible_tolerations: list[Part] = Field(default_factory=list)
    interruptible_node_selector: dict[str, str] = Field(default_factory=dict)
    interruptible_node_selector_requirement: Part | None = None
    non_interruptible_node_selector_requirement: Part | None = None
    resource_tolerations: dict[str, list[Part]] = Field(default_factory=dict)
    co_pilot: CoPilot = CoPilot()
    delete_resource_on_finalize: bool = False
    create_container_error_grace_period: Duration = timedelta(minutes=3)
    create_container_config_error_grace_period: Duration = timedelta(0)
    image_pull_backoff_grace_period: Duration = timedelta(minutes=3)
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    pod_pending_timeout: Duration = timedelta(0)
    """0: a pod may be pending for ever."""
    gpu_device_node_label: str = "k8s.amazonaws.com/accelerator"
    gpu_partition_size_node_label: str = "k8s.amazonaws.com/gpu-partition-size"
    gpu_unpartitioned_node_selector_requirement: Part | None = None
    gpu_unpartitioned_toleration: Part | None = None
    gpu_resource_name: str = "nvidia.com/gpu"
    default_pod_security_context: Part | None = None
    default_security_context: Part | None = None
    enable_host_networking_pod: bool | None = None
    default_pod_dns_config: Part | None = None
    default_pod_template_name: str = ""
    default_pod_template_resync: Duration = timedelta(seconds=30)
    send_object_events: bool = False
    update_base_backoff_duration: int = Field(default=10, ge=0)
    """Milliseconds before a conflict on a finalizer is tried again; it doubles."""
    update_backoff_retries: int = Field(default=5, ge=0)
    add_tolerations_for_extended_resources: list[str] = Field(default_factory=list)
    task_resources: TaskResources = TaskResources()
