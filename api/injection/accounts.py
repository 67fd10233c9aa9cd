"""Which containers of a pod have a service account mounted, and how one is led to the sidecar instead. Pure."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.answers.fields import mappings

from .sidecar import ACCOUNT_PATH, ACCOUNT_VOLUME, JSON, TOKEN_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SERVER: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_REFERENCE: Final = re.compile(r"\$\(([^()]+)\)")
_TOKEN_VOLUME: Final = "kube-api-access"  # noqa: S105 - a volume
_TOKEN_SOURCES: Final[tuple[JSON, ...]] = (
    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
)


def containers(spec: Mapping[str, Any]) -> Iterator[JSON]:
    """Yield all containers, init containers first."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def is_readable(spec: Mapping[str, Any]) -> bool:
    """Say whether a spec has the structure that is worked on here: the server may not have checked it yet."""
    if not all(_is_list_of_objects(spec.get(key)) for key in ("containers", "initContainers", "volumes")):
        return False
    if not all(isinstance(spec.get(key) or {}, dict) for key in ("os", "nodeSelector", "securityContext", "resources")):
        return False
    return all(
        _is_list_of_objects(each.get(key)) for each in containers(spec) for key in ("env", "volumeMounts", "ports")
    )


def _is_list_of_objects(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, dict) for each in value))


def account_mounts(spec: Mapping[str, Any], each: Mapping[str, Any]) -> list[JSON]:
    """Return a container's mounts of a service account. An emptyDir there is how one opts out of it."""
    return [mount for mount in at_account_path(each) if _is_account(spec, mount)]


def at_account_path(each: Mapping[str, Any]) -> Iterator[JSON]:
    """Yield whatever a container mounts where its account would be."""
    for mount in each.get("volumeMounts") or ():
        if str(mount.get("mountPath")).rstrip("/") == ACCOUNT_PATH:
            yield mount


def _is_account(spec: Mapping[str, Any], mount: Mapping[str, Any]) -> bool:
    """Say whether a mount brings what the sidecar needs of it: a token, and whom to trust."""
    if mount.get("subPathExpr"):
        return False  # it may say something else in another container
    volumes = spec.get("volumes") or ()
    volume: Mapping[str, Any] = next((each for each in volumes if each.get("name") == mount.get("name")), {})
    if isinstance(volume.get("secret"), dict) or isinstance(volume.get("csi"), dict):
        return True
    projected = volume.get("projected")
    if not isinstance(projected, dict):
        return False
    sources = mappings(projected.get("sources"))
    token = any("serviceAccountToken" in each or "secret" in each for each in sources)
    return not sources or (token and any(map(_may_bring_authority, sources)))


def _may_bring_authority(source: Mapping[str, Any]) -> bool:
    """Say whether a projected source may be the one with ``ca.crt``; without ``items`` it brings all that it has."""
    bundle = source.get("clusterTrustBundle")
    if isinstance(bundle, dict):
        return str(bundle.get("path")).endswith("ca.crt")
    found = source.get("configMap") or source.get("secret")
    if not isinstance(found, dict):
        return False
    chosen = found.get("items")
    return not isinstance(chosen, list) or any(str(each.get("path")).endswith("ca.crt") for each in mappings(chosen))


def redirect(spec: Mapping[str, Any], each: JSON, port: int) -> None:
    """Let a container that mounts a service account find the sidecar in place of the API server."""
    mounts = account_mounts(spec, each)
    if not mounts:
        return
    token = token_mount(mounts[0], TOKEN_PATH)
    for mount in [*at_account_path(each)]:  # replaced: two mounts at one path are invalid
        mount.pop("subPath", None)
        mount.update(name=ACCOUNT_VOLUME, readOnly=True)
    each["volumeMounts"].append(token)
    own = [entry for entry in each.get("env") or [] if entry.get("name") not in SERVER]
    each["env"] = [{"name": SERVER[0], "value": "127.0.0.1"}, {"name": SERVER[1], "value": str(port)}, *own]


def token_mount(mount: Mapping[str, Any], path: str) -> JSON:
    """Return the same account, mounted elsewhere."""
    part = {"subPath": mount["subPath"]} if mount.get("subPath") else {}
    return {"name": mount["name"], "mountPath": path, "readOnly": True, **part}


def server_of(spec: Mapping[str, Any]) -> tuple[list[JSON], tuple[str, ...]]:
    """Return where containers find the API server by their own environment: it becomes the sidecar's upstream.

    What those values refer to, as ``$(NAME)``, comes with them.
    """
    given = []
    for each in containers(spec):
        if account_mounts(spec, each):
            found = {str(entry.get("name")): entry for entry in each.get("env") or ()}
            given.append(([found[name] for name in SERVER if name in found], found))
    chosen, beside = next((each for each in given if each[0]), ([], {}))
    env = [*_referred(chosen, beside), *chosen]
    if any(each not in ([], chosen) for each, _ in given):
        return env, ("its containers name different API servers: the sidecar serves that of the first for all",)
    return env, ()


def _referred(chosen: list[JSON], beside: Mapping[str, JSON]) -> list[JSON]:
    """Return the variables that some refer to, themselves or by others, in the order in which they stand."""
    needed: set[str] = set()
    left = list(chosen)
    while left:
        names = set(_REFERENCE.findall(str(left.pop().get("value")))) & beside.keys() - needed - {*SERVER}
        needed |= names
        left += [beside[name] for name in names]
    return [entry for name, entry in beside.items() if name in needed]


def with_account(pod: JSON) -> JSON:
    """Return a manifest with the account and token that the ServiceAccount admission sets before any webhook.

    As ``plugin/pkg/admission/serviceaccount`` in Kubernetes does for an account with default settings.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict) or not is_readable(spec) or spec.get("automountServiceAccountToken") is False:
        return pod
    changed = copy.deepcopy(pod)
    changed["spec"].setdefault("serviceAccountName", "default")  # a volume with its token is invalid without
    missing = [each for each in containers(changed["spec"]) if not any(True for _ in at_account_path(each))]
    for each in missing:
        mount = {"name": _TOKEN_VOLUME, "mountPath": ACCOUNT_PATH, "readOnly": True}
        each["volumeMounts"] = [*(each.get("volumeMounts") or []), mount]
    if missing:
        volume = {"name": _TOKEN_VOLUME, "projected": {"sources": [dict(each) for each in _TOKEN_SOURCES]}}
        changed["spec"]["volumes"] = [*(changed["spec"].get("volumes") or []), volume]
    return changed
