"""Paths that are not resources: health, version, discovery, reviews, and the sandbox's own controls."""

from __future__ import annotations

from typing import Any

from backoff_ctrl.k8s.sandbox.core import Core
from backoff_ctrl.k8s.sandbox.faults import FaultError
from backoff_ctrl.k8s.sandbox.http.bodies import read_body, read_json
from backoff_ctrl.k8s.sandbox.http.discovery import AGGREGATED, REVIEWS, VERSION, document, wants_aggregated
from backoff_ctrl.k8s.sandbox.http.openapi import OpenApi
from backoff_ctrl.k8s.sandbox.objects.answers import bad_request, method_not_allowed
from backoff_ctrl.k8s.sandbox.objects.metadata import timestamp
from backoff_ctrl.k8s.sandbox.objects.texts import JSON, dump

Reply = tuple[int, bytes, str]


_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_JSON = "application/json"
_USER = {"username": "sandbox", "groups": ["system:masters", "system:authenticated"]}
_ALIVE = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_PUBLIC = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version",
           "/version/"]  # fmt: skip
# The rules of a cluster-admin: the role's own, and those that Kubernetes grants to everyone.
_RULES: JSON = {
    "resourceRules": [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
         "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
        {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
    ],
    "nonResourceRules": [
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
        {"verbs": ["get"], "nonResourceURLs": _PUBLIC},
        {"verbs": ["get"], "nonResourceURLs": _ALIVE},
    ],
    "incomplete": False,
}  # fmt: skip


def special(core: Core, openapi: OpenApi, method: str, path: str, headers: dict[str, str], data: bytes) -> Reply | None:
    """Answer a path that is not a resource with (code, body, content type); None for a resource."""
    page = _page(core, openapi, method, path, data)
    if page is not None:
        return page
    parts = path.strip("/").split("/")
    if parts[0] == "apis" and len(parts) == 4 and parts[3] in REVIEWS.get((parts[1], parts[2]), {}):
        return 201, dump(_review(method, parts[3], read_body(data, headers["content-type"]), core.clock())), _JSON
    is_document = parts in (["api"], ["apis"], ["api", "v1"]) or (parts[0] == "apis" and len(parts) <= 3)
    if not is_document:
        return None
    if method not in {"GET", "HEAD"}:
        raise method_not_allowed()
    aggregated = len(parts) == 1 and wants_aggregated(headers["accept"])
    return 200, dump(document(core.kinds, path, aggregated=aggregated)), AGGREGATED if aggregated else _JSON


def _page(core: Core, openapi: OpenApi, method: str, path: str, data: bytes) -> Reply | None:
    """Pages that have nothing to do with kinds."""
    if path in _HEALTH:
        return 200, b"ok", "text/plain; charset=utf-8"
    if path in {"/version", "/version/"}:
        return 200, dump(VERSION), _JSON
    if path.startswith("/openapi/"):
        return 200, openapi.page(path), _JSON
    if path == "/sandbox" or path.startswith("/sandbox/"):
        return 200, dump(_control(core, method, path, data)), _JSON
    return None


def _control(core: Core, method: str, path: str, data: bytes) -> JSON:
    """Faults and counters over HTTP.

    GET /sandbox/faults shows the faults, POST (a JSON object) sets some, DELETE clears all; GET /sandbox/counters
    shows the counters, DELETE resets them; POST /sandbox/compact forgets all history, so that watches from older
    versions get 410; POST /sandbox/recount recounts all quotas.
    """
    if path == "/sandbox/faults":
        if method == "POST":
            _set_faults(core, read_json(data))
        elif method == "DELETE":
            core.faults.clear()
        return dict(core.faults.as_json())
    if path == "/sandbox/counters":
        if method == "DELETE":
            core.counters.reset()
        return dict(core.counters.as_json())
    if path in {"/sandbox/compact", "/sandbox/recount"} and method == "POST":
        if path.endswith("compact"):
            core.store.compact()
        else:
            core.controller.recount_all()
        return {"done": path.rpartition("/")[2]}
    controls = ["/sandbox/faults", "/sandbox/counters", "/sandbox/compact", "/sandbox/recount"]
    return {"controls": controls}


def _set_faults(core: Core, body: Any) -> None:
    if not isinstance(body, dict):
        raise bad_request("faults must be a JSON object of names and numbers")
    try:
        core.faults.change(body)
    except FaultError as error:
        raise bad_request(str(error)) from error


def _review(method: str, plural: str, body: Any, now: float) -> JSON:
    """The user and its permissions: the sandbox has no RBAC, so every user is a cluster-admin."""
    if method != "POST":
        raise method_not_allowed()
    review = body if isinstance(body, dict) else {}
    metadata = review.get("metadata") or {}
    if plural == "selfsubjectreviews":
        metadata = {**metadata, "creationTimestamp": timestamp(now)}
        return {**review, "metadata": metadata, "status": {"userInfo": _USER}}
    if plural == "selfsubjectrulesreviews":
        return {**review, "metadata": metadata, "spec": {}, "status": _RULES}
    return {**review, "metadata": metadata, "status": {"allowed": True, "reason": "the sandbox has no RBAC"}}
