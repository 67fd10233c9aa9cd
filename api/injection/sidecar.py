"""The sidecar that is put into a pod: its container, its volumes, and what the platform may set. Pure.

What stands where follows Kubernetes' native sidecars (``restartPolicy: Always`` in ``initContainers``, on by default
since 1.29) and its restricted Pod Security Standard.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

JSON: TypeAlias = dict[str, Any]

NAME: Final = "backoff-ctrl"
"""The container's name: who finds it in a pod leaves the pod as it is."""
ACCOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where every client looks for its token and the cluster's ``ca.crt``."""
TOKEN_PATH: Final = "/var/run/backoff-ctrl/token"  # noqa: S105 - a directory
AUTHORITY_VOLUME: Final = "backoff-ctrl-authority"
ACCOUNT_VOLUME: Final = "backoff-ctrl-account"
_AUTHORITY_PATH: Final = "/var/run/backoff-ctrl/authority"
_ACCOUNT_PATH: Final = "/var/run/backoff-ctrl/account"
"""Where the sidecar writes what the creator sees as its account directory."""
USER: Final = 65532
"""Numeric, so that ``runAsNonRoot`` can be checked without reading the image."""
PORT: Final = 6443
PROBE_PORT: Final = 9096
_LISTEN: Final = "--listen=127.0.0.1"
_RESTRICTED: Final[JSON] = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The restricted Pod Security Standard, and more."""


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """What the platform sets for all sidecars.

    ``requests`` and ``limits`` are Quantities by resource name. ``args`` are added to the command line of ``proxy``.
    """

    image: str = "ghcr.io/backoff-ctrl/backoff-ctrl:latest"
    pull_policy: str = ""
    requests: Mapping[str, str] = field(default_factory=lambda: {"cpu": "20m", "memory": "96Mi"})
    limits: Mapping[str, str] = field(default_factory=lambda: {"cpu": "1", "memory": "256Mi"})
    args: tuple[str, ...] = ()
    env: tuple[Mapping[str, Any], ...] = ()


def sidecar_in(spec: Mapping[str, Any]) -> JSON | None:
    """Return the sidecar of a pod, which the webhook or a person has put there; None: it has none."""
    for each in spec.get("initContainers") or ():
        if each.get("name") == NAME and each.get("restartPolicy") == "Always":
            found: JSON = each
            return found
    return None


def port_of(sidecar: Mapping[str, Any]) -> int | None:
    """Return the port where a sidecar of ours listens for creators; None: it is none of ours."""
    for each in sidecar.get("args") or ():
        option, _, port = str(each).rpartition(":")
        if option == _LISTEN and port.isdecimal():
            return int(port)
    return None


def volumes() -> list[JSON]:
    """Return the volumes that only the sidecar writes: its authority's key, and the creator's account directory."""
    return [
        {"name": AUTHORITY_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": ACCOUNT_VOLUME, "emptyDir": {"sizeLimit": "1Mi"}},
    ]


def container(
    settings: SidecarSettings,
    *,
    account: JSON,
    ports: tuple[int, int],
    resources: JSON,
    env: Iterable[Mapping[str, Any]],
    options: Iterable[str],
) -> JSON:
    """Return the sidecar. ``account`` mounts its service account. ``ports``: where creators and probes find it.

    ``env``: where it finds the API server.

    Its startup probe says that it listens and its certificates are written, not that the API server answers: an API
    server that is away must not keep pods from starting. It has no readiness probe: that of a sidecar counts for the
    whole pod, and an outage would take applications out of their Services.
    """
    port, probe_port = ports
    return {
        "name": NAME,
        "image": settings.image,
        **({"imagePullPolicy": settings.pull_policy} if settings.pull_policy else {}),
        "restartPolicy": "Always",
        "args": [
            "proxy",
            f"{_LISTEN}:{port}",
            f"--probe-listen=0.0.0.0:{probe_port}",
            "--listen-first",
            f"--tls-authority={_AUTHORITY_PATH}",
            f"--tls-account={_ACCOUNT_PATH}",
            f"--tls-token-volume={TOKEN_PATH}",
            *settings.args,
            *options,
        ],
        "env": [*env, *settings.env],
        "ports": [{"name": NAME, "containerPort": probe_port, "protocol": "TCP"}],
        "resources": resources,
        "startupProbe": _probe("/startupz", probe_port, every=1, tries=120),
        "livenessProbe": _probe("/livez", probe_port, every=10, tries=6),
        "securityContext": copy.deepcopy(_RESTRICTED),
        "volumeMounts": [
            {"name": AUTHORITY_VOLUME, "mountPath": _AUTHORITY_PATH},
            {"name": ACCOUNT_VOLUME, "mountPath": _ACCOUNT_PATH},
            account,
        ],
    }


def _probe(path: str, port: int, *, every: int, tries: int) -> JSON:
    """Return a probe of the sidecar; ``every`` in seconds."""
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": every,
        "timeoutSeconds": 5,
        "failureThreshold": tries,
    }
