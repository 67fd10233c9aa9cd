"""Load manifests from files: JSON, or YAML with any number of documents. Errors name line and column."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Final

LARGEST_FILE: Final = 16_777_216  # bytes; far more than an API server accepts
DEEPEST: Final = 200  # levels; the C loader recurses without a limit and would crash

# Exceptions that the loader passes on for values such as a date in month 99 or !!int "".
_UNREADABLE_VALUES: Final = (ValueError, OverflowError, TypeError, AttributeError, LookupError)


class ManifestError(ValueError):
    """A file cannot be read as manifests. The message names the file and, if known, the place in it."""


def read_source(source: str) -> bytes:
    """Return the bytes of a file, or of stdin for ``-``. Raises ``ManifestError``."""
    try:
        if source == "-":
            content = sys.stdin.buffer.read(LARGEST_FILE + 1) if sys.stdin else b""  # stdin may be closed
        else:
            with Path(source).open("rb") as file:
                content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ManifestError(f"{source}: cannot be read: {error.strerror or error}") from None
    if len(content) > LARGEST_FILE:
        raise ManifestError(
            f"{'stdin' if source == '-' else source}: is larger than {LARGEST_FILE // 1_048_576} MiB: split it"
        )
    return content


def load_manifests(content: bytes | str, name: str, aliases_max: float = inf) -> list[dict[str, Any]]:
    """Return the manifests in a text. Lists are split into their items; empty documents are skipped.

    ``name`` names the text in errors; ``aliases_max`` is the most aliases in YAML. Raises ``ManifestError`` for text
    that is neither YAML nor JSON, for a document that is not an object, and for a text without any manifest.
    """
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
    except UnicodeDecodeError as error:
        raise ManifestError(f"{name}: is not UTF-8: invalid byte at offset {error.start}") from None
    manifests = []
    for index, document in enumerate(_documents(text, name, aliases_max), start=1):
        if document is None:
            continue
        if not isinstance(document, dict):
            raise ManifestError(f"{name}, document {index}: must be an object with fields such as kind and spec")
        manifests += _items(document, f"{name}, document {index}")
    if not manifests:
        raise ManifestError(f"{name}: contains no manifest")
    return manifests


def _items(document: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """Return the items of a List, a PodList's as pods even if they don't say so; any other document is one manifest."""
    kind, items = str(document.get("kind", "")), document.get("items", "")
    if not kind.endswith("List") or not isinstance(items, list | None):
        return [document]
    items = items or []
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise ManifestError(f"{where}, items[{index}]: must be an object with fields such as kind and spec")
    of_list = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    return [item if item.get("kind") or kind == "List" else {**item, **of_list} for item in items]


def _documents(text: str, name: str, aliases_max: float) -> list[Any]:
    """Parse JSON if the text is JSON, otherwise YAML, which is slower to load."""
    if text.lstrip()[:1] == "{":
        with suppress(ValueError, RecursionError):  # YAML in flow style begins the same, and its errors say more
            return [json.loads(text)]
    import yaml  # noqa: PLC0415  # loads in 20 ms, which JSON does not need

    from .bounded_yaml import KubernetesLoader  # noqa: PLC0415 - the same

    try:
        depth = aliases = 0
        for event in yaml.parse(text, Loader=KubernetesLoader):
            depth += _step(event)
            aliases += isinstance(event, yaml.AliasEvent)
            if depth > DEEPEST or aliases > aliases_max:
                break
        else:
            return list(yaml.load_all(text, Loader=KubernetesLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ManifestError(f"{name}{place}: is not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, *_UNREADABLE_VALUES) as error:
        raise ManifestError(f"{name}: is not valid YAML: {(str(error) or 'a value').splitlines()[0]}") from None
    if depth > DEEPEST:
        raise ManifestError(f"{name}: is nested more than {DEEPEST} levels deep")
    raise ManifestError(f"{name} has more than {aliases_max} YAML aliases: write them out")


def _step(event: object) -> int:
    """Return how a parser event changes the nesting depth: 1, -1 or 0."""
    name = type(event).__name__
    return name.endswith("StartEvent") - name.endswith("EndEvent") if name[:3] in {"Map", "Seq"} else 0
