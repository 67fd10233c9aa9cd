"""Paths that are not resources: health, version, discovery, reviews, and the sandbox's own controls.

Discovery is one document per group and version. Clients that ask for the aggregated document take these instead.
"""

from __future__ import annotations

from backoff_ctrl.k8s.lab.sandbox.core import Core
from backoff_ctrl.k8s.lab.sandbox.faults import FaultError
from backoff_ctrl.k8s.lab.sandbox.objects.answers import bad_request, method_not_allowed, no_such_page
from backoff_ctrl.k8s.lab.sandbox.objects.kinds import NAMESPACES, VERBS, Kind, Kinds
from backoff_ctrl.k8s.lab.sandbox.objects.metadata import timestamp
from backoff_ctrl.k8s.lab.sandbox.objects.texts import JSON, dump

from .bodies import read_body
from .openapi import VERSION, OpenApi

Reply = tuple[int, bytes, str]

_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_JSON = "application/json"
_USER = {"username": "sandbox", "groups": ["system:masters", "system:authenticated"]}
# Reviews are answered and never stored, so the table of kinds does not contain them.
REVIEWS = {
    ("authorization.k8s.io", "v1"): {"selfsubjectaccessreviews": "SelfSubjectAccessReview"},
    ("authentication.k8s.io", "v1"): {"selfsubjectreviews": "SelfSubjectReview"},
}
_SUBRESOURCE_VERBS = {"finalize": ["update"], "log": ["get"]}  # all others: get, patch, update


def special(
    core: Core, openapi: OpenApi, method: str, path: str, data: bytes, content_type: str | None
) -> Reply | None:
    """Answer a path that is not a resource with (code, body, content type); None for a resource."""
    page = _page(core, openapi, method, path, data)
    if page is not None:
        return page
    parts = path.strip("/").split("/")
    if parts[0] == "apis" and len(parts) == 4 and parts[3] in REVIEWS.get((parts[1], parts[2]), {}):
        if method != "POST":
            raise method_not_allowed()
        return 201, dump(_review(parts[3], read_body(data, content_type), core.clock())), _JSON
    if parts not in (["api"], ["apis"], ["api", "v1"]) and not (parts[0] == "apis" and len(parts) <= 3):
        return None
    if method not in {"GET", "HEAD"}:
        raise method_not_allowed()
    return 200, dump(document(core.kinds, path)), _JSON


def _page(core: Core, openapi: OpenApi, method: str, path: str, data: bytes) -> Reply | None:
    """Pages that concern no kind."""
    if path in _HEALTH:
        return 200, b"ok", "text/plain; charset=utf-8"
    if path in {"/version", "/version/"}:
        return 200, dump(VERSION), _JSON
    if path == "/openapi/v2":  # Helm asks for it: an empty schema accepts every manifest
        return 200, b"", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
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
            try:
                core.faults.change(read_body(data, None))
            except FaultError as error:
                raise bad_request(str(error)) from error
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
    return {"controls": ["/sandbox/faults", "/sandbox/counters", "/sandbox/compact", "/sandbox/recount"]}


def _review(plural: str, review: JSON, now: float) -> JSON:
    """The user and its permissions: the sandbox has no RBAC, so every user is a cluster-admin."""
    metadata = review.get("metadata") or {}
    if plural == "selfsubjectreviews":
        metadata = {**metadata, "creationTimestamp": timestamp(now)}
        return {**review, "metadata": metadata, "status": {"userInfo": _USER}}
    return {**review, "metadata": metadata, "status": {"allowed": True, "reason": "the sandbox has no RBAC"}}


def verbs_of(kind: Kind) -> list[str]:
    """The verbs of a kind: namespaces cannot be deleted as a collection."""
    return [verb for verb in VERBS if kind != NAMESPACES or verb != "deletecollection"]


def document(kinds: Kinds, path: str) -> JSON:
    """The document at /api, /apis, /api/v1, /apis/G or /apis/G/V. Raises 404."""
    parts = path.strip("/").split("/")
    if parts == ["api"]:
        addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
    if parts == ["apis"]:
        groups = [_group_entry(group, versions) for group, versions in _group_versions(kinds).items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if parts == ["api", "v1"]:
        return _resources(kinds, "", "v1")
    if len(parts) == 3:
        return _resources(kinds, parts[1], parts[2])
    versions = _group_versions(kinds).get(parts[1])
    if not versions:
        raise no_such_page()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_entry(parts[1], versions)}


def _group_versions(kinds: Kinds) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    pairs = [(kind.group, kind.version) for kind in kinds if kind.group]
    for group, version in (*pairs, *REVIEWS):
        versions = found.setdefault(group, [])
        if version not in versions:
            versions.append(version)
    return found


def _group_entry(group: str, versions: list[str]) -> JSON:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _resources(kinds: Kinds, group: str, version: str) -> JSON:
    reviews = REVIEWS.get((group, version), {})
    if not reviews and not kinds.serves(group, version):
        raise no_such_page()
    listed: list[JSON] = []
    for kind in kinds:
        if (kind.group, kind.version) == (group, version):
            listed += _plain_entries(kind)
    for plural, name in reviews.items():
        listed.append({"name": plural, "singularName": name.lower(), "namespaced": False, "kind": name,
                       "verbs": ["create"]})  # fmt: skip
    api_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": listed}


def _plain_entries(kind: Kind) -> list[JSON]:
    entry: JSON = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": verbs_of(kind),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    entries = [entry]
    for name in kind.subresources:
        below: JSON = {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": _SUBRESOURCE_VERBS.get(name, ["get", "patch", "update"]),
        }
        if name == "scale":
            below |= {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        entries.append(below)
    return entries
