"""Reads the body of ``POST /v1/explain``: one manifest, as JSON or YAML. What is wrong is a problem with a pointer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from backoff_ctrl.k8s.charges.manifests import ManifestError, load_manifests
from backoff_ctrl.k8s.status.asked import ProblemError

from .paths import pointer_to, steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.k8s.charges.fields import FootprintError

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
    if kind in YAML_TYPES and body.count(b"*") > ALIASES_MAX and _aliases(body) > ALIASES_MAX:
        raise ProblemError(400, f"the manifest has more than {ALIASES_MAX} YAML aliases: write them out", "#/body")
    try:
        manifests = load_manifests(body, "the manifest")
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
    metadata = manifest.get("metadata")
    given = metadata.get("namespace") if isinstance(metadata, dict) else None
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
    """Return the name of a namespace: it becomes a part of paths. Raises ``ProblemError`` for what can't be one."""
    if _LABEL.fullmatch(name) is None:
        raise ProblemError(
            400, f"{name[:LABEL_MAX]!r} is not a valid namespace name: use lower-case letters, digits and -", pointer
        )
    return name


def malformed(error: FootprintError, manifest: Mapping[str, Any]) -> ProblemError:
    """Return the problem for a manifest with a field that is wrong: the error's message begins with its path."""
    path, colon, _ = str(error).partition(": ")
    known = bool(colon) and " " not in path and path != "manifest"
    pointer = pointer_to(steps_of(path, manifest)) if known else ""
    return ProblemError(422, str(error), f"#/body{pointer}")


def _aliases(body: bytes) -> int:
    import yaml  # noqa: PLC0415 - JSON does not need it

    try:
        events = yaml.parse(body, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return sum(isinstance(event, yaml.AliasEvent) for event in events)
    except yaml.YAMLError:
        return 0  # what is wrong with it is told by who reads it
