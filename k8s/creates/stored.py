"""What a stored object says: whose it is, what it is charged, and how the watch will report its end. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from backoff_ctrl.engine.outcomes import Created
from backoff_ctrl.k8s.answers.answer import Answer
from backoff_ctrl.k8s.charges.footprint import FootprintError
from backoff_ctrl.k8s.charges.kinds import PODS
from backoff_ctrl.k8s.charges.live import ENDED
from backoff_ctrl.k8s.charges.remembered import remembered_footprint

from .naming import Named


class Found(StrEnum):
    """What a look-up found under the name."""

    OURS = "made by this create, or by an earlier one with its key"
    OTHERWISE = "made with this key, for another body"
    GOING = "being deleted"
    FOREIGN = "made by somebody else"


def whose(answer: Answer, named: Named) -> Found | None:
    """Say what a look-up found; None: its answer shows no object."""
    found = answer.json() if answer.ok else None
    if found is None:
        return None
    metadata = found.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    annotations = metadata.get("annotations")
    if metadata.get("deletionTimestamp"):
        return Found.GOING
    if not isinstance(annotations, dict) or not named.made(annotations):
        return Found.FOREIGN
    return Found.OTHERWISE if named.asked_otherwise(annotations) else Found.OURS


def created_as(answer: Answer, sent: Mapping[str, Any], resource: str) -> Created:
    """Turn a success into the engine's outcome. After defaults and webhooks the charge may not be that of ``sent``."""
    stored = answer.json()
    if stored is None or stored.get("kind") != sent.get("kind"):
        return Created()  # a table, or not an object at all
    uid = _uid_of_living(stored) if resource == PODS else ""
    try:
        return Created(remembered_footprint(stored, resource), uid)
    except FootprintError:
        return Created(None, uid)  # stored all the same; the engine keeps its estimate


def _uid_of_living(pod: Mapping[str, Any]) -> str:
    """Return the uid by which the watch reports the pod's end; empty if it will not, or the pod has ended already."""
    metadata, status = pod.get("metadata"), pod.get("status")
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    ended = isinstance(status, dict) and status.get("phase") in ENDED
    return uid if isinstance(uid, str) and not ended else ""
