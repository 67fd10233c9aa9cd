"""What the platform sets for all plugins: the sections of a settings file that this project reads, with their defaults.

Those are ``plugins.k8s``, ``tasks.task-plugins``, ``tasks.backoff`` and ``tasks.gc``, with the keys and defaults of
Flyte 1.16, and what Flyte has added since. Keys of our own are ``task-resources``, which Flyte keeps in its admin
service, ``reservation-limit`` and ``create-error-limit``. Other sections of the same file belong to others (Flyte keeps
its whole platform in one).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.kube.operators.sections import Duration, Quantity, Section

from .field_names import field_flaw, unknown_resource


def _by_resource(amounts: dict[str, str]) -> dict[str, str]:
    for name in amounts:
        if flaw := unknown_resource(name, "", ("gpu",)):
            raise ValueError(f"{flaw.path}: {flaw.said}")
    return amounts


Amounts = Annotated[dict[str, Quantity], AfterValidator(_by_resource)]
"""Quantities by the resource of a container; ``gpu`` is ``gpu-resource-name``."""


class _Of:
    """Checks the names of fields in a part of a manifest, by the official client's model."""

    def __init__(self, model: str) -> None:
        self._model = model

    def __call__(self, part: dict[str, Any]) -> dict[str, Any]:
        """Return the part. Raises ``ValueError``."""
        if flaw := field_flaw(part, self._model, ""):
            raise ValueError(f"{flaw.path}: {flaw.said}")
        return part


# Parts of manifests are plain Kubernetes JSON: the API server checks them, but for names that are misspelt.
AffinityPart = Annotated[dict[str, Any], AfterValidator(_Of("V1Affinity"))]
DnsPart = Annotated[dict[str, Any], AfterValidator(_Of("V1PodDNSConfig"))]
PodSecurityPart = Annotated[dict[str, Any], AfterValidator(_Of("V1PodSecurityContext"))]
RequirementPart = Annotated[dict[str, Any], AfterValidator(_Of("V1NodeSelectorRequirement"))]
SecurityPart = Annotated[dict[str, Any], AfterValidator(_Of("V1SecurityContext"))]
TemplatePart = Annotated[dict[str, Any], AfterValidator(_Of("V1PodTemplate"))]
TolerationPart = Annotated[dict[str, Any], AfterValidator(_Of("V1Toleration"))]


class CoPilot(Section):
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
    storage_config_override: dict[str, Any] | None = None
    storage_config_secret_name: str = ""


class AcceleratorClass(Section):
    """How nodes with one class of accelerators are found; an empty value means that of the keys `gpu-...`."""

    resource_name: str = ""
    device_node_label: str = ""
    partition_size_node_label: str = ""
    unpartitioned_node_selector_requirement: RequirementPart | None = None
    unpartitioned_toleration: TolerationPart | None = None
    pod_template: TemplatePart | None = None


ACCELERATOR_CLASSES: Final = {
    "NVIDIA_GPU": AcceleratorClass(resource_name="nvidia.com/gpu"),
    "GOOGLE_TPU": AcceleratorClass(
        resource_name="google.com/tpu",
        device_node_label="cloud.google.com/gke-tpu-accelerator",
        partition_size_node_label="cloud.google.com/gke-tpu-topology",
    ),
    "AMAZON_NEURON": AcceleratorClass(resource_name="aws.amazon.com/neuron"),
    "AMD_GPU": AcceleratorClass(resource_name="amd.com/gpu"),
    "HABANA_GAUDI": AcceleratorClass(resource_name="habana.ai/gaudi"),
}
"""Flyte's own classes: they exist by default, and a class of the same name replaces one."""


class ProjectResources(Section):
    """Defaults and limits of one project, or of one of its domains; the platform's apply to the rest."""

    project: str
    domain: str = ""
    defaults: Amounts = Field(default_factory=dict)
    limits: Amounts = Field(default_factory=dict)


class TaskResources(Section):
    """What a container of a task gets where it asks for nothing, and the most that it may have."""

    defaults: Amounts = Field(default_factory=dict)
    """Requests of a task's container that sets none: `cpu`, `memory`. Wins over `default-cpus`."""
    limits: Amounts = Field(default_factory=dict)
    """The most that any container of a task may have, by resource name; `gpu` is `gpu-resource-name`."""
    projects: tuple[ProjectResources, ...] = ()
    """`project`, `domain` (optional), `defaults`, `limits`: they replace the platform's, resource by resource."""
    above_limits: Literal["clamp", "refuse"] = "clamp"
    """A container that asks for more gets the limit and a note (`clamp`), or its task is refused (`refuse`)."""


