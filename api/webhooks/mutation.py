"""Puts the sidecar into a pod: changes each container, or says why a pod stays unchanged. Pure.

A container that mounts a service account gets the sidecar's account directory in its place, where ``ca.crt`` is the
sidecar's and ``token`` a link to the real one, and finds the sidecar by ``KUBERNETES_SERVICE_HOST`` and ``_PORT``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.fields import annotations_of, mappings

from .sidecar import (
    ACCOUNT_PATH,
    ACCOUNT_VOLUME,
    AUTHORITY_VOLUME,
    JSON,
    NAME,
    OPTIONS,
    PORT,
    PROBE_PORT,
    STATUS_PORT,
    TOKEN_PATH,
    SidecarSettings,
    container,
    port_of,
    sidecar_in,
    sidecar_resources,
    volumes,
    wishes,
)

SERVER: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_REFERENCE: Final = re.compile(r"\$\(([^()]+)\)")
_TOKEN_VOLUME: Final = "kube-api-access"  # noqa: S105 - a volume
_TOKEN_SOURCES: Final[tuple[JSON, ...]] = (
    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
)


def containers(spec: Mapping[str, Any]) -> Iterator[JSON]:
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def is_readable(spec: Mapping[str, Any]) -> bool:
    """Return whether a spec has the expected structure: the server may not have checked it yet."""
    if not all(_is_list_of_objects(spec.get(key)) for key in ("containers", "initContainers", "volumes")):
        return False
    if not all(isinstance(spec.get(key) or {}, dict) for key in ("os", "nodeSelector", "securityContext", "resources")):
        return False
    return all(
        _is_list_of_objects(each.get(key)) for each in containers(spec) for key in ("env", "volumeMounts", "ports")
    )


def _is_list_of_objects(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, dict) for each in value))


def account_mounts(spec: Mapping[str, Any], each: Mapping[str, Any]) -> list[JSON]:
    """Return a container's mounts of a service account. An emptyDir there is how one opts out of it."""
    return [mount for mount in at_account_path(each) if _is_account(spec, mount)]


def at_account_path(each: Mapping[str, Any]) -> Iterator[JSON]:
    """Yield the mounts of a container at the place of its account."""
    for mount in each.get("volumeMounts") or ():
        if str(mount.get("mountPath")).rstrip("/") == ACCOUNT_PATH:
            yield mount


def _is_account(spec: Mapping[str, Any], mount: Mapping[str, Any]) -> bool:
    """Return whether a mount has what the sidecar needs: a token and an authority."""
    if mount.get("subPathExpr"):
        return False  # it may differ in another container
    volumes = spec.get("volumes") or ()
    volume: Mapping[str, Any] = next((each for each in volumes if each.get("name") == mount.get("name")), {})
    if isinstance(volume.get("secret"), dict) or isinstance(volume.get("csi"), dict):
        return True
    projected = volume.get("projected")
    if not isinstance(projected, dict):
        return False
    sources = mappings(projected.get("sources"))
    token = any("serviceAccountToken" in each or "secret" in each for each in sources)
    return not sources or (token and any(map(_may_bring_authority, sources)))


def _may_bring_authority(source: Mapping[str, Any]) -> bool:
    """Return whether a projected source may be the one with ``ca.crt``; without ``items`` it has all keys."""
    bundle = source.get("clusterTrustBundle")
    if isinstance(bundle, dict):
        return str(bundle.get("path")).endswith("ca.crt")
    found = source.get("configMap") or source.get("secret")
    if not isinstance(found, dict):
        return False
    chosen = found.get("items")
    return not isinstance(chosen, list) or any(str(each.get("path")).endswith("ca.crt") for each in mappings(chosen))


def redirect(spec: Mapping[str, Any], each: JSON, port: int) -> None:
    """Let a container that mounts a service account find the sidecar in place of the API server."""
    mounts = account_mounts(spec, each)
    if not mounts:
        return
    token = token_mount(mounts[0], TOKEN_PATH)
    for mount in [*at_account_path(each)]:  # replaced: two mounts at one path are invalid
        mount.pop("subPath", None)
        mount.update(name=ACCOUNT_VOLUME, readOnly=True)
    each["volumeMounts"].append(token)
    own = [entry for entry in each.get("env") or [] if entry.get("name") not in SERVER]
    each["env"] = [{"name": SERVER[0], "value": "127.0.0.1"}, {"name": SERVER[1], "value": str(port)}, *own]


