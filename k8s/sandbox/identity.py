"""Names, uids and the metadata that the server alone sets."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .answers import bad_request, conflict, invalid
from .kinds import BUILT_IN, NAMESPACES, SERVICES
from .schema import conform, json_word

if TYPE_CHECKING:
    import random

    from .encoding import JSON
    from .kinds import Kind
    from .store import Stored

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # k8s.io/apimachinery/pkg/util/rand
_SUFFIX = 5
_LONGEST_PREFIX = 58

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_GENERATIONS = frozenset({"apps", "batch", "networking.k8s.io", "policy", "apiextensions.k8s.io"})
_KNOWN_NAMES = frozenset(kind.kind for kind in BUILT_IN)
_PATH_SEGMENT_KINDS = frozenset({"roles", "rolebindings"})


def timestamp(now: float) -> str:
    """Unix seconds as metadata carries them."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def drawn_name(prefix: str, rng: random.Random) -> str:
    """A name from ``generateName``, as the API server draws it."""
    return prefix[:_LONGEST_PREFIX] + "".join(rng.choices(_ALPHABET, k=_SUFFIX))


def check_body(kind: Kind, obj: Any, *, strict: bool = False) -> JSON:
    """A body must be an object of the kind that the path names, with fields of its types. Raises 400.

    Unknown fields of built-in kinds are dropped, or refused with ``strict``.
    """
    if not isinstance(obj, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get "
                          f"version/kind; json parse error: json: cannot unmarshal {json_word(obj)} into Go value of "
                          'type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string '
                          '"json:\\"kind,omitempty\\"" }')  # fmt: skip
    given, named = obj.get("apiVersion"), obj.get("kind")
    if not kind.strategic and not (given and named):
        field = "Kind" if not named else "apiVersion"
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): Object '{field}' is "
                          "missing")  # fmt: skip
    given, named = given or kind.api_version, named or kind.kind
    if not isinstance(given, str) or not isinstance(named, str):
        word = json_word(named if isinstance(given, str) else given)
        raise bad_request(f"couldn't get version/kind; json parse error: json: cannot unmarshal {word} into Go struct "
                          "field .kind of type string")  # fmt: skip
    if given != kind.api_version or (named != kind.kind and named not in _KNOWN_NAMES):
        version = str(given).rpartition("/")[2]
        raise bad_request(f'{named} in version "{version}" cannot be handled as a {kind.kind}: no kind "{named}" is '
                          f'registered for version "{given}" in scheme "pkg/runtime/scheme.go:111"')  # fmt: skip
    if named != kind.kind:
        raise bad_request(f'{named} in version "{kind.version}" cannot be handled as a {kind.kind}: converting '
                          f"({kind.version}.{named}) to (core.{kind.kind}): unknown conversion")  # fmt: skip
    return conform(kind, {**obj, "apiVersion": given, "kind": named}, strict=strict)


def check_place(obj: JSON, kind: Kind, namespace: str, name: str) -> None:
    """Namespace and name of a body must be those of the path. Raises 400."""
    metadata = obj.setdefault("metadata", {})
    if kind.namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        metadata.pop("namespace", None)
    if name and metadata.setdefault("name", name) != name:
        raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")


def give_identity(kind: Kind, obj: JSON, rng: random.Random, now: float) -> None:
    """Name, uid and times of a new object."""
    metadata = obj["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = drawn_name(metadata["generateName"], rng)
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
        metadata.pop(field, None)
    metadata["uid"] = str(uuid.UUID(int=rng.getrandbits(128), version=4))
    metadata["creationTimestamp"] = timestamp(now)
    if has_generation(kind):
        metadata["generation"] = 1
    else:
        metadata.pop("generation", None)


def has_generation(kind: Kind) -> bool:
    """Whether objects of a kind number the versions of their spec."""
    return not kind.strategic or kind.group in _GENERATIONS or kind.plural in {"pods", "replicationcontrollers"}


def name_problems(kind: Kind, metadata: JSON) -> list[tuple[str, str, str]]:
    """What is wrong with a name."""
    name = metadata.get("name") or ""
    if not name:
        return [("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")]
    if not isinstance(name, str) or len(name) > 253 or (kind in {NAMESPACES, SERVICES} and len(name) > 63):
        longest = 63 if kind in {NAMESPACES, SERVICES} else 253
        return [_bad_name(name, f"must be no more than {longest} characters")]
    if kind.plural in _PATH_SEGMENT_KINDS:
        return []
    pattern, text = {
        NAMESPACES: (_LABEL, _LABEL_TEXT),
        SERVICES: (_LABEL_1035, _LABEL_1035_TEXT),
    }.get(kind, (_SUBDOMAIN, _SUBDOMAIN_TEXT))
    return [] if pattern.fullmatch(name) else [_bad_name(name, text)]


def _bad_name(name: Any, text: str) -> tuple[str, str, str]:
    return ("FieldValueInvalid", "metadata.name", f'Invalid value: "{name}": {text}')


def keep_identity(kind: Kind, old: Stored, before: JSON, obj: JSON) -> None:
    """Take over what an update may not change. Raises 409 for an old version, 422 where it is missing."""
    metadata, known = obj["metadata"], before["metadata"]
    wanted = metadata.get("uid")
    if wanted and wanted != old.uid:
        raise conflict(
            kind, old.name, f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {old.uid}"
        )
    version = metadata.get("resourceVersion")
    if version and version != str(old.version):
        raise conflict(kind, old.name)
    if not version and not kind.strategic:
        problem = ("FieldValueInvalid", "metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
        raise invalid(kind, old.name, [problem], of_resource=True)
    for field in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
                  "generateName", "managedFields"):  # fmt: skip
        if field == "managedFields" and field in metadata:
            continue
        if field in known:
            metadata[field] = known[field]
        else:
            metadata.pop(field, None)
    metadata["resourceVersion"] = known["resourceVersion"]
