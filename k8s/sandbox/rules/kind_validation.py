"""Validation of ConfigMaps, Secrets, claims, Services and the kinds that create pods, on create and update."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.amounts.amounts import amount_of
from backoff_ctrl.k8s.sandbox.wire.problems import bad, fixed, in_range, missing, not_negative, unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON
    from backoff_ctrl.k8s.sandbox.wire.problems import Problem

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_LARGEST = 1024 * 1024  # bytes of data
_IMMUTABLE = "Forbidden: field is immutable when `immutable` is set"
_KEYS_OF_TYPES = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_BASIC = ("username", "password")
_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_POLICY_TEXT = 'valid values: "OnFailure", "Never"'


def problems_of_data(plural: str, obj: JSON, before: JSON | None) -> Iterator[Problem]:
    """Keys and size of a ConfigMap or a Secret, and on an update what must not change."""
    if before is not None:
        yield from _kept_data_problems(plural, obj, before)
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for field, values in (("data", data), ("binaryData", binary)):
        for key in values:
            if not _KEY.fullmatch(key):
                yield bad(f"{field}[{key}]", key, _KEY_TEXT)
    for key in sorted(data.keys() & binary.keys()):
        yield bad(f"data[{key}]", key, "duplicate of key present in binaryData")
    secret = plural == "secrets"
    size = sum(len(text) * 3 // 4 if secret else len(text.encode()) for text in data.values())
    if size + sum(len(text) * 3 // 4 for text in binary.values()) > _LARGEST:
        yield ("FieldValueTooLong", "data" if secret else "[]", f"Too long: may not be more than {_LARGEST} bytes")
    if secret:
        yield from _type_problems(obj.get("type") or "", data)


def _kept_data_problems(plural: str, obj: JSON, before: JSON) -> Iterator[Problem]:
    if before.get("immutable") and obj.get("immutable") is not True:
        yield ("FieldValueForbidden", "immutable", _IMMUTABLE)
    for field in ("data", "binaryData") if before.get("immutable") else ():
        if before.get(field) != obj.get(field):
            yield ("FieldValueForbidden", field, _IMMUTABLE)
    if plural == "secrets" and before.get("type") != obj.get("type"):
        yield fixed("type", obj.get("type"))


def _type_problems(type_: str, data: JSON) -> Iterator[Problem]:
    """Secrets of some types need certain keys; basic-auth needs one of its two."""
    basic = type_ == "kubernetes.io/basic-auth" and not any(key in data for key in _BASIC)
    for key in _BASIC if basic else _KEYS_OF_TYPES.get(type_, ()):
        if key not in data:
            yield missing(f"data[{key}]")


def problems_of_claim(spec: JSON) -> Iterator[Problem]:
    """Access modes and size of a claim. Raises ``AmountError``."""
    modes = spec.get("accessModes") or ()
    if not modes:
        yield missing("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _MODES:
            yield unsupported("spec.accessModes", mode, *_MODES)
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if asked is None:
        yield missing("spec.resources[storage]")
    elif amount_of(asked).nano <= 0:
        yield bad("spec.resources[storage]", str(asked), "must be greater than zero")


def problems_of_claim_update(before: JSON, obj: JSON) -> Iterator[Problem]:
    """Only a bound claim may change, and only its size and its attributes class."""
    bound = (before.get("status") or {}).get("phase") == "Bound"
    free = {"resources", "volumeAttributesClassName"} if bound else set()
    old, new = before.get("spec") or {}, obj.get("spec") or {}
    if any(old.get(field) != new.get(field) for field in {*old, *new} - free):
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        yield ("FieldValueForbidden", "spec", f"Forbidden: {text}")


def problems_of_service(spec: JSON, before: JSON | None) -> Iterator[Problem]:
    """Type, ports and address of a Service."""
    type_, ports = spec.get("type"), spec.get("ports") or ()
    old = (before or {}).get("clusterIPs") or []
    if old and type_ != "ExternalName" and (spec.get("clusterIPs") or [])[:1] != old[:1]:
        yield bad("spec.clusterIPs[0]", spec.get("clusterIPs"), "may not change once set")
    if not ports and type_ != "ExternalName" and spec.get("clusterIP") != "None":
        yield missing("spec.ports")
    for index, port in enumerate(ports):
        yield from _port_problems(f"spec.ports[{index}]", port, alone=len(ports) == 1)
        if type_ == "ClusterIP" and port.get("nodePort"):
            text = "Forbidden: may not be used when `type` is 'ClusterIP'"
            yield ("FieldValueForbidden", f"spec.ports[{index}].nodePort", text)
    if type_ not in _SERVICE_TYPES:
        yield unsupported("spec.type", type_, *_SERVICE_TYPES)
    if type_ in {"NodePort", "LoadBalancer"} and spec.get("clusterIP") == "None":
        yield bad("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {type_} services")
    if type_ == "ExternalName" and (spec.get("clusterIP") or spec.get("clusterIPs")):
        yield ("FieldValueForbidden", "spec.clusterIPs", "Forbidden: may not be set for ExternalName services")
    if type_ == "ExternalName" and not spec.get("externalName"):
        yield missing("spec.externalName")


def _port_problems(path: str, port: JSON, *, alone: bool) -> Iterator[Problem]:
    if not alone and not port.get("name"):
        yield missing(f"{path}.name")
    yield from in_range(f"{path}.port", port.get("port") or 0, 1, 65535)
    if port.get("protocol") not in _PROTOCOLS:
        yield unsupported(f"{path}.protocol", port.get("protocol"), *_PROTOCOLS)
    target = port.get("targetPort")
    if isinstance(target, int):
        yield from in_range(f"{path}.targetPort", target, 1, 65535)


def problems_of_controller(plural: str, spec: JSON) -> Iterator[Problem]:
    """Selector, counts and pod template of a kind that creates pods."""
    template = spec.get("template")
    if plural == "replicationcontrollers":
        given = (template or {}).get("metadata", {}).get("labels")
        if not (spec.get("selector") or given):
            yield missing("spec.selector")
        if not template:
            yield missing("spec.template")
        return
    if plural != "jobs":
        yield from _selector_problems(spec, template or {})
    for field in ("parallelism", "completions", "backoffLimit", "replicas") if plural != "cronjobs" else ():
        yield from not_negative(f"spec.{field}", spec.get(field))
    pod = (template or {}).get("spec") or {}
    if not pod.get("containers"):
        yield missing("spec.template.spec.containers")
    if plural == "jobs" and pod.get("restartPolicy") not in {"OnFailure", "Never"}:
        yield missing("spec.template.spec.restartPolicy", _POLICY_TEXT)


def _selector_problems(spec: JSON, template: JSON) -> Iterator[Problem]:
    if not spec.get("selector"):
        yield missing("spec.selector")
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    labels = (template.get("metadata") or {}).get("labels")
    if not spec.get("selector") or not wanted.items() <= (labels or {}).items():
        where, text = "spec.template.metadata.labels", "`selector` does not match template `labels`"
        yield ("FieldValueInvalid", where, f"Invalid value: {json.dumps(labels)}: {text}")


def problems_of_job_update(before: JSON, spec: JSON) -> Iterator[Problem]:
    """A Job's completions, selector and pod template must not change."""
    indexed = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    if before.get("completions") != spec.get("completions") and not indexed:
        yield fixed("spec.completions", spec.get("completions"))
    if before.get("selector") != spec.get("selector"):
        yield fixed("spec.selector", spec.get("selector"))
    old, new = before.get("template") or {}, spec.get("template") or {}
    if old.get("spec") != new.get("spec") and not (before.get("suspend") and _same_but_directives(old, new)):
        yield fixed("spec.template.spec", new.get("spec"))


def _same_but_directives(old: JSON, new: JSON) -> bool:
    """Whether two templates differ only in scheduling directives, which may change while a Job is suspended."""
    free = {"nodeSelector", "affinity", "tolerations", "schedulingGates"}
    one, other = ({f: v for f, v in (each.get("spec") or {}).items() if f not in free} for each in (old, new))
    return one == other
