"""What a pod says of its own sidecar, by its annotations. Pure. What says nothing sensible is warned of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.answers.fields import annotations_of
from backoff_ctrl.k8s.creates.creation import MODES

from .quality import wrong_amounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .sidecar import JSON, SidecarSettings

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
    """What the annotations ask for. ``settings``: those of the platform, with the pod's own amounts."""

    settings: SidecarSettings
    args: list[str] = field(default_factory=list)
    env: list[JSON] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def wishes(pod: Mapping[str, Any], settings: SidecarSettings) -> Wishes:
    """Read the annotations of a pod."""
    annotations = annotations_of(pod)
    found = Wishes(settings)
    for name, option in OPTIONS.items():
        value = annotations.get(name)
        if value is None or option in {"requests", "limits"}:
            continue
        if wanted := _wanted(option, value):
            found.warnings.append(f"annotation {name}: must be {wanted}, not {value!r}; the default holds")
        elif option.startswith("--"):
            found.args.append(f"{option}={value}")
        else:
            found.env.append({"name": option, "value": value})
    _read_amounts(annotations, found)
    return found


def _wanted(option: str, value: object) -> str:
    """Say what a value must be; empty: it is."""
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
            found.warnings.append(f"annotation {name}: must be like cpu=100m,memory=128Mi; the default holds")
            return
        read[OPTIONS[name]] = {resource.strip(): amount.strip() for resource, _, amount in pairs}
    if any(read.values()):
        requests, limits = ({**getattr(found.settings, part), **given} for part, given in read.items())
        if wrong := wrong_amounts(requests, limits):
            found.warnings.append(f"annotations {' and '.join(_of(read))}: {wrong}; the default holds")
            return
        found.settings = replace(found.settings, requests=requests, limits=limits)


def _of(read: Mapping[str, object]) -> list[str]:
    return [name for name, option in OPTIONS.items() if read.get(option)]
