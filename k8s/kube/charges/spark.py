"""What a SparkApplication and a ScheduledSparkApplication make, with Spark's own arithmetic of resources.

Sources: ``internal/controller/{sparkapplication,scheduledsparkapplication}/controller.go``, ``submission.go`` there
(``buildSparkSubmitArgs``), ``internal/webhook/sparkpod_defaulter.go`` and ``api/v1beta2/defaults.go``
(``setSparkApplicationDefaults``) of github.com/kubeflow/spark-operator v2.3.0 (with its webhook and the Service for the
web UI, as its chart installs them). Of Spark's ``org.apache.spark.deploy.k8s``: ``KubernetesClientApplication``,
``DriverServiceFeatureStep``, ``PodTemplateConfigMapStep``, ``KubernetesClusterSchedulerBackend``,
``BasicDriverFeatureStep``, ``BasicExecutorFeatureStep``, ``MountVolumesFeatureStep``; ``ResourceProfile`` and
``JavaUtils.byteStringAs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from backoff_ctrl.k8s.kube.answers.fields import (
    FieldError,
    amount_of,
    count_at,
    flag_at,
    mapping_at,
    mappings_at,
    number_at,
    required_mapping_at,
    text_at,
)

from .pods import read_containers
from .workloads import Made, Maker, counted, services

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
    """What a run makes: no pods of a suspended application, which is possible since v2.4 of the operator."""
    suspended = flag_at(made.spec, "suspend", made.at)
    yield from (replace(each, suspended=suspended) for each in _run(made))


def _run(made: Made) -> Iterator[Made]:
    """The driver, which makes the executors; Services for its user interface and ports."""
    conf = Conf(made.spec, made.at)
    driver = _pod(made, "driver", conf)
    executors = replace(_pod(made, "executor", conf), number=conf.executors())
    claims = [replace(claim, number=executors.number) for claim in _claims(conf, "executor")]
    yield replace(driver, makes=(executors, *claims, *_claims(conf, "driver"), services(), *_config_maps(made, conf)))
    yield from _beside_the_driver(made)


def _beside_the_driver(made: Made) -> Iterator[Made]:
    """What the operator makes itself: Services for the user interface and ingresses, and a ConfigMap."""
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
    """Return the containers, and those of a list in the application that are not among them by name and image."""
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


OVERHEAD_FACTOR: Final = "spark.kubernetes.memoryOverheadFactor"
_OF_JVM, _OF_OTHERS = 0.1, 0.4
_LEAST_OVERHEAD: Final = "384m"

_UNITS: Final = {
    "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40, "p": 50, "pb": 50,
}  # fmt: skip
_MEMORY: Final = re.compile(r"([0-9]{1,18})([a-z]+)?")
_FACTOR: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,18})?|\.[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")

_ROLES: Final = ("driver", "executor")
_FIELDS: Final = (
    ("coreRequest", "spark.kubernetes.{role}.request.cores"),
    ("coreLimit", "spark.kubernetes.{role}.limit.cores"),
    ("memory", "spark.{role}.memory"),
    ("memoryOverhead", "spark.{role}.memoryOverhead"),
)
"""Fields of ``driver`` and ``executor`` that are texts, and the properties that they become."""
_ALLOCATION: Final = ("initialExecutors", "minExecutors", "maxExecutors")


class _Value(NamedTuple):
    """A property's value, and the path of the field that it comes from."""

    text: str
    path: str


