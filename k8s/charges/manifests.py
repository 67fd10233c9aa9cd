"""Loading manifests from files: YAML with any number of documents, or JSON; errors name line and column."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

LARGEST_FILE: Final = 16_777_216  # bytes; far above what an API server takes
DEEPEST: Final = 200  # levels; the C loader recurses without a limit of its own and would crash

# What the loader lets through for values such as a date of month 99 or !!int "".
_UNREADABLE_VALUES: Final = (ValueError, OverflowError, TypeError, AttributeError, LookupError)


class ManifestError(ValueError):
    """A file cannot be read as manifests; the sentence names the file and, where known, the place."""


def read_source(source: str) -> bytes:
    """Read a file, or stdin for ``-``. Raises ``ManifestError`` with a sentence."""
    try:
        if source == "-":
            content = sys.stdin.buffer.read(LARGEST_FILE + 1) if sys.stdin else b""  # it may be closed
        else:
            with Path(source).open("rb") as file:
                content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ManifestError(f"{source}: cannot be read: {error.strerror or error}") from None
    if len(content) > LARGEST_FILE:
        raise ManifestError(f"{'stdin' if source == '-' else source}: is larger than {LARGEST_FILE // 1_048_576} MiB")
    return content


def load_manifests(content: bytes | str, name: str) -> list[dict[str, Any]]:
    """Return the manifests of a text, the items of a List each for itself, empty documents left out.

    ``name`` stands for the text in errors. Raises ``ManifestError`` for what is neither YAML nor JSON, for a
    document that is not a set of fields, and where there is no manifest at all.
    """
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
    except UnicodeDecodeError as error:
        raise ManifestError(f"{name}: is not UTF-8 text at byte {error.start}") from None
    manifests = []
    for index, document in enumerate(_documents(text, name), start=1):
        if document is None:
            continue
        if not isinstance(document, dict):
            raise ManifestError(f"{name}, document {index}: must be a set of fields such as kind and spec")
        manifests += _items(document, f"{name}, document {index}")
    if not manifests:
        raise ManifestError(f"{name}: holds no manifest")
    return manifests


def _items(document: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """Take a List apart; anything else is one manifest."""
    items = document.get("items")
    if not str(document.get("kind", "")).endswith("List") or not isinstance(items, list):
        return [document]
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise ManifestError(f"{where}, items[{index}]: must be a set of fields such as kind and spec")
    return items


def _documents(text: str, name: str) -> list[Any]:
    """Parse JSON where it is JSON, else YAML, which is slower to load."""
    if text.lstrip()[:1] == "{":
        with suppress(ValueError, RecursionError):  # YAML in flow style begins alike, and its parser says more
            return [json.loads(text)]
    import yaml  # noqa: PLC0415  # 20 ms that JSON does not need

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depths = accumulate(_step(event) for event in yaml.parse(text, Loader=loader))
        too_deep = any(depth > DEEPEST for depth in depths)
        documents = [] if too_deep else list(yaml.load_all(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ManifestError(f"{name}{place}: is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, *_UNREADABLE_VALUES) as error:
        raise ManifestError(f"{name}: is not YAML: {(str(error) or 'a value').splitlines()[0]}") from None
    if too_deep:
        raise ManifestError(f"{name}: is nested more than {DEEPEST} levels deep")
    return documents


def _step(event: object) -> int:
    """Return how an event of the parser changes the depth."""
    name = type(event).__name__
    return name.endswith("StartEvent") - name.endswith("EndEvent") if name[:3] in {"Map", "Seq"} else 0
