"""The sidecar that is put into a pod: its container, its volumes, and what platform and pod may set. Pure.

The container is a native sidecar of Kubernetes (``restartPolicy: Always`` in ``initContainers``, on by default since
1.29) and meets the restricted Pod Security Standard. Its requests and limits keep the pod's quality of service
(``pkg/apis/core/v1/helper/qos/qos.go``: cpu and memory count). A pod's annotations set some of its options; a wrong
value gives a warning, and the default applies.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.gate.creates.creation import MODES
from backoff_ctrl.k8s.gate.settings import STATUS
from backoff_ctrl.k8s.kube.answers.fields import annotations_of, mapping, mapping_in

JSON: TypeAlias = dict[str, Any]

NAME: Final = "backoff-ctrl"
"""The container's name: a pod that has it stays unchanged."""
ACCOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The path where every client looks for its token and the cluster's ``ca.crt``."""
TOKEN_PATH: Final = "/var/run/backoff-ctrl/token"  # noqa: S105 - a directory
AUTHORITY_VOLUME: Final = "backoff-ctrl-authority"
ACCOUNT_VOLUME: Final = "backoff-ctrl-account"
_AUTHORITY_PATH: Final = "/var/run/backoff-ctrl/authority"
_ACCOUNT_PATH: Final = "/var/run/backoff-ctrl/account"
"""The directory that the sidecar writes, which the creator sees as its account directory."""
USER: Final = 65532
"""Numeric, so that ``runAsNonRoot`` can be checked without reading the image."""
PORT: Final = 6443
PROBE_PORT: Final = 9096
STATUS_PORT: Final = 9097
"""The port of the sidecar's status API, for this pod alone: 9095 may be that of a gate in one of its programs."""
_ADMIN: Final = "--admin="
_POD: Final[tuple[JSON, ...]] = tuple(
    {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{field}"}}}
    for name, field in (("POD_NAME", "name"), ("POD_NAMESPACE", "namespace"), ("POD_UID", "uid"))
)
"""By which the sidecar knows its pod, the subject of its events."""
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
    """Return the sidecar of a pod, which the webhook or a person has put there, or None."""
    for each in spec.get("initContainers") or ():
        if each.get("name") == NAME and each.get("restartPolicy") == "Always":
            found: JSON = each
            return found
    return None


def port_of(sidecar: Mapping[str, Any]) -> int | None:
    """Return the port where a sidecar of ours listens for creators; None: it is not ours."""
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
    ports: tuple[int, int, int],
    resources: JSON,
    env: Iterable[Mapping[str, Any]],
    options: Iterable[str],
) -> JSON:
    """Return the sidecar. ``account`` mounts its service account. ``env``: where it finds the API server.

    ``ports``: where creators, probes and commands find it. Commands in the container, such as ``backoff-ctrl waiting``,
    read where its status is from the variable by which it is served, and the token from what only the sidecar mounts.

    Its startup probe shows that it listens and its certificates are written, not that the API server answers: an
    unreachable API server must not keep pods from starting. It has no readiness probe: that of a sidecar counts for the
    whole pod, and an outage would take applications out of their Services.
    """
    port, probe_port, status_port = ports
    admin = next((each.removeprefix(_ADMIN) for each in settings.args if each.startswith(_ADMIN)), None)
    told = {STATUS: admin or f"127.0.0.1:{status_port}", "XDG_RUNTIME_DIR": _AUTHORITY_PATH}
    own = [*copy.deepcopy(_POD), *({"name": name, "value": value} for name, value in told.items())]
    given = [*env]
    taken = {each["name"] for each in (*given, *settings.env)}
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
        "env": [*given, *(each for each in own if each["name"] not in taken), *settings.env],
        "ports": [{"name": NAME, "containerPort": probe_port, "protocol": "TCP"}],
        "resources": resources,
        # It listens for probes at once, and answers once it has started: the first probe waits for that.
        "startupProbe": {
            **_probe("/startupz", probe_port, every=1, tries=120),
            "initialDelaySeconds": 1,
            "timeoutSeconds": 10,
        },
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


_COUNTED: Final = ("cpu", "memory")
KNOWN: Final = (*_COUNTED, "ephemeral-storage")
"""The resources that a sidecar may request: it needs no others, and the server refuses unknown names."""


class Quality(StrEnum):
    """A pod's quality of service, by its Kubernetes name."""

    BEST_EFFORT = "BestEffort"
    BURSTABLE = "Burstable"
    GUARANTEED = "Guaranteed"


def quality_of(spec: Mapping[str, Any]) -> Quality:
    """Return the quality of a pod's spec. An unreadable amount counts as given: the server will report the error."""
    if isinstance(own := spec.get("resources"), dict) and any(own.values()):  # of the pod as a whole, since 1.34
        return Quality.GUARANTEED if _is_guaranteed(own) else Quality.BURSTABLE
    asked = list(_resources(spec))
    if not any(_amounts(each, part) for each in asked for part in ("requests", "limits")):
        return Quality.BEST_EFFORT
    return Quality.GUARANTEED if all(map(_is_guaranteed, asked)) else Quality.BURSTABLE


def sidecar_resources(spec: Mapping[str, Any], settings: SidecarSettings) -> dict[str, dict[str, str]]:
    """Return the sidecar's requests and limits in a pod of this spec.

    It always has cpu and memory, since a quota of ``limits.*`` answers "must specify" otherwise, with three exceptions.
    In a BestEffort pod, which such a quota refuses anyway, it has no amounts: other quotas would apply to the pod then.
    In a Guaranteed pod requests and limits are equal. It has no amounts of the resources that the pod has as a whole,
    which its containers share.
    """
    quality = quality_of(spec)
    if quality is Quality.BEST_EFFORT:
        return {}
    whole = {name for amounts in _parts(spec.get("resources")) for name in amounts}
    limits = {name: amount for name, amount in settings.limits.items() if name not in whole}
    asked = {name: amount for name, amount in settings.requests.items() if name not in whole}
    requests = limits if quality is Quality.GUARANTEED else {**limits, **asked}
    found = {"requests": dict(requests), "limits": limits}
    return {part: amounts for part, amounts in found.items() if amounts}