class Conf:
    """The properties of one application: ``sparkConf``, then its fields, which win, then defaults."""

    def __init__(self, spec: Mapping[str, Any], at: str) -> None:
        """Read the spec of a SparkApplication. Raises ``FieldError`` for a malformed one."""
        self._values: dict[str, _Value] = {}
        self._section = f"{at}.sparkConf"
        if factor := text_at(spec, "memoryOverheadFactor", at):  # the one field over which sparkConf wins
            self._values[OVERHEAD_FACTOR] = _Value(factor, f"{at}.memoryOverheadFactor")
        given = mapping_at(spec, "sparkConf", at)
        for key in given:
            self._values[str(key)] = _Value(text_at(given, key, self._section), f"{self._section}.{key}")
        for role in _ROLES:
            self._read_role(mapping_at(spec, role, at), role, f"{at}.{role}")
        self._read_allocation(mapping_at(spec, "dynamicAllocation", at), f"{at}.dynamicAllocation")
        self.is_python = _ends(spec, at, ".py", "Python")
        self._is_jvm = not (self.is_python or _ends(spec, at, ".R", "R"))

    def text(self, key: str) -> str | None:
        """Return a property as it is, or None."""
        return self._values[key].text if key in self._values else None

    def path(self, key: str) -> str:
        """Return where a property is set, or could be."""
        return self._values[key].path if key in self._values else f"{self._section}.{key}"

    def names(self, pattern: str) -> list[str]:
        """Return the first groups of all properties whose whole key matches."""
        return [found[1] for key in self._values if (found := re.fullmatch(pattern, key))]

    def flag(self, key: str) -> bool:
        """Return whether a property is true."""
        return (self.text(key) or "").lower() == "true"

    def number(self, key: str, default: int) -> int:
        """Return a property that is a whole number."""
        text = self.text(key)
        if text is None:
            return default
        if not _NUMBER.fullmatch(text):
            raise FieldError(f'{self.path(key)}: "{text}" is not a whole number of 0 or more')
        return int(text)

    def mebibytes(self, key: str, default: str) -> int:
        """Return a property that is an amount of memory in whole MiB, which is also the unit of a bare number."""
        text = (self.text(key) or default).strip().lower()
        found = _MEMORY.fullmatch(text)
        unit = "m" if found and not found[2] else found[2] if found else ""
        if not found or unit not in _UNITS:
            raise FieldError(f'{self.path(key)}: "{text}" is not an amount of memory: write 512m or 4g')
        return int(found[1]) << _UNITS[unit] >> 20

    def executors(self) -> int:
        """Return how many executors start. Dynamic allocation adds more, up to ``maxExecutors``."""
        asked = self.number("spark.executor.instances", 0)
        if not self.flag("spark.dynamicAllocation.enabled"):
            return asked
        least = self.number("spark.dynamicAllocation.minExecutors", 0)
        return max(asked, least, self.number("spark.dynamicAllocation.initialExecutors", least))

    def resources(self, role: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the requests and the limits of the Spark container of a driver or an executor."""
        memory = f"{self._memory(role)}Mi"
        cores = f"spark.kubernetes.{role}.request.cores"
        cores = cores if cores in self._values else f"spark.{role}.cores"
        requests, limits = {"cpu": self._quantity(cores, "1"), "memory": memory}, {"memory": memory}
        most = f"spark.kubernetes.{role}.limit.cores"
        if most in self._values:
            limits["cpu"] = self._quantity(most, "1")
        for name in self.names(rf"spark\.{role}\.resource\.([^.]+)\.amount"):
            device, vendor = f"spark.{role}.resource.{name}.amount", f"spark.{role}.resource.{name}.vendor"
            if not self.text(vendor):
                raise FieldError(f"{self.path(vendor)}: required property is missing: {device} is set")
            limits[f"{self.text(vendor)}/{name}"] = self._quantity(device, "0")
        return requests, limits

    def claims(self, role: str) -> list[tuple[str, str, str]]:
        """Return the claims that Spark makes for each pod of this role: path, storage class and size."""
        volumes = f"spark.kubernetes.{role}.volumes.persistentVolumeClaim"
        found = []
        for name in self.names(re.escape(volumes) + r"\.([^.]+)\.options\.claimName"):
            storage_class, size = (
                self.text(f"{volumes}.{name}.options.{key}") for key in ("storageClass", "sizeLimit")
            )
            if storage_class is not None and size is not None:
                key = f"{volumes}.{name}.options.sizeLimit"
                found.append((self.path(key), storage_class, self._quantity(key, size)))
        return found

    def _memory(self, role: str) -> int:
        """Return the memory of a pod in MiB: the heap, the overhead, and what executors use beside them."""
        heap = self.mebibytes(f"spark.{role}.memory", "1g")
        overhead = f"spark.{role}.memoryOverhead"
        if overhead in self._values:
            total = heap + self.mebibytes(overhead, "0")
        else:
            least = self.mebibytes(f"spark.{role}.minMemoryOverhead", _LEAST_OVERHEAD)
            total = heap + max(int(self._factor(role) * heap), least)  # in doubles and cut off, as Spark does
        if role == "executor":
            if self.flag("spark.memory.offHeap.enabled"):
                total += self._off_heap()
            if self.is_python:
                total += self.mebibytes("spark.executor.pyspark.memory", "0")
        return total

    def _off_heap(self) -> int:
        """Return the off-heap memory in MiB; here a number without a unit is one of bytes."""
        key = "spark.memory.offHeap.size"
        text = self.text(key) or "0"
        return int(text) >> 20 if _MEMORY.fullmatch(text) and text.isdigit() else self.mebibytes(key, "0")

    def _factor(self, role: str) -> float:
        """Return the share of the heap that is added as overhead."""
        for key in (f"spark.{role}.memoryOverheadFactor", OVERHEAD_FACTOR):
            text = self.text(key)
            if text is not None:
                if not _FACTOR.fullmatch(text):
                    raise FieldError(f'{self.path(key)}: "{text}" is not a factor: write a number such as 0.1')
                return float(text)
        return _OF_JVM if self._is_jvm else _OF_OTHERS

    def _quantity(self, key: str, default: str) -> str:
        """Return a property that is a quantity, as it is written."""
        text = self.text(key) or default
        amount_of(text, self.path(key))
        return text

    def _read_role(self, section: Mapping[str, Any], role: str, at: str) -> None:
        """Take in the fields of ``driver`` or ``executor``, and the operator's defaults."""
        for field, key in _FIELDS:
            if section.get(field) is not None:
                self._values[key.format(role=role)] = _Value(text_at(section, field, at), f"{at}.{field}")
        self._read_number(section, "cores", f"spark.{role}.cores", at, default=1)
        if role == "executor":
            self._read_number(section, "instances", "spark.executor.instances", at, default=None)

    def _read_number(self, section: Mapping[str, Any], field: str, key: str, at: str, default: int | None) -> None:
        if section.get(field) is not None:
            self._values[key] = _Value(str(number_at(section, field, at, 1)), f"{at}.{field}")
        elif default is not None:
            self._values.setdefault(key, _Value(str(default), f"{at}.{field}"))

    def _read_allocation(self, section: Mapping[str, Any], at: str) -> None:
        """Take in ``dynamicAllocation``; without it, the operator asks for one executor by default."""
        if not flag_at(section, "enabled", at):
            self._values.setdefault("spark.executor.instances", _Value("1", self._section))
            return
        self._values["spark.dynamicAllocation.enabled"] = _Value("true", f"{at}.enabled")
        for field in _ALLOCATION:
            if section.get(field) is not None:
                number = str(count_at(section, field, at))
                self._values[f"spark.dynamicAllocation.{field}"] = _Value(number, f"{at}.{field}")


def _ends(spec: Mapping[str, Any], at: str, ending: str, language: str) -> bool:
    """Return whether the program is of this language: spark-submit looks at the file's name alone."""
    file = text_at(spec, "mainApplicationFile", at)
    return file.endswith(ending) if file else text_at(spec, "type", at) == language
