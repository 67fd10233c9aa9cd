"""Discovery in both forms: one document per group and version, and the aggregated document."""

from __future__ import annotations

from backoff_ctrl.k8s.sandbox.objects.answers import no_such_page
from backoff_ctrl.k8s.sandbox.objects.kinds import NAMESPACES, VERBS, Kind, Kinds
from backoff_ctrl.k8s.sandbox.objects.texts import JSON

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERSION: JSON = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.3-sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "any",
}

# Reviews are answered and never stored, so the table of kinds does not contain them.
REVIEWS = {
    ("authorization.k8s.io", "v1"): {
        "selfsubjectaccessreviews": "SelfSubjectAccessReview",
        "selfsubjectrulesreviews": "SelfSubjectRulesReview",
    },
    ("authentication.k8s.io", "v1"): {"selfsubjectreviews": "SelfSubjectReview"},
}
_CHANGES = ("get", "patch", "update")
_ANY_METHOD = ("create", "delete", *_CHANGES)
_SUBRESOURCE_VERBS = {
    "attach": ("create", "get"),
    "exec": ("create", "get"),
    "finalize": ("update",),
    "log": ("get",),
    "portforward": ("create", "get"),
    "proxy": _ANY_METHOD,
    "resize": _CHANGES,
    "scale": _CHANGES,
    "status": _CHANGES,
}
# The kind that a subresource uses where it differs from the kind of its object: group, version, kind.
_SUBRESOURCE_KINDS = {
    "attach": ("", "v1", "PodAttachOptions"),
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "exec": ("", "v1", "PodExecOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
    "proxy": ("", "v1", "PodProxyOptions"),
    "scale": ("autoscaling", "v1", "Scale"),
}


def verbs_of(kind: Kind) -> list[str]:
    """The verbs of a kind: namespaces cannot be deleted as a collection."""
    return [verb for verb in VERBS if kind != NAMESPACES or verb != "deletecollection"]


def wants_aggregated(accept: str) -> bool:
    """Whether a client accepts the aggregated document in the served version."""
    compact = accept.replace(" ", "")
    return "g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList" in compact


def document(kinds: Kinds, path: str, *, aggregated: bool) -> JSON:
    """The document at /api, /apis, /api/v1, /apis/G or /apis/G/V. Raises 404."""
    parts = path.strip("/").split("/")
    if parts == ["api"]:
        return _aggregated(kinds, legacy=True) if aggregated else _legacy_versions()
    if parts == ["apis"]:
        return _aggregated(kinds, legacy=False) if aggregated else _groups(kinds)
    if parts == ["api", "v1"]:
        return _resources(kinds, "", "v1")
    if len(parts) == 2 and parts[0] == "apis":
        return _group(kinds, parts[1])
    if len(parts) == 3 and parts[0] == "apis":
        return _resources(kinds, parts[1], parts[2])
    raise no_such_page()


def group_versions(kinds: Kinds) -> dict[str, list[str]]:
    """The versions of each group, without the core group."""
    found: dict[str, list[str]] = {}
    pairs = [(kind.group, kind.version) for kind in kinds if kind.group]
    for group, version in (*pairs, *REVIEWS):
        versions = found.setdefault(group, [])
        if version not in versions:
            versions.append(version)
    return found


def _legacy_versions() -> JSON:
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def _groups(kinds: Kinds) -> JSON:
    groups = [_group_entry(group, versions) for group, versions in group_versions(kinds).items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group(kinds: Kinds, group: str) -> JSON:
    versions = group_versions(kinds).get(group)
    if not versions:
        raise no_such_page()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_entry(group, versions)}


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
        group, version, what = _SUBRESOURCE_KINDS.get(name, (kind.group, kind.version, kind.kind))
        below: JSON = {
            "name": f"{kind.plural}/{name}",
            "singularName": "",
            "namespaced": kind.namespaced,
            "kind": what,
            "verbs": list(_SUBRESOURCE_VERBS.get(name, ("create",))),
        }
        if (group, version) != (kind.group, kind.version):
            below |= {"group": group, "version": version}
        entries.append(below)
    return entries


def _aggregated(kinds: Kinds, *, legacy: bool) -> JSON:
    items = []
    versions_of = {"": ["v1"]} if legacy else group_versions(kinds)
    for group, versions in versions_of.items():
        entries = [
            {"version": version, "resources": _aggregated_resources(kinds, group, version), "freshness": "Current"}
            for version in versions
        ]
        metadata = {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None}
        items.append({"metadata": metadata, "versions": entries})
    head = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    return {**head, "metadata": {}, "items": items}


def _aggregated_resources(kinds: Kinds, group: str, version: str) -> list[JSON]:
    listed = [_aggregated_entry(kind) for kind in kinds if (kind.group, kind.version) == (group, version)]
    for plural, name in REVIEWS.get((group, version), {}).items():
        response = {"group": group, "version": version, "kind": name}
        listed.append({"resource": plural, "responseKind": response, "scope": "Cluster",
                       "singularResource": name.lower(), "verbs": ["create"]})  # fmt: skip
    return listed


def _aggregated_entry(kind: Kind) -> JSON:
    entry: JSON = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": verbs_of(kind),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    below = []
    for name in kind.subresources:
        group, version, what = _SUBRESOURCE_KINDS.get(name, (kind.group, kind.version, kind.kind))
        below.append(
            {
                "subresource": name,
                "responseKind": {"group": group, "version": version, "kind": what},
                "verbs": list(_SUBRESOURCE_VERBS.get(name, ("create",))),
            }
        )
    if below:
        entry["subresources"] = below
    return entry
