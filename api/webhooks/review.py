"""AdmissionReview, in and out: the API server's request, and our answer to it; the whole answer about a pod. Pure.

That one is never a refusal: a pod that can't have the sidecar is created without it.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.kube.answers.bounded_json import read_json

from .mutation import INJECTED, Injected, inject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .sidecar import JSON, SidecarSettings

_logger = logging.getLogger("backoff_ctrl")
VERSION: Final = "admission.k8s.io/v1"
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|")
VALUES_MAX: Final = 500_000
"""Values in a review: each takes up to 0.25 kB of memory, and one of 8 MB may consist of millions. An API server stores
1.5 MiB, which real objects fill with a tenth as many."""
_told: Final[set[type[Exception]]] = set()
"""Errors whose traceback is in the log already: otherwise any client could fill the log."""


class ReviewError(ValueError):
    """The body is not an AdmissionReview; the message says why."""


def answer(body: bytes, settings: SidecarSettings, server: tuple[int, int] | None = None) -> tuple[JSON, str, Injected]:
    """Return the answer to a review, the pod's namespace, and the outcome for the pod. Raises ``ReviewError``."""
    request = request_in(body)
    pod = request.get("object")
    mine = request.get("operation") == "CREATE" and request.get("resource", {}).get("resource") == "pods"
    what = _injected(pod, settings, server) if mine and isinstance(pod, dict) else Injected("unreadable")
    patch = _patch(pod, what.pod) if what.pod is not None and isinstance(pod, dict) else ()
    return allowed(request, patch, what.warnings), namespace_of(request), what


def allowed(request: JSON, patch: Sequence[JSON] = (), warnings: Iterable[str] = ()) -> JSON:
    """Return the answer that lets a request pass: with an RFC 6902 patch, and with warnings for its sender."""
    response: JSON = {"uid": request["uid"], "allowed": True}
    if shown := [_short(each) for each in warnings]:
        response["warnings"] = shown
    if patch:
        written = json.dumps(patch, separators=(",", ":")).encode()
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(written).decode()}
    return {"apiVersion": VERSION, "kind": "AdmissionReview", "response": response}


def refused(request: JSON, code: int, reason: str, message: str) -> JSON:
    """Return the answer that refuses a request; ``code`` and ``reason`` are those of a Status of Kubernetes."""
    status = {"code": code, "reason": reason, "message": message}
    response = {"uid": request["uid"], "allowed": False, "status": status}
    return {"apiVersion": VERSION, "kind": "AdmissionReview", "response": response}


def namespace_of(request: JSON) -> str:
    return str(request.get("namespace") or "")


def note_bug(error: Exception, what: str) -> None:
    """Log an error that we did not expect; of each kind only the first one whole."""
    first, kind = type(error) not in _told, type(error).__name__
    _told.add(type(error))
    _logger.error("%s: %s", what, kind, exc_info=error if first else None)


def _injected(pod: JSON, settings: SidecarSettings, server: tuple[int, int] | None) -> Injected:
    try:
        return inject(pod, settings, server)
    except Exception as error:  # noqa: BLE001 - an unvalidated pod, or a bug of ours: it is created without the sidecar
        note_bug(error, "a pod could not be given its sidecar")
        return Injected("failed")


def request_in(body: bytes) -> JSON:
    """Return the request of a review. Raises ``ReviewError``."""
    values = sum(map(body.count, (b"{", b"[", b",")))
    if values > VALUES_MAX:
        raise ReviewError(f"the body has about {values} values, and may have {VALUES_MAX}")
    try:
        review: Any = read_json(body)
    except ValueError as error:
        raise ReviewError(f"the body is not JSON: {error}") from None
    request = review.get("request") if isinstance(review, dict) else None
    if not isinstance(request, dict) or review.get("apiVersion") != VERSION or not isinstance(request.get("uid"), str):
        raise ReviewError(f"the body is not an AdmissionReview of {VERSION} with a request and its uid")
    if not isinstance(request.get("resource", {}), dict):
        raise ReviewError("request.resource must be an object")
    if not _NAMESPACE.fullmatch(str(request.get("namespace") or "")):  # it becomes a label of the metrics
        raise ReviewError("request.namespace must be the name of a namespace")
    return request


def _patch(pod: JSON, changed: JSON) -> list[JSON]:
    """Return an RFC 6902 patch from one to the other: the few sections that an injection changes, each as a whole."""
    sections = ("containers", "initContainers", "volumes")
    patch = [
        {"op": "add", "path": f"/spec/{name}", "value": changed["spec"][name]}
        for name in sections
        if pod["spec"].get(name) != changed["spec"].get(name)
    ]
    metadata = pod.get("metadata")
    if not isinstance(metadata, dict):
        patch.append({"op": "add", "path": "/metadata", "value": changed["metadata"]})
    elif not isinstance(metadata.get("annotations"), dict):
        patch.append({"op": "add", "path": "/metadata/annotations", "value": changed["metadata"]["annotations"]})
    else:
        path = f"/metadata/annotations/{INJECTED.replace('~', '~0').replace('/', '~1')}"
        patch.append({"op": "add", "path": path, "value": changed["metadata"]["annotations"][INJECTED]})
    return patch


def _short(warning: str) -> str:
    return warning if len(warning) <= 240 else warning[:239] + "…"  # the server cuts what is longer than 256 bytes
