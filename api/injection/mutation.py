"""Puts the sidecar into a pod: what becomes of each container, and why a pod is left as it is. Pure.

A container that mounts a service account gets the sidecar's account directory in its place, where ``ca.crt`` is the
sidecar's and ``token`` a link to the real one, and finds the sidecar by ``KUBERNETES_SERVICE_HOST`` and ``_PORT``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .quality import quality_of, sidecar_resources
from .sidecar import (
    ACCOUNT_PATH,
    ACCOUNT_VOLUME,
    JSON,
    NAME,
    PORT,
    PROBE_PORT,
    TOKEN_PATH,
    container,
    volumes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .sidecar import SidecarSettings

INJECTED: Final = "backoff-ctrl.dev/injected"
"""The annotation of a pod that got the sidecar; its value is the sidecar's image."""
OLDEST: Final = (1, 29)
"""The first minor version of Kubernetes with native sidecars on by default."""
SERVER: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
OPTIONS: Final[Mapping[str, str]] = {
    "backoff-ctrl.dev/hold": "--hold",
    "backoff-ctrl.dev/hold-total": "--hold-total",
    "backoff-ctrl.dev/answer": "--answer",
}
"""Annotations by which a pod sets options of its own sidecar."""
_TOKEN_VOLUME: Final = "kube-api-access"  # noqa: S105 - a volume
_TOKEN_SOURCES: Final[tuple[JSON, ...]] = (
    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
)
_ANSWERS: Final = frozenset({"wait", "error", "quota"})


@dataclass(frozen=True, slots=True)
class Injected:
    """What became of a pod: ``pod`` with the sidecar, or None where it is left as it is.

    ``outcome`` is a word for counting: ``injected``, ``present``, ``host-network``, ``windows``, ``old-server``,
    ``no-account``, ``unreadable``, or ``failed``, where our own code did. ``warnings`` are shown to whoever created the
    pod.
    """

    outcome: str
    pod: JSON | None = None
    warnings: tuple[str, ...] = ()


def inject(pod: JSON, settings: SidecarSettings, server: tuple[int, int] | None = None) -> Injected:
    """Return a pod with the sidecar; ``pod`` itself stays as it is. ``server``: its version; None: not known."""
    spec = pod.get("spec")
    if not isinstance(spec, dict) or not _readable(spec):
        return Injected("unreadable")  # the server says what is wrong with it
    if any(each.get("name") == NAME for each in _containers(spec)):
        return Injected("present")
    if why := _left_alone(spec, server):
        outcome, sentence = why
        return Injected(outcome, warnings=(f"backoff-ctrl put no sidecar into this pod: {sentence}",))
    token_volume = next(mount["name"] for each in _containers(spec) for mount in _account_mounts(each))
    quality = quality_of(spec)
    changed = copy.deepcopy(pod)
    options, warnings = _options(changed)
    found, doubts = _server_of(changed["spec"])
    ports = _free_ports(changed["spec"])
    for each in _containers(changed["spec"]):
        _redirect(each, ports[0])
    sidecar = container(
        settings,
        token_volume=token_volume,
        ports=ports,
        resources=sidecar_resources(quality, settings),
        env=found,
        options=options,
    )
    changed["spec"]["initContainers"] = [sidecar, *(changed["spec"].get("initContainers") or [])]
    changed["spec"]["volumes"] = [*(changed["spec"].get("volumes") or []), *volumes()]
    metadata = changed.get("metadata") or {}
    changed["metadata"] = {**metadata, "annotations": {**(metadata.get("annotations") or {}), INJECTED: settings.image}}
    return Injected("injected", changed, (*warnings, *doubts))