class K8sPluginConfig(Section):
    """The section ``plugins.k8s``. Manifests' parts (tolerations, affinity) are plain Kubernetes JSON."""

    inject_finalizer: bool = False
    """Objects whose tasks have an owner in the cluster get a finalizer, so that none disappears unnoticed."""
    default_annotations: dict[str, str] = Field(
        default_factory=lambda: {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    )
    """Annotations of every object; the object's own win."""
    default_labels: dict[str, str] = Field(default_factory=dict)
    """Labels of every object; the object's own win."""
    default_env_vars: dict[str, str] = Field(default_factory=dict)
    """Environment variables of every container; the container's own win over them, and `spec.env` over both."""
    default_env_vars_from_env: dict[str, str] = Field(default_factory=dict)
    """The same with values from the manager's own environment: name in the container, name there."""
    default_env_from_configmaps: list[str] = Field(default_factory=list)
    """ConfigMaps that are an `envFrom` of every container, where they exist."""
    default_env_from_secrets: list[str] = Field(default_factory=list)
    """Secrets that are an `envFrom` of every container, where they exist."""
    default_cpus: Quantity = "1000m"
    """The cpu that a task's container requests if it sets none; also its limit then."""
    default_memory: Quantity = "1024Mi"
    """The memory that a task's container requests if it sets none; also its limit then."""
    default_tolerations: list[TolerationPart] = Field(default_factory=list)
    """Tolerations of every pod."""
    default_node_selector: dict[str, str] = Field(default_factory=dict)
    """Node selector of every pod; the pod's own labels win."""
    default_affinity: AffinityPart | None = None
    """Affinity of pods that have none."""
    scheduler_name: str = ""
    """Scheduler of pods that set none."""
    interruptible_tolerations: list[TolerationPart] = Field(default_factory=list)
    """Tolerations of interruptible tasks."""
    interruptible_node_selector: dict[str, str] = Field(default_factory=dict)
    """Node selector of interruptible tasks; prefer the requirements below."""
    interruptible_node_selector_requirement: RequirementPart | None = None
    """A requirement that is added to every term of the node affinity of interruptible tasks."""
    non_interruptible_node_selector_requirement: RequirementPart | None = None
    """The same for all other tasks."""
    resource_tolerations: dict[str, list[TolerationPart]] = Field(default_factory=dict)
    """Tolerations of pods that request a resource, by its name."""
    co_pilot: CoPilot = CoPilot()
    """No effect: tasks of this project move no data."""
    delete_resource_on_finalize: bool = False
    """Objects are deleted once their task has ended, with their logs."""
    create_container_error_grace_period: Duration = timedelta(minutes=3)
    """How long `CreateContainerError` may last before the task fails."""
    create_container_config_error_grace_period: Duration = timedelta(0)
    """How long `CreateContainerConfigError` may last; 0: it fails at once."""
    image_pull_backoff_grace_period: Duration = timedelta(minutes=3)
    """How long `ImagePullBackOff` may last before the attempt fails."""
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    """Image pull policy of containers that have none."""
    pod_pending_timeout: Duration = timedelta(0)
    """How long a pod may be pending before the attempt fails; 0: forever."""
    gpu_device_node_label: str = "k8s.amazonaws.com/accelerator"
    """The node label, and the taint, of a GPU's device: chosen by a task's `accelerator.device`."""
    gpu_partition_size_node_label: str = "k8s.amazonaws.com/gpu-partition-size"
    """The node label, and the taint, of a GPU's partition: chosen by `accelerator.partitionSize`."""
    gpu_unpartitioned_node_selector_requirement: RequirementPart | None = None
    """The requirement of a task that wants a whole GPU, instead of the absence of that label."""
    gpu_unpartitioned_toleration: TolerationPart | None = None
    """The toleration of a task that wants a whole GPU."""
    gpu_resource_name: str = "nvidia.com/gpu"
    """What `gpu` stands for in a task's resources."""
    accelerator_devices: dict[str, str] = Field(default_factory=dict)
    """The label's value for a task's `accelerator.device`, by its name (`A100: nvidia-tesla-a100`); any other name is
    the value itself."""
    accelerator_device_classes: dict[str, AcceleratorClass] = Field(default_factory=dict)
    """What a task's `accelerator.deviceClass` stands for, by its name: `resource-name`, `device-node-label`,
    `partition-size-node-label`, `unpartitioned-node-selector-requirement`, `unpartitioned-toleration`, and a
    `pod-template` below the task's pod. Flyte's five classes, such as `GOOGLE_TPU`, are known without it."""
    default_pod_security_context: PodSecurityPart | None = None
    """Security context of pods that have none."""
    default_security_context: SecurityPart | None = None
    """Security context of a task's primary container, if it has none."""
    enable_host_networking_pod: bool | None = None
    """Sets `hostNetwork` of every pod; not set: the pod's own."""
    default_pod_dns_config: DnsPart | None = None
    """DNS settings of pods that have none."""
    default_pod_template_name: str = ""
    """The PodTemplate that pods are built on: of their namespace, else of the manager's own."""
    default_pod_template_resync: Duration = timedelta(seconds=30)
    """How long a PodTemplate is cached."""
    disable_inject_owner_references: bool = False
    """Objects get no owner reference even if their task has an owner in the cluster."""
    enable_distributed_error_aggregation: bool = False
    """No effect: tasks of this project write no error files. A training job's first failed pod gives the reason."""
    send_object_events: bool = False
    """Kubernetes events about an object are added to the reasons of its phase."""
    update_base_backoff_duration: int = Field(default=10, ge=0)
    """Milliseconds before a finalizer conflict is retried; doubled each time."""
    update_backoff_retries: int = Field(default=5, ge=0)
    """How many attempts there are in all."""
    add_tolerations_for_extended_resources: list[str] = Field(default_factory=list)
    """Extended resources whose pods tolerate a taint of the same name."""
    reservation_limit: Annotated[Duration, Field(gt=timedelta(0))] = timedelta(minutes=5)
    """How long room stays reserved for the pods of a task's object while none of them appears; not in Flyte."""
    create_error_limit: Duration = timedelta(minutes=15)
    """How long a create may get only errors (5xx) until its attempt has failed; 0: for ever. Not in Flyte."""
    task_resources: TaskResources = TaskResources()
    """What a task's container gets where it asks for nothing, and the most that it may have: not in Flyte's file."""


class Plugins(Section):
    """The section ``plugins``. Sections of other plugins, by their ids, are kept as they were written."""

    model_config = ConfigDict(extra="allow")

    k8s: K8sPluginConfig = K8sPluginConfig()
    generic: Any = None
    """The operators of the generic plugin, unparsed: it reads them itself."""
    rest: Any = None
    """The services of the rest plugin, likewise."""

    def section(self, plugin: str) -> Mapping[str, Any]:
        """Return the section of a plugin, by its id, as it was written; empty: it has none."""
        found = (self.model_extra or {}).get(plugin)
        return found if isinstance(found, Mapping) else {}


class TaskPlugins(Section):
    """The enabled plugins, and which of them serves a task type that several could serve."""

    enabled_plugins: list[str] = Field(default_factory=list)
    """The ids of the enabled plugins; empty: all."""
    default_for_task_types: dict[str, str] = Field(default_factory=dict)
    """The plugin of a task type; needed if several serve it."""


class Backoff(Section):
    """How long a create that a quota has refused waits before it is tried again, where quotas can't be watched."""

    base_second: int | None = Field(default=None, ge=0, le=3600)
    """Seconds of the first delay; 1 by default. 0, which turns Flyte's back-off off, changes nothing."""
    max_duration: Annotated[Duration, Field(ge=timedelta(milliseconds=1), le=timedelta(days=1))] | None = None
    """The longest delay; by default `20s`, as in Flyte. It limits the first delay as well."""

    def policy(self) -> dict[str, float]:
        found: dict[str, float] = {}
        if self.max_duration is not None:
            found["cap"] = self.max_duration.total_seconds()
        if self.base_second:
            found["base"] = float(self.base_second)
        if found:
            found["base"] = min(found.get("base", Policy().base), found.get("cap", Policy().cap))
        return found


class GarbageCollection(Section):
    """How long tasks are kept after their end. The keys are those of Flyte's executor."""

    interval: Duration = timedelta(minutes=30)
    """The time between two looks for tasks that have ended long ago; 0: none is ever forgotten."""
    max_ttl: Duration = timedelta(days=7)
    """How long a task is kept after its end at most; `spec.ttl` of a task shortens it. In Flyte 1h."""


class Tasks(Section):
    """The section ``tasks``."""

    model_config = ConfigDict(extra="ignore")

    task_plugins: TaskPlugins = TaskPlugins()
    backoff: Backoff = Backoff()
    gc: GarbageCollection = GarbageCollection()


class PlatformSettings(Section):
    """The sections that are read."""

    model_config = ConfigDict(extra="ignore")

    plugins: Plugins = Plugins()
    tasks: Tasks = Tasks()

    @property
    def k8s(self) -> K8sPluginConfig:
        return self.plugins.k8s
