"""Builds events that the API server accepts (events.k8s.io/v1), and the patches that raise their count. Pure.

The rules come from Kubernetes' ``pkg/apis/core/validation/events.go``: a note has at most 1,024 bytes, a reporting
instance at most 128; action and reason are required; a series counts from 2. Only the series may change later.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final

from backoff_ctrl.k8s.creates.creation import Owner

from .stories import Happening

CONTROLLER: Final = "backoff-ctrl.dev/gate"
API_VERSION: Final = "events.k8s.io/v1"
LEFT_OUT: Final = "EventsLeftOut"
LEFT_OUT_NOTE: Final = (
    "Some events about creates that wait for quota were not written, to avoid flooding this namespace. The count of "
    "this event says how many."
)
_KINDS: Final = {
    Happening.WAITS: ("Warning", "Waiting"),
    Happening.NEVER_FITS: ("Warning", "Refusing"),
    Happening.ADMITTED: ("Normal", "Creating"),
    LEFT_OUT: ("Normal", "Counting"),
}
"""Type and action for each reason. Waiting and refusal are Warnings, like FailedScheduling and FailedCreate: people who
want to know why their work does not run look for Warnings.
"""
NOTE_MAX: Final = 1024
INSTANCE_MAX: Final = 128
NAME_MAX: Final = 253
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def instance_name(host: str, pid: int) -> str:
    """Return the reporting instance: host name and process id, the host name cut to fit ``INSTANCE_MAX``."""
    tail = f"-{pid}"
    return host.encode("ascii", "replace").decode()[: INSTANCE_MAX - len(tail)] + tail


def event_name(about: str, when: float, nonce: int) -> str:
    """Name an event as client-go does: the object's name and the time. ``nonce`` (16 bits) keeps processes apart."""
    tail = f".{int(when * 1_000_000):x}{nonce & 0xFFFF:04x}"
    prefix = about[: NAME_MAX - len(tail)].rstrip("-.")
    return (prefix if _SUBDOMAIN.fullmatch(prefix) else "backoff-ctrl") + tail


def micro_time(when: float) -> str:
    """Format seconds since the epoch as a Kubernetes MicroTime."""
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def regarding(namespace: str, owner: Owner | None) -> dict[str, str]:
    """Refer to the owner or, without one, to the namespace itself.

    Both references carry ``namespace``: the server requires an event to be in its object's namespace. A reference
    to a Namespace without that field would force the event into ``default``, where few accounts may write.
    """
    if owner is None:
        return {"apiVersion": "v1", "kind": "Namespace", "name": namespace, "namespace": namespace}
    made = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "namespace": namespace}
    return {**made, "uid": owner.uid} if owner.uid else made


def short_note(text: str) -> str:
    """Cut a note to ``NOTE_MAX`` bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= NOTE_MAX else data[: NOTE_MAX - 3].decode("utf-8", "ignore") + "..."


def series(count: int, last: float) -> dict[str, Any] | None:
    """Return an event's ``series``, or None for something that happened once. ``last``: seconds since the epoch."""
    return {"count": count, "lastObservedTime": micro_time(last)} if count > 1 else None


def event_body(
    namespace: str, owner: Owner | None, reason: str, note: str, instance: str, when: float, nonce: int
) -> dict[str, Any]:
    """Build the event. ``when``: seconds since the epoch; ``nonce``: see ``event_name``."""
    about = regarding(namespace, owner)
    type_, action = _KINDS[reason]
    return {
        "apiVersion": API_VERSION,
        "kind": "Event",
        "metadata": {"name": event_name(about["name"], when, nonce), "namespace": namespace},
        "eventTime": micro_time(when),
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
        "action": action,
        "reason": str(reason),
        "regarding": about,
        "note": short_note(note),
        "type": type_,
    }
