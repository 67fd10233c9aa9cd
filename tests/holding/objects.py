"""Pods and quotas as a server returns them, for tests of ``holders``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

JSON = dict[str, Any]
NOW = datetime(2026, 11, 21, 14, 0, 0, tzinfo=UTC)


def at(seconds: float) -> str:
    """Return the timestamp of ``NOW`` plus these seconds."""
    return f"{NOW + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def pod(name: str, owner: str = "", *, cpu: str = "1", status: JSON | None = None, **metadata: Any) -> JSON:
    """Return a pod; ``owner`` is ``Kind/name``."""
    kind, _, whose = owner.partition("/")
    references = [{"kind": kind, "name": whose, "controller": True}] if owner else []
    spec: JSON = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], "nodeName": "n1"}
    if "deadline" in metadata:
        spec["activeDeadlineSeconds"] = metadata.pop("deadline")
    named = {"name": name, "creationTimestamp": at(-7200), "ownerReferences": references}
    return {"metadata": {**named, **metadata}, "spec": spec, "status": status or {}}


def quota(hard: JSON, used: JSON) -> JSON:
    """Return the quota ``compute``, enforced, with these amounts."""
    return {"metadata": {"name": "compute"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}}
