"""The forms in which creators write and read objects: what of them is read, marked and asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.charges.resources import CLAIMS, PODS, SERVICES
from backoff_ctrl.k8s.creates.naming import CREATE_ID
from backoff_ctrl.k8s.proxy.payloads.marking import OURS, Mark, marked
from backoff_ctrl.k8s.proxy.payloads.payload import Form, Payload, PayloadError
from backoff_ctrl.k8s.proxy.payloads.reading import read

if TYPE_CHECKING:
    from backoff_ctrl.k8s.answers.answer import Reader
    from backoff_ctrl.k8s.proxy.messages import Request

JSON: Final = b"application/json"
PROTOBUF: Final = b"application/vnd.kubernetes.protobuf"
EXPECTED: Final = {
    PODS: ("v1", "Pod"),
    CLAIMS: ("v1", "PersistentVolumeClaim"),
    SERVICES: ("v1", "Service"),
}
"""What a protobuf body is that does not say it."""
UNCHARGED: Final = ("volumes", "imagePullSecrets", "hostAliases", "tolerations", "nodeSelector")
READ_MAX: Final = 512 * 1024
"""Bytes of a body that is read, and changed: 20 ms, in which nobody else is served. Pods have some kilobytes."""
_OF_CONTAINERS: Final = ("name", "resources", "restartPolicy")


def manifest_in(request: Request, resource: str) -> dict[str, Any] | None:
    """Return metadata and charged fields of what a request creates; None if it can't be read."""
    payload = _payload(request)
    if request.head.get(b"content-encoding") is not None or len(request.body) > READ_MAX:
        return None
    try:
        found = read(payload, EXPECTED.get(resource, ("", "")))
    except PayloadError:
        return None
    if found is None or payload.form is Form.PROTOBUF:
        return found
    return lean(found) if resource == PODS else found


def lean(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's manifest without what is never charged, and may be long: it is kept for as long as it waits."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    kept = {key: value for key, value in spec.items() if key not in UNCHARGED}
    for name in ("containers", "initContainers"):
        if isinstance(spec.get(name), list):
            kept[name] = [_lean_container(each) for each in spec[name]]
    return {**pod, "spec": kept}


def _lean_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    return {key: value for key, value in container.items() if key in _OF_CONTAINERS}


def may_be_marked(request: Request, manifest: dict[str, Any]) -> bool:
    """Say whether ``marked_body`` will succeed: before a name is drawn that could not be sent."""
    if _payload(request).form is Form.YAML:  # whether its text can be changed shows only when that is tried
        return _marked(request, Mark("x", {CREATE_ID: "x"}, OURS)) is not None
    metadata = manifest.get("metadata")
    if metadata is None:
        return _payload(request).form is Form.JSON
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else False
    return annotations is None or (
        isinstance(annotations, dict) and all(isinstance(each, str) for each in annotations.values())
    )


def marked_body(request: Request, name: str, annotations: dict[str, str]) -> bytes:
    """Return a request's bytes with our annotations, and the name if it is not empty. Only its metadata changes.

    Raises ``ValueError`` if that can't be done: see ``may_be_marked``.
    """
    ours = {key: value for key, value in annotations.items() if key in OURS}
    body = _marked(request, Mark(name, ours, OURS))
    if body is None:
        raise ValueError("a create whose name was drawn can't be marked with it")
    return body


def _marked(request: Request, mark: Mark) -> bytes | None:
    try:
        payload = marked(_payload(request), mark)
    except PayloadError:
        return None
    return None if payload is None else payload.body


def reader_of(content_type: bytes | None) -> Reader | None:
    """Return what reads the object in an answer; None: it is JSON, or a text."""
    form = Payload(b"", content_type).form
    return None if form is None or form is Form.JSON else partial(_read, content_type)


def _read(content_type: bytes | None, body: bytes) -> dict[str, Any] | None:
    try:
        return read(Payload(body, content_type))
    except PayloadError:
        return None


def readable(accepted: bytes | None) -> bytes:
    """Return those of the forms that a creator accepts in which an object of its own can be recognised."""
    kept = (each.strip() for each in (accepted or b"").split(b","))
    return b",".join(each for each in kept if each.startswith((JSON, PROTOBUF)) and b"as=" not in each) or JSON


def _payload(request: Request) -> Payload:
    return Payload(request.body, request.head.get(b"content-type"))