def wrong_amounts(requests: Mapping[str, str], limits: Mapping[str, str]) -> str:
    """Return what is wrong with the amounts of a sidecar, or an empty text.

    With wrong ones all its pods are refused.
    """
    found: dict[str, dict[str, int]] = {"requests": {}, "limits": {}}
    for part, given in (("requests", requests), ("limits", limits)):
        for name, amount in given.items():
            if name not in KNOWN:
                return f"{part}: {name!r} is not one of {', '.join(KNOWN)}"
            try:
                found[part][name] = parse_quantity(amount)
            except QuantityError as error:
                return f"{part}: {name}: {error}"
            if found[part][name] < (part == "limits"):
                return f"{part}: {name} must be {'more than 0' if part == 'limits' else '0 or more'}, not {amount}"
    for name, amount in requests.items():
        if found["requests"][name] > found["limits"].get(name, found["requests"][name]):
            return f"requests: {name} {amount} is more than its limit, {limits[name]}"
    return ""


def _parts(resources: object) -> Iterator[Mapping[str, object]]:
    """Yield the requests and the limits of resources."""
    yield from (mapping(mapping(resources).get(part)) for part in ("requests", "limits"))


def _resources(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key in ("initContainers", "containers"):
        for each in spec.get(key) or ():
            yield mapping_in(each, "resources")


def _is_guaranteed(resources: Mapping[str, Any]) -> bool:
    limits, requests = _amounts(resources, "limits"), _amounts(resources, "requests")
    return set(limits) == set(_COUNTED) and all(requests.get(name, limits[name]) == limits[name] for name in limits)


def _amounts(resources: Mapping[str, Any], part: str) -> dict[str, object]:
    """Return the counted amounts of ``requests`` or ``limits`` above zero; an invalid quantity as its text."""
    found = mapping(resources.get(part))
    given = {name: found[name] for name in _COUNTED if found.get(name) is not None}
    amounts = {name: _amount(value) for name, value in given.items()}
    return {name: amount for name, amount in amounts.items() if amount != 0}


def _amount(value: object) -> object:
    try:
        return parse_quantity(str(value))
    except QuantityError:
        return value


OPTIONS: Final[Mapping[str, str]] = {
    "backoff-ctrl.dev/hold": "--hold",
    "backoff-ctrl.dev/hold-total": "--hold-total",
    "backoff-ctrl.dev/answer": "--answer",
    "backoff-ctrl.dev/mode": "BACKOFF_CTRL_MODE",
    "backoff-ctrl.dev/requests": "requests",
    "backoff-ctrl.dev/limits": "limits",
}
"""The annotations, and what each sets: an option, a variable, or amounts of the sidecar."""
_ANSWERS: Final = frozenset({"wait", "error", "quota"})
_DAY: Final = 86_400


@dataclass
class Wishes:
    """The settings in annotations. ``settings``: those of the platform, with the pod's own amounts."""

    settings: SidecarSettings
    args: list[str] = field(default_factory=list)
    env: list[JSON] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def wishes(pod: Mapping[str, Any], settings: SidecarSettings) -> Wishes:
    annotations = annotations_of(pod)
    found = Wishes(settings)
    for name, option in OPTIONS.items():
        value = annotations.get(name)
        if value is None or option in {"requests", "limits"}:
            continue
        if wanted := _wanted(option, value):
            found.warnings.append(f"annotation {name}: must be {wanted}, not {value!r}; the default applies")
        elif option.startswith("--"):
            found.args.append(f"{option}={value}")
        else:
            found.env.append({"name": option, "value": value})
    _read_amounts(annotations, found)
    return found


def _wanted(option: str, value: object) -> str:
    """Return what a value must be; empty: it is valid."""
    if option == "--answer":
        return "" if value in _ANSWERS else "wait, error or quota"
    if option == "BACKOFF_CTRL_MODE":
        return "" if value in MODES else "enforce, shadow or off"
    return "" if _is_seconds(value) else "a number of seconds, 0 or more"


def _is_seconds(value: object) -> bool:
    try:
        return isinstance(value, str) and 0 <= float(value) <= _DAY
    except ValueError:
        return False


def _read_amounts(annotations: Mapping[str, Any], found: Wishes) -> None:
    """Read the sidecar's amounts, both parts at once: a request above its limit would have the pod refused."""
    read: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for name in (each for each, option in OPTIONS.items() if option in read and each in annotations):
        text = annotations[name]
        pairs = [each.partition("=") for each in text.split(",")] if isinstance(text, str) else [("", "", "")]
        if not all(amount for _, _, amount in pairs):
            found.warnings.append(f"annotation {name}: must be like cpu=100m,memory=128Mi; the default applies")
            return
        read[OPTIONS[name]] = {resource.strip(): amount.strip() for resource, _, amount in pairs}
    if any(read.values()):
        requests, limits = ({**getattr(found.settings, part), **given} for part, given in read.items())
        if wrong := wrong_amounts(requests, limits):
            found.warnings.append(f"annotations {' and '.join(_of(read))}: {wrong}; the default applies")
            return
        found.settings = replace(found.settings, requests=requests, limits=limits)


def _of(read: Mapping[str, object]) -> list[str]:
    return [name for name, option in OPTIONS.items() if read.get(option)]
