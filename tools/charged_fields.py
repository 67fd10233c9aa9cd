"""Rewrites the tables of ``k8s/sidecar/http/charged_fields.py`` from the source code of Kubernetes: unused at run time.

Usage: python -m tools.charged_fields API_DIR APIMACHINERY_DIR, with the directories of the Go modules ``k8s.io/api``
and ``k8s.io/apimachinery`` of one release. ``WANTED`` names the fields; the ``.proto`` files give their numbers and
types, and ``types.go`` tells whether a field is a pointer. The sandbox has a table and a maker of its own.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

TARGET: Final = Path(__file__).parent.parent / "k8s" / "proxy" / "http" / "charged_fields.py"

_CLAIM: Final = {
    "ResourceClaim": "metadata spec",
    "ResourceClaimSpec": "devices",
    "DeviceClaim": "requests",
    "DeviceSubRequest": "deviceClassName allocationMode count",
}
WANTED: Final[dict[str, dict[str, str]]] = {
    "core.v1": {
        "Pod": "metadata spec status",
        "PodSpec": (
            "containers initContainers activeDeadlineSeconds nodeName affinity priorityClassName overhead resources"
        ),
        "Container": "name resources restartPolicy",
        "ResourceRequirements": "limits requests",
        "Affinity": "podAffinity podAntiAffinity",
        "PodAffinity": "requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution",
        "PodAntiAffinity": (
            "requiredDuringSchedulingIgnoredDuringExecution preferredDuringSchedulingIgnoredDuringExecution"
        ),
        "PodAffinityTerm": "namespaces namespaceSelector",
        "WeightedPodAffinityTerm": "podAffinityTerm",
        "PodStatus": "phase conditions startTime initContainerStatuses containerStatuses qosClass",
        "PodCondition": "type status reason",
        "ContainerStatus": "name allocatedResources resources",
        "PersistentVolumeClaim": "metadata spec status",
        "PersistentVolumeClaimSpec": "resources storageClassName volumeAttributesClassName",
        "PersistentVolumeClaimStatus": "allocatedResources",
        "VolumeResourceRequirements": "limits requests",
        "Service": "metadata spec",
        "ServiceSpec": "ports type allocateLoadBalancerNodePorts",
        "ServicePort": "port nodePort",
    },
    "resource.v1": {
        **_CLAIM,
        "DeviceRequest": "exactly firstAvailable",
        "ExactDeviceRequest": "deviceClassName allocationMode count",
    },
    "resource.v1beta1": {**_CLAIM, "DeviceRequest": "deviceClassName allocationMode count firstAvailable"},
    "meta.v1": {
        "ObjectMeta": (
            "name generateName namespace uid resourceVersion generation creationTimestamp deletionTimestamp "
            "deletionGracePeriodSeconds labels annotations ownerReferences finalizers"
        ),
        "OwnerReference": "kind name uid apiVersion controller",
        "LabelSelector": "",  # whether there is one is all that counts
        "Status": "status message reason details code",
        "StatusDetails": "name group kind causes retryAfterSeconds uid",
        "StatusCause": "reason message field",
    },
}
_KINDS: Final = {
    ("v1", "Pod"): "core.v1.Pod",
    ("v1", "PersistentVolumeClaim"): "core.v1.PersistentVolumeClaim",
    ("v1", "Service"): "core.v1.Service",
    ("v1", "Status"): "meta.v1.Status",
    ("resource.k8s.io/v1", "ResourceClaim"): "resource.v1.ResourceClaim",
    ("resource.k8s.io/v1beta1", "ResourceClaim"): "resource.v1beta1.ResourceClaim",
    ("resource.k8s.io/v1beta2", "ResourceClaim"): "resource.v1.ResourceClaim",  # of the same fields
}
_MESSAGE: Final = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD: Final = re.compile(r"^  (?:(optional|repeated) )?(map<string, [.\w]+>|[.\w]+) (\w+) = (\d+);", re.MULTILINE)
_STRUCT: Final = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_POINTER: Final = re.compile(r"^\t\w+\s+\*[\w.]+\s+`.*?protobuf:\"\w+,(\d+),", re.MULTILINE)
_SCALARS: Final = {"string": "TEXT", "bool": "FLAG", "int32": "INT32", "int64": "INT64"}
_SPECIAL: Final = {"meta.v1.Time": "TIME", "api.resource.Quantity": "QUANTITY"}


def main(api: Path, machinery: Path) -> str:
    """Return the text of the module: what stands above its tables stays."""
    head, _, _ = TARGET.read_text(encoding="utf-8").partition("MESSAGES: Final")
    lines = ["MESSAGES: Final[Mapping[str, Mapping[int, Field]]] = {\n"]
    for package, messages in sorted(WANTED.items()):
        meta = machinery / "pkg" / "apis" / "meta" / "v1"
        folder = meta if package == "meta.v1" else api.joinpath(*package.split("."))
        found = dict(_MESSAGE.findall((folder / "generated.proto").read_text()))
        structs = dict(_STRUCT.findall("".join(each.read_text() for each in folder.glob("*types*.go"))))
        for name, wanted in sorted(messages.items()):
            lines.append(f'    "{package}.{name}": {{\n')
            lines += _fields(package, found[name], structs[name], wanted.split())
            lines.append("    },\n")
    lines.append("}\n\nKINDS: Final[Mapping[tuple[str, str], str]] = {\n")
    lines += [f'    ("{version}", "{kind}"): "{message}",\n' for (version, kind), message in _KINDS.items()]
    lines.append('}\n"""By apiVersion and kind. Of all other kinds the metadata is read."""\n')
    return head + "".join(lines)


def _fields(package: str, body: str, struct: str, wanted: list[str]) -> list[str]:
    """Return a line for each wanted field of a message, in the order of their numbers."""
    pointers, rows = set(_POINTER.findall(struct)), {}
    for label, type_, name, number in _FIELD.findall(body):
        if name not in wanted:
            continue
        times = "LIST" if label == "repeated" else "POINTED" if number in pointers else ""
        if type_.startswith("map<"):
            type_, times = type_.removeprefix("map<string, ").removesuffix(">"), "MAP"  # noqa: PLW2901
        written = f", Times.{times}" if times else ""
        rows[int(number)] = f'        {number}: Field("{name}", {_type(package, type_)}{written}),\n'
    missing = len(wanted) - len(rows)
    if missing:
        raise SystemExit(f"{package}: {missing} of the fields {wanted} are not there")
    return [rows[number] for number in sorted(rows)]


def _type(package: str, type_: str) -> str:
    """Return the table's word for a type."""
    if type_ in _SCALARS:
        return f"Plain.{_SCALARS[type_]}"
    name = type_.removeprefix(".")
    for prefix in ("k8s.io.apimachinery.pkg.apis.", "k8s.io.apimachinery.pkg.", "k8s.io.api."):
        name = name.removeprefix(prefix)
    name = name if "." in name else f"{package}.{name}"
    return f"Plain.{_SPECIAL[name]}" if name in _SPECIAL else f'"{name}"'


if __name__ == "__main__":
    TARGET.write_text(main(*(Path(folder) for folder in sys.argv[1:3])), encoding="utf-8")
