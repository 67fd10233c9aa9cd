"""Names, labels, owners, and the metadata that only the server sets.

Source of the rules: ``k8s.io/apimachinery`` ``pkg/api/validation``.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache

from .answers import Problem, bad, bad_request, conflict, invalid, unexpected
from .kinds import BUILT_IN, NAMESPACES, SERVICES, Kind
from .schema import conform
from .store import Stored
from .texts import JSON

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_NAME_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # k8s.io/apimachinery/pkg/util/rand
_SUFFIX = 5
_LONGEST_GENERATE_NAME = 58

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_GENERATIONS = frozenset({"apps", "batch", "networking.k8s.io", "policy", "apiextensions.k8s.io", "scheduling.k8s.io"})
_KNOWN_NAMES = frozenset(kind.kind for kind in BUILT_IN)
_LONGEST = 63
_LONGEST_PREFIX = 253
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


@lru_cache(maxsize=4096)
def key_problem(key: str) -> str:
    """What is wrong with a qualified name (key of a label or annotation, finalizer); empty if it is valid."""
    prefix, slash, name = key.partition("/")
    if "/" in name:
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return f"a valid label key {_NAME_TEXT} {optional}"
    if slash and not prefix:
        return "prefix part must be non-empty"
    if slash and (len(prefix) > _LONGEST_PREFIX or not SUBDOMAIN.fullmatch(prefix)):
        return f"prefix part {SUBDOMAIN_TEXT}"
    name = name if slash else key
    if not name:
        return "name part must be non-empty"
    if len(name) > _LONGEST:
        return f"name part must be no more than {_LONGEST} bytes"
    return "" if _NAME.fullmatch(name) else f"name part {_NAME_TEXT}"


@lru_cache(maxsize=4096)
def value_problem(value: str) -> str:
    if len(value) > _LONGEST:
        return f"must be no more than {_LONGEST} bytes"
    return "" if _VALUE.fullmatch(value) else _VALUE_TEXT


def metadata_problems(metadata: JSON) -> list[Problem]:
    return [*_labels(metadata), *_annotations(metadata), *_finalizers(metadata)]


def _labels(metadata: JSON) -> Iterator[Problem]:
    for key, value in sorted((metadata.get("labels") or {}).items()):
        for text, problem in ((key, key_problem(key)), (value, value_problem(value))):
            if problem:
                yield bad("metadata.labels", text, problem)


def _annotations(metadata: JSON) -> Iterator[Problem]:
    for key in sorted(metadata.get("annotations") or {}):
        if problem := key_problem(key.lower()):
            yield bad("metadata.annotations", key, problem)


def _finalizers(metadata: JSON) -> Iterator[Problem]:
    finalizers = metadata.get("finalizers") or ()
    for finalizer in finalizers:
        if problem := key_problem(finalizer):
            yield bad("metadata.finalizers", finalizer, problem)
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield bad(f"metadata.finalizers[{index}]", finalizer, text)


def timestamp(now: float) -> str:
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
        name = (obj.get("metadata") or {}).get("name") or ""
        raise invalid(replace(kind, kind=named), name, [bad("kind", named, f"must be {kind.kind}")])


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
    metadata = obj["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(rng.choices(_ALPHABET, k=_SUFFIX))
        metadata["name"] = metadata["generateName"][:_LONGEST_GENERATE_NAME] + suffix
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


def name_problems(kind: Kind, name: str) -> list[Problem]:
    if not name:
        return [("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")]
    text = _name_problem(kind, name)
    return [bad("metadata.name", name, text)] if text else []


def _name_problem(kind: Kind, name: str) -> str:
    label = kind in {NAMESPACES, SERVICES}
    longest = 63 if label else 253
    if len(name) > longest:
        return f"must be no more than {longest} characters"
    if label and "." in name:
        return "must not contain dots"
    if label:
        return "" if LABEL.fullmatch(name) else LABEL_TEXT
    return "" if SUBDOMAIN.fullmatch(name) else SUBDOMAIN_TEXT


def keep_identity(kind: Kind, old: Stored, before: JSON, obj: JSON) -> None:
    """Restore what an update must not change. Raises 409 for an old version or another uid, 422, 500."""
    metadata, known = obj["metadata"], before["metadata"]
    _check_version(kind, old, metadata.get("resourceVersion"))
    uid = metadata.get("uid")
    if uid and uid != old.uid:
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.uid}"
        raise conflict(kind, old.name, text)
    ends = metadata.get("deletionTimestamp")
    if ends and ends != known.get("deletionTimestamp"):
        raise invalid(kind, old.name, [bad("metadata.deletionTimestamp", ends, "field is immutable")])
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
        problem = bad("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(kind, old.name, [problem], of_resource=True)
