"""What a SparkApplication and a ScheduledSparkApplication make.

Sources: ``internal/controller/{sparkapplication,scheduledsparkapplication}/controller.go`` and
``internal/webhook/sparkpod_defaulter.go`` of github.com/kubeflow/spark-operator v2.3.0 (with its webhook and the
Service for the web UI, as its chart installs them); Spark's ``KubernetesClientApplication``,
``DriverServiceFeatureStep``, ``PodTemplateConfigMapStep`` and ``KubernetesClusterSchedulerBackend``. The amounts are
in ``spark_conf``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.charges.fields import (
    amount_of,
    count_at,
    flag_at,
    mapping_at,
    mappings_at,
    required_mapping_at,
    text_at,
)
from backoff_ctrl.k8s.charges.pods import read_containers

from .made import Made, Maker, counted, services
from .spark_conf import Conf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CONTAINERS: Final = {
    "driver": ("spark-kubernetes-driver",),
    "executor": ("executor", "spark-kubernetes-executor"),
}
_LOCAL_DIRECTORY: Final = "spark-local-dir-"
_JAVA_UNITS: Final = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti", "p": "Pi"}


def _scheduled_spark_application(made: Made) -> Iterator[Made]:
    """One run. With ``concurrencyPolicy: Allow`` runs that outlast the schedule overlap; how many is unknown."""
    spec = required_mapping_at(made.spec, "template", made.at)
    yield Made(
        kind="SparkApplication",
        resource="sparkapplications.sparkoperator.k8s.io",
        spec=spec,
        at=f"{made.at}.template",
        suspended=flag_at(made.spec, "suspend", made.at),
    )


def _spark_application(made: Made) -> Iterator[Made]:
    """The driver, which makes the executors; Services for its user interface and ports."""
    conf = Conf(made.spec, made.at)
    driver = _pod(made, "driver", conf)
    executors = replace(_pod(made, "executor", conf), number=conf.executors())
    claims = [replace(claim, number=executors.number) for claim in _claims(conf, "executor")]
    yield replace(driver, makes=(executors, *claims, *_claims(conf, "driver"), services(), *_config_maps(made, conf)))
    options = mapping_at(made.spec, "sparkUIOptions", made.at)
    yield services(text_at(options, "serviceType", f"{made.at}.sparkUIOptions") or "ClusterIP", 1)
    for index, ingress in enumerate(mappings_at(made.spec, "driverIngressOptions", made.at)):
        at = f"{made.at}.driverIngressOptions[{index}]"
        yield services(text_at(ingress, "serviceType", at) or "ClusterIP", 1)
        if text_at(ingress, "ingressURLFormat", at):
            yield counted("Ingress", "ingresses.networking.k8s.io")
    if _has_prometheus_config(made):
        yield counted("ConfigMap", "configmaps")


def _pod(made: Made, role: str, conf: Conf) -> Made:
    """Return the driver, or an executor: its template, changed by Spark and then by the operator's webhook."""
    section, at = required_mapping_at(made.spec, role, made.at), f"{made.at}.{role}"
    template = mapping_at(section, "template", at)
    spec = dict(mapping_at(template, "spec", f"{at}.template"))
    path = f"{at}.template.spec" if spec else at
    containers = mappings_at(spec, "containers", path)
    read_containers(spec, "containers", path)  # for errors with the path of the template
    spark = next((i for i, each in enumerate(containers) if each.get("name") in _CONTAINERS[role]), 0)
    containers = containers or [{"name": _CONTAINERS[role][0]}]
    containers[spark] = _spark_container(containers[spark], f"{path}.containers[{spark}]", section, at, conf, role)
    spec["containers"] = _with_more(containers, section, "sidecars", at)
    spec["initContainers"] = _with_more(mappings_at(spec, "initContainers", path), section, "initContainers", at)
    if name := text_at(section, "priorityClassName", at):
        spec["priorityClassName"] = name
    if section.get("affinity") is not None:
        spec["affinity"] = mapping_at(section, "affinity", at)
    spec["volumes"] = [*mappings_at(spec, "volumes", path), *_volumes(made, section, at)]
    return Made(kind="Pod", resource="pods", spec=spec, at=path, template=at)


