"""Paths of fields as the API server writes them, in a manifest: ``spec.containers[0].image``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_INDEX: Final = re.compile(r"\[(\d+)\]")


def found_at(path: str, manifest: object) -> Any:
    """Return what the manifest has at this path, or None."""
    return [("", manifest), *_walk(path, manifest)][-1][1]


def _walk(path: str, manifest: object) -> Iterator[tuple[str | int, Any]]:
    """Yield the keys and indexes of a path, each with the value that the manifest has there, or None.

    A key may contain dots: it is the longest one that the manifest has there; without such a key, a dot ends it.
    """
    here: Any = manifest
    step: str | int
    while path:
        index = _INDEX.match(path)
        if index is not None:
            step, path = int(index[1]), path[index.end() :]
            here = here[step] if isinstance(here, list) and step < len(here) else None
        else:
            path = path.removeprefix(".")
            step = _key(path, here)
            if not step:
                return
            path = path[len(step) :]
            here = here.get(step) if isinstance(here, Mapping) else None
        yield step, here


def _key(rest: str, here: object) -> str:
    keys = here.keys() if isinstance(here, Mapping) else ()
    known = [str(key) for key in keys if rest.startswith(str(key)) and rest[len(str(key)) :][:1] in ("", ".", "[")]
    return max(known, key=len, default=re.split(r"[.\[]", rest, maxsplit=1)[0])
