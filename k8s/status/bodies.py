"""Reads a manifest from the body of a request, as JSON or YAML. An error is a problem with a JSON Pointer to the field.

Errors name a field by its path, such as ``spec.containers[0].resources.requests.nvidia.com/gpu``; problems point to it
by a JSON Pointer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.field_paths import _walk
from backoff_ctrl.k8s.kube.answers.fields import FieldError, metadata_of
from backoff_ctrl.k8s.kube.charges.manifests import ManifestError, load_manifests

from .asked import ProblemError

BODY_MAX: Final = 256 << 10
"""Bytes of a manifest: reading so much takes a few milliseconds, in a process that decides meanwhile."""
JSON_TYPES: Final = ("application/json",)
YAML_TYPES: Final = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
ALIASES_MAX: Final = 20
"""Aliases of YAML: merged again and again, a few hundred of them become billions of entries."""
LABEL_MAX: Final = 63  # characters of a namespace's name
_LABEL: Final = re.compile(rf"[a-z0-9](?:[-a-z0-9]{{0,{LABEL_MAX - 2}}}[a-z0-9])?")


def read_manifest(body: bytes, content_type: str) -> dict[str, Any]:
    """Return the manifest in a body. Raises ``ProblemError``."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (*JSON_TYPES, *YAML_TYPES):
        raise ProblemError(
            415, f"send the manifest as {JSON_TYPES[0]} or {YAML_TYPES[0]}, not as {kind or 'nothing named'}",
            "#/headers/Content-Type",
        )  # fmt: skip
    too_large(len(body))
    try:
        manifests = load_manifests(body, "the manifest", ALIASES_MAX)
    except ManifestError as error:
        raise ProblemError(400, str(error), "#/body") from None
    if len(manifests) != 1:
        raise ProblemError(400, f"send one manifest at a time, not {len(manifests)}", "#/body")
    return manifests[0]


def too_large(length: int) -> None:
    """Raise ``ProblemError`` for a body of more than ``BODY_MAX`` bytes."""
    if length > BODY_MAX:
        raise ProblemError(413, f"a manifest may have {BODY_MAX} bytes at most, not {length}", "#/body")


def namespace_of(manifest: Mapping[str, Any], wanted: str | None) -> str:
    """Return the namespace that a manifest is meant for. Raises ``ProblemError``."""
    given = metadata_of(manifest).get("namespace")
    if given is not None and not isinstance(given, str):
        raise ProblemError(400, "metadata.namespace: must be a string", "#/body/metadata/namespace")
    if wanted and given and wanted != given:
        raise ProblemError(
            400, f"the manifest is for namespace {given[:LABEL_MAX]}, and the query for {wanted}", "#/query/namespace"
        )
    found = wanted or given
    if not found:
        raise ProblemError(400, "name a namespace: metadata.namespace, or ?namespace=", "#/body/metadata/namespace")
    return checked_name(found, "#/query/namespace" if wanted else "#/body/metadata/namespace")


def checked_name(name: str, pointer: str) -> str:
    """Return the name of a namespace, which becomes a part of paths. Raises ``ProblemError`` for an invalid one."""
    if _LABEL.fullmatch(name) is None:
        raise ProblemError(
            400, f"{name[:LABEL_MAX]!r} is not a valid namespace name: use lower-case letters, digits and -", pointer
        )
    return name


@contextmanager
def fields_of(manifest: Mapping[str, Any]) -> Iterator[None]:
    """Raise an error of a manifest's field as the problem that points to it: its message begins with its path."""
    try:
        yield
    except FieldError as error:
        path, colon, _ = str(error).partition(": ")
        known = bool(colon) and " " not in path and path != "manifest"
        steps = [str(step) for step, _ in _walk(path, manifest)] if known else []
        pointer = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
        raise ProblemError(422, str(error), f"#/body{pointer}") from None
