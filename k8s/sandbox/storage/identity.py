"""Names, uids and the other metadata that only the server sets."""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sandbox.kinds.answers import bad_request, conflict, invalid, unexpected
from backoff_ctrl.k8s.sandbox.kinds.kinds import BUILT_IN, NAMESPACES, SERVICES
from backoff_ctrl.k8s.sandbox.kinds.schema import conform

from .metadata_rules import SUBDOMAIN, SUBDOMAIN_TEXT

if TYPE_CHECKING:
    import random

    from backoff_ctrl.k8s.sandbox.kinds.kinds import Kind
    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

    from .store import Stored

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # k8s.io/apimachinery/pkg/util/rand
_SUFFIX = 5
_LONGEST_PREFIX = 58

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_GENERATIONS = frozenset({"apps", "batch", "networking.k8s.io", "policy", "apiextensions.k8s.io", "scheduling.k8s.io"})
_KNOWN_NAMES = frozenset(kind.kind for kind in BUILT_IN)
_PATH_SEGMENT_KINDS = frozenset({"roles", "rolebindings"})


def timestamp(now: float) -> str:
    """Unix seconds in the form that metadata uses."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def drawn_name(prefix: str, rng: random.Random) -> str:
    """A name for ``generateName``, drawn as the API server draws it."""
    return prefix[:_LONGEST_PREFIX] + "".join(rng.choices(_ALPHABET, k=_SUFFIX))


def check_body(kind: Kind, obj: JSON, *, strict: bool = False) -> JSON:
    """Check that a body is an object of the path's kind, with fields of the right types. Raises 400, 422.

    Unknown fields are dropped, or refused with ``strict``.
    """
    given, named = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
    if not kind.strategic:
        _check_custom(kind, obj, given, named)
    elif given != kind.api_version or (named != kind.kind and named not in _KNOWN_NAMES):
        version = str(given).rpartition("/")[2]
        raise bad_request(f'{named} in version "{version}" cannot be handled as a {kind.kind}: no kind "{named}" is '
                          f'registered for version "{given}" in scheme "pkg/runtime/scheme.go:111"')  # fmt: skip
    elif named != kind.kind:
        raise bad_request(f'{named} in version "{kind.version}" cannot be handled as a {kind.kind}: converting '
                          f"({kind.version}.{named}) to (core.{kind.kind}): unknown conversion")  # fmt: skip
    return conform(kind, {"kind": named, "apiVersion": given, **obj}, strict=strict)


def _check_custom(kind: Kind, obj: JSON, given: str, named: str) -> None:
    if given != kind.api_version:
        text = f"the API version in the data ({given}) does not match the expected API version ({kind.api_version})"
        raise bad_request(text)
    if named != kind.kind:
        problem = ("FieldValueInvalid", "kind", f'Invalid value: "{named}": must be {kind.kind}')
        name = (obj.get("metadata") or {}).get("name") or ""
        raise invalid(replace(kind, kind=named), name, [problem])


def check_place(obj: JSON, kind: Kind, namespace: str, name: str) -> None:
    """Check that namespace and name of a body match the path. Raises 400."""
    metadata = obj.setdefault("metadata", {})
    if kind.namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        metadata.pop("namespace", None)
    if name and not metadata.get("name"):
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if name and metadata["name"] != name:
        raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")


def give_identity(kind: Kind, obj: JSON, rng: random.Random, now: float) -> None:
    """Set name, uid and times of a new object."""
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
    """Whether objects of a kind have ``metadata.generation``, the version of their spec."""
    return not kind.strategic or kind.group in _GENERATIONS or kind.plural in {"pods", "replicationcontrollers"}


def name_problems(kind: Kind, metadata: JSON) -> list[tuple[str, str, str]]:
    """What is wrong with a name, or with the prefix that it was drawn from."""
    name, prefix = metadata.get("name") or "", metadata.get("generateName") or ""
    problems = []
    if prefix:  # it may end with a hyphen or a dot
        text = _name_problem(kind, prefix[:-1] + "a" if prefix[-1] in "-." else prefix)
        problems += [_bad_name(prefix, text, "generateName")] if text else []
    if not name:
        return [*problems, ("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")]
    text = _name_problem(kind, name)
    return [*problems, _bad_name(name, text)] if text else problems


def _name_problem(kind: Kind, name: str) -> str:
    label = kind in {NAMESPACES, SERVICES}
    longest = 63 if label else 253
    if len(name) > longest:
        return f"must be no more than {longest} characters"
    if kind.plural in _PATH_SEGMENT_KINDS:
        return ""
    if label and "." in name:
        return "must not contain dots"
    if label:
        return "" if LABEL.fullmatch(name) else LABEL_TEXT
    return "" if SUBDOMAIN.fullmatch(name) else SUBDOMAIN_TEXT


def _bad_name(name: str, text: str, field: str = "name") -> tuple[str, str, str]:
    return ("FieldValueInvalid", f"metadata.{field}", f'Invalid value: "{name}": {text}')


def keep_identity(kind: Kind, old: Stored, before: JSON, obj: JSON, *, patched: bool) -> None:
    """Restore what an update must not change. Raises 409 for an old version, 422 for a missing one, 500."""
    metadata, known = obj["metadata"], before["metadata"]
    _check_version(kind, old, metadata.get("resourceVersion"))
    uid = metadata.get("uid")
    if uid and uid != old.uid:
        if patched:
            raise invalid(kind, old.name, [_changed("uid", uid)] * 2)
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}"
        place = f"/registry/{kind.plural}/{old.namespace}/{old.name}".replace("//", "/")
        head = f"StorageError: invalid object, Code: 4, Key: {place}, ResourceVersion: 0, AdditionalErrorMsg: "
        raise conflict(kind, old.name, head + text)
    ends = metadata.get("deletionTimestamp")
    if ends and ends != known.get("deletionTimestamp"):
        raise invalid(kind, old.name, [_changed("deletionTimestamp", ends)] * 2)
    for field in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
                  "generateName"):  # fmt: skip
        if field in known:
            metadata[field] = known[field]
        else:
            metadata.pop(field, None)
    metadata["resourceVersion"] = known["resourceVersion"]


def refuse_version(version: str | None) -> None:
    """A new object has no version: a number above 0 is refused, anything else is ignored. Raises 500."""
    if version and version.isdecimal() and version.isascii() and int(version):
        raise unexpected("resourceVersion should not be set on objects to be created")


def _check_version(kind: Kind, old: Stored, version: str | None) -> None:
    if version and not (version.isdecimal() and version.isascii()):
        raise unexpected(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    asked = int(version or 0)  # "0" accepts any version, as the empty string does
    if asked and asked != old.version:
        raise conflict(kind, old.name)
    if not asked and not kind.strategic:
        problem = ("FieldValueInvalid", "metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
        raise invalid(kind, old.name, [problem], of_resource=True)


def _changed(field: str, value: str) -> tuple[str, str, str]:
    return ("FieldValueInvalid", f"metadata.{field}", f'Invalid value: "{value}": field is immutable')
