"""Spark's own arithmetic: the properties that an application is submitted with, and the resources of its containers.

Sources: ``setSparkApplicationDefaults`` of ``api/v1beta2/defaults.go`` and ``buildSparkSubmitArgs`` of
``internal/controller/sparkapplication/submission.go`` of github.com/kubeflow/spark-operator v2.3.0;
``BasicDriverFeatureStep``, ``BasicExecutorFeatureStep`` and ``MountVolumesFeatureStep`` of Spark's
``org.apache.spark.deploy.k8s.features``, ``ResourceProfile``, and ``JavaUtils.byteStringAs``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from backoff_ctrl.k8s.charges.fields import FootprintError, amount_of, count_at, flag_at, mapping_at, number_at, text_at

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        """Read the spec of a SparkApplication. Raises ``FootprintError`` for a malformed one."""
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
            raise FootprintError(f'{self.path(key)}: "{text}" is not a whole number of 0 or more')
        return int(text)

    def mebibytes(self, key: str, default: str) -> int:
        """Return a property that is an amount of memory in whole MiB, which is also its unit where it has none."""
        text = (self.text(key) or default).strip().lower()
        found = _MEMORY.fullmatch(text)
        unit = "m" if found and not found[2] else found[2] if found else ""
        if not found or unit not in _UNITS:
            raise FootprintError(f'{self.path(key)}: "{text}" is not an amount of memory: write 512m or 4g')
        return int(found[1]) << _UNITS[unit] >> 20

    def executors(self) -> int:
        """Return how many executors start. Dynamic allocation goes on from there, up to ``maxExecutors``."""
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
                raise FootprintError(f"{self.path(vendor)}: required property is missing: {device} is set")
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
                    raise FootprintError(f'{self.path(key)}: "{text}" is not a factor: write a number such as 0.1')
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
    """Return whether the program is of this language: spark-submit looks at the file's name and nothing else."""
    file = text_at(spec, "mainApplicationFile", at)
    return file.endswith(ending) if file else text_at(spec, "type", at) == language