def token_mount(mount: Mapping[str, Any], path: str) -> JSON:
    """Return the same account, mounted at another path."""
    part = {"subPath": mount["subPath"]} if mount.get("subPath") else {}
    return {"name": mount["name"], "mountPath": path, "readOnly": True, **part}


def server_of(spec: Mapping[str, Any]) -> tuple[list[JSON], tuple[str, ...]]:
    """Return where containers find the API server by their own environment: it becomes the sidecar's upstream.

    What those values refer to, as ``$(NAME)``, comes with them.
    """
    given = []
    for each in containers(spec):
        if account_mounts(spec, each):
            found = {str(entry.get("name")): entry for entry in each.get("env") or ()}
            given.append(([found[name] for name in SERVER if name in found], found))
    chosen, beside = next((each for each in given if each[0]), ([], {}))
    env = [*_referred(chosen, beside), *chosen]
    if any(each not in ([], chosen) for each, _ in given):
        return env, ("its containers name different API servers: the sidecar serves that of the first for all",)
    return env, ()


def _referred(chosen: list[JSON], beside: Mapping[str, JSON]) -> list[JSON]:
    """Return the variables that these refer to, directly or not, in their order."""
    needed: set[str] = set()
    left = list(chosen)
    while left:
        names = set(_REFERENCE.findall(str(left.pop().get("value")))) & beside.keys() - needed - {*SERVER}
        needed |= names
        left += [beside[name] for name in names]
    return [entry for name, entry in beside.items() if name in needed]


def with_account(pod: JSON) -> JSON:
    """Return a manifest with the account and token that the ServiceAccount admission sets before any webhook.

    As ``plugin/pkg/admission/serviceaccount`` in Kubernetes does for an account with default settings.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict) or not is_readable(spec) or spec.get("automountServiceAccountToken") is False:
        return pod
    changed = copy.deepcopy(pod)
    changed["spec"].setdefault("serviceAccountName", "default")  # a volume with its token is invalid without
    missing = [each for each in containers(changed["spec"]) if not any(True for _ in at_account_path(each))]
    for each in missing:
        mount = {"name": _TOKEN_VOLUME, "mountPath": ACCOUNT_PATH, "readOnly": True}
        each["volumeMounts"] = [*(each.get("volumeMounts") or []), mount]
    if missing:
        volume = {"name": _TOKEN_VOLUME, "projected": {"sources": [dict(each) for each in _TOKEN_SOURCES]}}
        changed["spec"]["volumes"] = [*(changed["spec"].get("volumes") or []), volume]
    return changed


__all__ = ["INJECTED", "OPTIONS", "Injected", "inject", "with_account"]

INJECTED: Final = "backoff-ctrl.dev/injected"
"""The annotation of a pod that got the sidecar; its value is the sidecar's image."""
OLDEST: Final = (1, 29)
"""The first minor version of Kubernetes with native sidecars on by default."""
_OS_LABELS: Final = ("kubernetes.io/os", "beta.kubernetes.io/os")


@dataclass(frozen=True, slots=True)
class Injected:
    """The outcome for a pod: ``pod`` with the sidecar, or None if it stays unchanged.

    ``outcome`` is a word for counting: ``injected``, ``present``, ``host-network``, ``windows``, ``old-server``,
    ``no-account``, ``taken``, ``unreadable``, or ``failed``, after an internal error. ``warnings`` are shown to the
    creator of the pod.
    """

    outcome: str
    pod: JSON | None = None
    warnings: tuple[str, ...] = ()


