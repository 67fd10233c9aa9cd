"""Puts the sidecar into a pod: what becomes of each container, and why a pod is left as it is. Pure.

A container that mounts a service account gets the sidecar's account directory in its place, where ``ca.crt`` is the
sidecar's and ``token`` a link to the real one, and finds the sidecar by ``KUBERNETES_SERVICE_HOST`` and ``_PORT``.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.answers.fields import annotations_of

from .accounts import account_mounts, containers, is_readable, redirect, server_of, token_mount, with_account
from .annotations import OPTIONS, wishes
from .quality import sidecar_resources
from .sidecar import (
    ACCOUNT_PATH,
    ACCOUNT_VOLUME,
    AUTHORITY_VOLUME,
    JSON,
    NAME,
    PORT,
    PROBE_PORT,
    TOKEN_PATH,
    container,
    port_of,
    sidecar_in,
    volumes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .sidecar import SidecarSettings

__all__ = ["INJECTED", "OPTIONS", "Injected", "inject", "with_account"]

INJECTED: Final = "backoff-ctrl.dev/injected"
"""The annotation of a pod that got the sidecar; its value is the sidecar's image."""
OLDEST: Final = (1, 29)
"""The first minor version of Kubernetes with native sidecars on by default."""
_OS_LABELS: Final = ("kubernetes.io/os", "beta.kubernetes.io/os")


@dataclass(frozen=True, slots=True)
class Injected:
    """What became of a pod: ``pod`` with the sidecar, or None where it is left as it is.

    ``outcome`` is a word for counting: ``injected``, ``present``, ``host-network``, ``windows``, ``old-server``,
    ``no-account``, ``taken``, ``unreadable``, or ``failed``, where our own code did. ``warnings`` are shown to whoever
    created the pod.
    """

    outcome: str
    pod: JSON | None = None
    warnings: tuple[str, ...] = ()


def inject(pod: JSON, settings: SidecarSettings, server: tuple[int, int] | None = None) -> Injected:
    """Return a pod with the sidecar; ``pod`` itself stays as it is. ``server``: its version; None: not known."""
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
    """Let containers that another webhook has added since find the sidecar, too; it starts before those that do.

    A pod whose sidecar was written by hand is left as it is.
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
    """Say why a pod can't have a sidecar: a word and a sentence; None: it can."""
    if server is not None and server < OLDEST:
        return "old-server", f"Kubernetes {server[0]}.{server[1]} has no native sidecars, 1.29 and newer have"
    if spec.get("hostNetwork"):
        return "host-network", "it uses the node's network, where the sidecar's ports would be the node's"
    if _is_for_windows(spec):
        return "windows", "the sidecar's image is for Linux"
    if not any(account_mounts(spec, each) for each in containers(spec)):
        return "no-account", (
            "none of its containers mounts a service account, with token and ca.crt "
            "(automountServiceAccountToken: false?)"
        )
    taken = _taken(spec)
    return ("taken", taken) if taken else None


def _is_for_windows(spec: Mapping[str, Any]) -> bool:
    systems = [(spec.get("os") or {}).get("name"), *map((spec.get("nodeSelector") or {}).get, _OS_LABELS)]
    return "windows" in systems or bool((spec.get("securityContext") or {}).get("windowsOptions"))


def _taken(spec: Mapping[str, Any], *, joining: bool = False) -> str:
    """Say which name or place of the sidecar the pod uses for something else: the server would refuse two of one."""
    if not joining:
        if any(each.get("name") == NAME for each in containers(spec)):
            return f"one of its containers is named {NAME} but is not our sidecar: rename it"
        for each in spec.get("volumes") or ():
            if each.get("name") in {ACCOUNT_VOLUME, AUTHORITY_VOLUME}:
                return f"one of its volumes is called {each['name']}: call it otherwise"
    for each in containers(spec):
        paths = {str(mount.get("mountPath")).rstrip("/") for mount in each.get("volumeMounts") or ()}
        if TOKEN_PATH in paths and account_mounts(spec, each):
            return f"container {each.get('name')} mounts something at {TOKEN_PATH}, where its token would be"
    return ""


def _free_ports(spec: Mapping[str, Any]) -> tuple[int, int]:
    """Return ports for creators and for probes that no container of the pod declares."""
    declared = (port.get("containerPort") for each in containers(spec) for port in each.get("ports") or ())
    taken = {number for number in declared if isinstance(number, int)}
    port = next(number for number in range(PORT, PORT + len(taken) + 1) if number not in taken)
    taken.add(port)
    return port, next(number for number in range(PROBE_PORT, PROBE_PORT + len(taken) + 1) if number not in taken)