def with_account(pod: JSON) -> JSON:
    """Return a manifest with the token that the ServiceAccount admission mounts before any webhook is asked.

    As ``plugin/pkg/admission/serviceaccount`` in Kubernetes does for an account that says nothing of it.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict) or not _readable(spec) or spec.get("automountServiceAccountToken") is False:
        return pod
    changed = copy.deepcopy(pod)
    missing = [each for each in _containers(changed["spec"]) if not any(True for _ in _account_mounts(each))]
    for each in missing:
        mount = {"name": _TOKEN_VOLUME, "mountPath": ACCOUNT_PATH, "readOnly": True}
        each["volumeMounts"] = [*(each.get("volumeMounts") or []), mount]
    if missing:
        volume = {"name": _TOKEN_VOLUME, "projected": {"sources": [dict(each) for each in _TOKEN_SOURCES]}}
        changed["spec"]["volumes"] = [*(changed["spec"].get("volumes") or []), volume]
    return changed


def _left_alone(spec: Mapping[str, Any], server: tuple[int, int] | None) -> tuple[str, str] | None:
    """Say why a pod can't have a sidecar: a word and a sentence; None: it can."""
    if server is not None and server < OLDEST:
        return "old-server", f"Kubernetes {server[0]}.{server[1]} has no native sidecars, 1.29 and newer have"
    if spec.get("hostNetwork"):
        return "host-network", "it uses the node's network, where the sidecar's ports would be the node's"
    if (spec.get("os") or {}).get("name") == "windows":
        return "windows", "the sidecar's image is for Linux"
    if not any(True for each in _containers(spec) for _ in _account_mounts(each)):
        return "no-account", "none of its containers mounts a service account (automountServiceAccountToken: false?)"
    return None


def _readable(spec: Mapping[str, Any]) -> bool:
    """Say whether a spec has the structure that is worked on here: the server may not have checked it yet."""
    if not all(_is_list_of_objects(spec.get(key)) for key in ("containers", "initContainers", "volumes")):
        return False
    if not isinstance(spec.get("os") or {}, dict):
        return False
    return all(
        _is_list_of_objects(each.get(key)) for each in _containers(spec) for key in ("env", "volumeMounts", "ports")
    )


def _is_list_of_objects(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, dict) for each in value))


def _containers(spec: Mapping[str, Any]) -> Iterator[JSON]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def _account_mounts(each: Mapping[str, Any]) -> Iterator[JSON]:
    for mount in each.get("volumeMounts") or ():
        if str(mount.get("mountPath")).rstrip("/") == ACCOUNT_PATH:
            yield mount


def _redirect(each: JSON, port: int) -> None:
    """Let a container that mounts a service account find the sidecar in place of the API server."""
    mounts = list(_account_mounts(each))
    if not mounts:
        return
    token = {"name": mounts[0]["name"], "mountPath": TOKEN_PATH, "readOnly": True}
    for mount in mounts:  # replaced: two mounts at one path are invalid
        mount.update(name=ACCOUNT_VOLUME, readOnly=True)
    each["volumeMounts"].append(token)
    own = [entry for entry in each.get("env") or [] if entry.get("name") not in SERVER]
    each["env"] = [{"name": SERVER[0], "value": "127.0.0.1"}, {"name": SERVER[1], "value": str(port)}, *own]


def _server_of(spec: Mapping[str, Any]) -> tuple[list[JSON], tuple[str, ...]]:
    """Return where containers find the API server by their own environment: it becomes the sidecar's upstream."""
    given = []
    for each in _containers(spec):
        if any(True for _ in _account_mounts(each)):
            found = {str(entry.get("name")): entry for entry in each.get("env") or ()}
            given.append([found[name] for name in SERVER if name in found])
    chosen = next(filter(None, given), [])
    if any(each not in ([], chosen) for each in given):
        return chosen, ("its containers name different API servers: the sidecar serves that of the first for all",)
    return chosen, ()


def _free_ports(spec: Mapping[str, Any]) -> tuple[int, int]:
    """Return ports for creators and for probes that no container of the pod declares."""
    declared = (port.get("containerPort") for each in _containers(spec) for port in each.get("ports") or ())
    taken = {number for number in declared if isinstance(number, int)}
    port = next(number for number in range(PORT, PORT + len(taken) + 1) if number not in taken)
    taken.add(port)
    return port, next(number for number in range(PROBE_PORT, PROBE_PORT + len(taken) + 1) if number not in taken)


def _options(pod: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the options that the pod's annotations set, and a warning for each that says nothing sensible."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    options, warnings = [], []
    for name, option in OPTIONS.items():
        value = annotations.get(name)
        if value is None:
            continue
        if (value in _ANSWERS) if option == "--answer" else _is_seconds(value):
            options.append(f"{option}={value}")
        else:
            wanted = "wait, error or quota" if option == "--answer" else "a number of seconds, 0 or more"
            warnings.append(f"annotation {name}: must be {wanted}, not {value!r}; the default holds")
    return options, warnings


def _is_seconds(value: object) -> bool:
    try:
        return isinstance(value, str) and 0 <= float(value) <= 86_400
    except ValueError:
        return False
