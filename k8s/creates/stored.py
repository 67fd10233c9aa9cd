"""What a 201 says about the stored object: its charge, and how the watch will report its end. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backoff_ctrl.engine.outcomes import Created
from backoff_ctrl.k8s.charges.footprint import FootprintError
from backoff_ctrl.k8s.charges.kinds import PODS
from backoff_ctrl.k8s.charges.live import ENDED
from backoff_ctrl.k8s.charges.remembered import remembered_footprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.answers.answer import Answer


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
