"""Rules for labels, annotations, finalizers and owners (``k8s.io/apimachinery`` ``pkg/api/validation``)."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backoff_ctrl.k8s.sandbox.wire.encoding import JSON

    Problem = tuple[str, str, str]

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
_LONGEST = 63
_LONGEST_PREFIX = 253
_ANNOTATIONS_MAX = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


@lru_cache(maxsize=4096)
def key_problem(key: str) -> str:
    """What is wrong with a qualified name (key of a label or annotation, finalizer); empty if it is valid."""
    prefix, slash, name = key.partition("/")
    if "/" in name:
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return f"a valid label key {_NAME_TEXT} {optional}"
    text = prefix_problem(prefix) if slash else ""
    if text:
        return f"prefix part {text}"
    name = name if slash else key
    if not name:
        return "name part must be non-empty"
    if len(name) > _LONGEST:
        return f"name part must be no more than {_LONGEST} bytes"
    return "" if _NAME.fullmatch(name) else f"name part {_NAME_TEXT}"


def prefix_problem(prefix: str) -> str:
    """What is wrong with the domain before a qualified name; empty if it is valid."""
    if not prefix:
        return "must be non-empty"
    if len(prefix) > _LONGEST_PREFIX:
        return f"must be no more than {_LONGEST_PREFIX} bytes"
    return "" if SUBDOMAIN.fullmatch(prefix) else SUBDOMAIN_TEXT


@lru_cache(maxsize=4096)
def value_problem(value: str) -> str:
    """What is wrong with the value of a label; empty if it is valid."""
    if len(value) > _LONGEST:
        return f"must be no more than {_LONGEST} bytes"
    return "" if _VALUE.fullmatch(value) else _VALUE_TEXT


def metadata_problems(metadata: JSON) -> list[Problem]:
    """Everything that is wrong with metadata, except the name."""
    return [*_labels(metadata), *_annotations(metadata), *_owners(metadata), *_finalizers(metadata)]


def _labels(metadata: JSON) -> Iterator[Problem]:
    for key, value in sorted((metadata.get("labels") or {}).items()):
        for text, problem in ((key, key_problem(key)), (value, value_problem(value))):
            if problem:
                yield _invalid("metadata.labels", text, problem)


def _annotations(metadata: JSON) -> Iterator[Problem]:
    annotations = metadata.get("annotations") or {}
    for key in sorted(annotations):
        problem = key_problem(key.lower())
        if problem:
            yield _invalid("metadata.annotations", key, problem)
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_MAX:
        yield ("FieldValueTooLong", "metadata.annotations", f"Too long: may not be more than {_ANNOTATIONS_MAX} bytes")


def _owners(metadata: JSON) -> Iterator[Problem]:
    owners = metadata.get("ownerReferences") or ()
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                what = "version must not be empty" if field == "apiVersion" else "must not be empty"
                yield _invalid(f"metadata.ownerReferences.{field}", "", what)
    leading = [owner for owner in owners if owner.get("controller")]
    if len(leading) > 1:
        one, two = (f"{owner.get('kind')}/{owner.get('name')}" for owner in leading[:2])
        text = f'Only one reference can have Controller set to true. Found "true" in references for {one} and {two}'
        shown = json.dumps(list(owners), separators=(",", ":"))
        yield ("FieldValueInvalid", "metadata.ownerReferences", f"Invalid value: {shown}: {text}")


def _finalizers(metadata: JSON) -> Iterator[Problem]:
    finalizers = metadata.get("finalizers") or ()
    for finalizer in finalizers:
        problem = key_problem(finalizer)
        if problem:
            yield _invalid("metadata.finalizers", finalizer, problem)
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield _invalid(f"metadata.finalizers[{index}]", finalizer, text)
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        yield _invalid("metadata.finalizers", " ".join(finalizers), text)


def kept_problems(before: JSON, after: JSON) -> list[Problem]:
    """What an update must not change in metadata."""
    problems: list[Problem] = []
    if before.get("deletionTimestamp"):
        added = sorted(set(after.get("finalizers") or ()) - set(before.get("finalizers") or ()))
        if added:
            listed = ", ".join(f'"{each}"' for each in added)
            text = "no new finalizers can be added if the object is being deleted, found new finalizers []string"
            problems += [("FieldValueForbidden", "metadata.finalizers", f"Forbidden: {text}{{{listed}}}")] * 2
    return problems


def _invalid(field: str, value: str, text: str) -> Problem:
    return ("FieldValueInvalid", field, f'Invalid value: "{value}": {text}')
