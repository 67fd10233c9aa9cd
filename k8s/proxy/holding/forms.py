"""The forms in which creators write and read objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from backoff_ctrl.k8s.answers.answer import Reader
    from backoff_ctrl.k8s.proxy.messages import Request

from backoff_ctrl.k8s.creates.naming import CREATE_ID

JSON: Final = b"application/json"
PROTOBUF: Final = b"application/vnd.kubernetes.protobuf"


class Forms:
    """Reads manifests and answers, and marks manifests."""

    def manifest(self, request: Request) -> dict[str, Any] | None:
        """Return the metadata and the charged fields of a request's object; None if it can't be read."""
        if media_type(request.head.get(b"content-type")) not in (JSON, b""):
            return None
        try:
            found = json.loads(request.body)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def marked(self, request: Request, name: str | None, create_id: str) -> bytes:
        """Return a request's bytes with the create id, and the name where it has none."""
        found = json.loads(request.body)
        metadata = found.setdefault("metadata", {})
        if name is not None:
            metadata["name"] = name
        metadata["annotations"] = {**(metadata.get("annotations") or {}), CREATE_ID: create_id}
        return json.dumps(found, separators=(",", ":")).encode()

    def reader(self, content_type: bytes | None) -> Reader | None:  # noqa: ARG002
        """Return what reads the object in an answer; None: it is JSON."""
        return None

    def accept(self, accepted: bytes | None) -> bytes:  # noqa: ARG002
        """Return those of the forms that a creator accepts in which an object of its own can be recognised."""
        return JSON


def media_type(content_type: bytes | None) -> bytes:
    """Return a content type without its parameters, in lower case."""
    return (content_type or b"").partition(b";")[0].strip().lower()
