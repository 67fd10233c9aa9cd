"""Paths of fields in a manifest, as errors write them: ``spec.containers[0].resources.requests.nvidia.com/gpu``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_INDEX: Final = re.compile(r"\[(\d+)\]")


def steps_of(path: str, manifest: object) -> list[str | int]:
    """Return the keys and indexes that lead to a path.

    A key may contain dots: it is the longest one that the manifest has there; where it has none, a dot ends the key.
    """
    steps: list[str | int] = []
    here: Any = manifest
    rest = path
    while rest:
        index = _INDEX.match(rest)
        step: str | int
        if index is not None:
            step, rest = int(index[1]), rest[index.end() :]
            here = here[step] if isinstance(here, list) and step < len(here) else None
        else:
            rest = rest.removeprefix(".")
            step = _key(rest, here)
            rest = rest[len(step) :]
            here = here.get(step) if isinstance(here, Mapping) else None
            if not step:
                break
        steps.append(step)
    return steps


def pointer_to(steps: list[str | int]) -> str:
    """Write the steps as a JSON Pointer, without a leading ``#``."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def found_at(path: str, manifest: object) -> Any:
    """Return what the manifest has at this path; None if there is nothing."""
    here: Any = manifest
    for step in steps_of(path, manifest):
        fits = isinstance(here, list) if isinstance(step, int) else isinstance(here, Mapping)
        if not fits or (isinstance(step, int) and step >= len(here)):
            return None
        here = here[step] if isinstance(step, int) else here.get(step)
    return here


def _key(rest: str, here: object) -> str:
    keys = here.keys() if isinstance(here, Mapping) else ()
    known = [str(key) for key in keys if rest.startswith(str(key)) and rest[len(str(key)) :][:1] in ("", ".", "[")]
    return max(known, key=len, default=re.split(r"[.\[]", rest, maxsplit=1)[0])