def _spark_container(
    container: Mapping[str, Any], path: str, section: Mapping[str, Any], at: str, conf: Conf, role: str
) -> dict[str, Any]:
    """Return the container with Spark's requests and limits, and the limits that the webhook sets."""
    given = mapping_at(container, "resources", path)
    requests, limits = conf.resources(role)
    if limit := text_at(section, "memoryLimit", at):
        limits["memory"] = _memory_limit(limit, f"{at}.memoryLimit")
    gpu = mapping_at(section, "gpu", at)
    if name := text_at(gpu, "name", f"{at}.gpu"):  # the webhook ignores what has no name
        limits[name] = count_at(gpu, "quantity", f"{at}.gpu") or 0
    resources = {
        "requests": {**mapping_at(given, "requests", f"{path}.resources"), **requests},
        "limits": {**mapping_at(given, "limits", f"{path}.resources"), **limits},
    }
    return {**container, "resources": resources}


def _memory_limit(text: str, path: str) -> str:
    """Return a limit that is written as Java or as Kubernetes does."""
    lower = text.lower()
    short = lower.removesuffix("b")
    if short[-1:] in _JAVA_UNITS:
        text = f"{short[:-1]}{_JAVA_UNITS[short[-1]]}"
    amount_of(text, path)
    return text


def _with_more(
    containers: list[Mapping[str, Any]], section: Mapping[str, Any], key: str, at: str
) -> list[Mapping[str, Any]]:
    """Return the containers with those of a list in the application that are not among them, by name and image."""
    read_containers(section, key, at)
    known = [(each.get("name"), each.get("image")) for each in containers]
    added = [each for each in mappings_at(section, key, at) if (each.get("name"), each.get("image")) not in known]
    return [*containers, *added]


def _volumes(made: Made, section: Mapping[str, Any], at: str) -> list[Mapping[str, Any]]:
    """Return the application's volumes that this role mounts, without Spark's own local directories."""
    mounts = mappings_at(section, "volumeMounts", at)
    mounted = {text_at(mount, "name", f"{at}.volumeMounts[{index}]") for index, mount in enumerate(mounts)}
    volumes = mappings_at(made.spec, "volumes", made.at)
    names = [text_at(volume, "name", f"{made.at}.volumes[{index}]") for index, volume in enumerate(volumes)]
    return [
        volume
        for name, volume in zip(names, volumes, strict=True)
        if name in mounted and not name.startswith(_LOCAL_DIRECTORY)
    ]


def _claims(conf: Conf, role: str) -> Iterator[Made]:
    """Claims on demand: a property that names a storage class and a size makes one for each pod."""
    for path, storage_class, size in conf.claims(role):
        spec = {"storageClassName": storage_class, "resources": {"requests": {"storage": size}}}
        yield Made(kind="PersistentVolumeClaim", resource="persistentvolumeclaims", spec=spec, at=path)


def _config_maps(made: Made, conf: Conf) -> Iterator[Made]:
    """The properties of the driver and of the executors, and the executors' pod template."""
    number = 1 + (not conf.flag("spark.kubernetes.executor.disableConfigMap"))
    number += mapping_at(made.spec, "executor", made.at).get("template") is not None
    yield counted("ConfigMap", "configmaps", number)


def _has_prometheus_config(made: Made) -> bool:
    """Return whether the operator writes a ConfigMap for Prometheus: it does unless the image has both files."""
    monitoring, at = mapping_at(made.spec, "monitoring", made.at), f"{made.at}.monitoring"
    prometheus = mapping_at(monitoring, "prometheus", at)
    has_files = text_at(monitoring, "metricsPropertiesFile", at) and text_at(
        prometheus, "configFile", f"{at}.prometheus"
    )
    return monitoring.get("prometheus") is not None and not has_files


SPARK: Final[Mapping[str, Maker]] = {
    "scheduledsparkapplications.sparkoperator.k8s.io": _scheduled_spark_application,
    "sparkapplications.sparkoperator.k8s.io": _spark_application,
}
"""By the resource of what makes."""