def inject(pod: JSON, settings: SidecarSettings, server: tuple[int, int] | None = None) -> Injected:
    """Return a pod with the sidecar; ``pod`` itself stays unchanged. ``server``: its version; None: unknown."""
    spec = pod.get("spec")
    if not isinstance(spec, dict) or not is_readable(spec):
        return Injected("unreadable")  # the server says what is wrong with it
    if sidecar_in(spec) is not None:
        return _joined(pod)
    if why := _left_alone(spec, server):
        outcome, sentence = why
        return Injected(outcome, warnings=(f"backoff-ctrl put no sidecar into this pod: {sentence}",))
    account = next(mount for each in containers(spec) for mount in account_mounts(spec, each))
    changed = copy.deepcopy(pod)
    asked = wishes(changed, settings)
    found, doubts = server_of(changed["spec"])
    ports = _free_ports(changed["spec"])
    for each in containers(changed["spec"]):
        redirect(changed["spec"], each, ports[0])
    sidecar = container(
        asked.settings,
        account=token_mount(account, ACCOUNT_PATH),
        ports=ports,
        resources=sidecar_resources(spec, asked.settings),
        env=found,
        options=asked.args,
    )
    sidecar["env"] += asked.env  # of two the last counts
    changed["spec"]["initContainers"] = [sidecar, *(changed["spec"].get("initContainers") or [])]
    changed["spec"]["volumes"] = [*(changed["spec"].get("volumes") or []), *volumes()]
    metadata = changed.get("metadata") or {}
    changed["metadata"] = {**metadata, "annotations": {**(metadata.get("annotations") or {}), INJECTED: settings.image}}
    return Injected("injected", changed, (*asked.warnings, *doubts))


def _joined(pod: JSON) -> Injected:
    """Point containers that another webhook has added since to the sidecar, too, and start it before them.

    A pod whose sidecar was written by hand stays unchanged.
    """
    ours = INJECTED in annotations_of(pod)
    late = [each for each in containers(pod["spec"]) if each.get("name") != NAME and account_mounts(pod["spec"], each)]
    if not ours or not late or _taken(pod["spec"], joining=True):
        return Injected("present")
    changed = copy.deepcopy(pod)
    spec = changed["spec"]
    sidecar = sidecar_in(spec)
    port = None if sidecar is None else port_of(sidecar)
    if sidecar is None or port is None:
        return Injected("present")
    names = {each.get("name") for each in late}
    before = spec["initContainers"][: spec["initContainers"].index(sidecar)]
    if any(each.get("name") in names for each in before):
        spec["initContainers"] = [sidecar, *(each for each in spec["initContainers"] if each is not sidecar)]
    for each in containers(spec):
        if each is not sidecar:
            redirect(spec, each, port)
    return Injected("present", changed)


def _left_alone(spec: Mapping[str, Any], server: tuple[int, int] | None) -> tuple[str, str] | None:
    """Return why a pod can't have a sidecar: a word and a sentence; None: it can."""
    if server is not None and server < OLDEST:
        return "old-server", f"Kubernetes {server[0]}.{server[1]} has no native sidecars; they need 1.29 or later"
    if spec.get("hostNetwork"):
        return "host-network", "it uses the node's network, where the sidecar's ports would be the node's"
    if _is_for_windows(spec):
        return "windows", "the sidecar's image is for Linux"
    if not any(account_mounts(spec, each) for each in containers(spec)):
        return "no-account", (
            "no container mounts a service account, with token and ca.crt (automountServiceAccountToken: false?)"
        )
    taken = _taken(spec)
    return ("taken", taken) if taken else None


def _is_for_windows(spec: Mapping[str, Any]) -> bool:
    systems = [(spec.get("os") or {}).get("name"), *map((spec.get("nodeSelector") or {}).get, _OS_LABELS)]
    return "windows" in systems or bool((spec.get("securityContext") or {}).get("windowsOptions"))


def _taken(spec: Mapping[str, Any], *, joining: bool = False) -> str:
    """Return which name or path of the sidecar the pod uses for something else: the server would refuse duplicates."""
    if not joining:
        if any(each.get("name") == NAME for each in containers(spec)):
            return f"one of its containers is named {NAME} but is not our sidecar: rename it"
        for each in spec.get("volumes") or ():
            if each.get("name") in {ACCOUNT_VOLUME, AUTHORITY_VOLUME}:
                return f"one of its volumes is named {each['name']}: rename it"
    for each in containers(spec):
        paths = {str(mount.get("mountPath")).rstrip("/") for mount in each.get("volumeMounts") or ()}
        if TOKEN_PATH in paths and account_mounts(spec, each):
            return f"container {each.get('name')} mounts something at {TOKEN_PATH}, where its token would be"
    return ""


def _free_ports(spec: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return ports for creators, for probes and for the status that no container of the pod declares."""
    declared = (port.get("containerPort") for each in containers(spec) for port in each.get("ports") or ())
    taken = {number for number in declared if isinstance(number, int)}
    found = []
    for first in (PORT, PROBE_PORT, STATUS_PORT):
        free = next(number for number in range(first, first + len(taken) + 1) if number not in taken)
        taken.add(free)
        found.append(free)
    return found[0], found[1], found[2]
