"""Templates of requests: text and JSON with values put in. Pure.

A text that begins with ``$.`` is a path, and stands for the value there, of any type. In any other text ``{$.name}``
stands for a word. What a path does not find is left out, with the field that it is for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, PlainSerializer

from backoff_ctrl.k8s.kube.operators.paths import ObjectPath, Text, is_path

SPREAD: Final = "..."
"""The key of an object in a template whose value is an object, too: its fields are put there."""
_ROOT: Final = re.compile(r"\$\.([A-Za-z]+)(?:\.([A-Za-z0-9_-]+))?")
_NOTHING: Final = object()


def filled(template: Any, document: Mapping[str, Any]) -> Any:
    """Return JSON with the values put in; None if the document has no value for it."""
    found = _filled(template, document)
    return None if found is _NOTHING else found


def texts_in(template: Any) -> Iterator[str]:
    """Yield the texts of a template, but not the keys of its objects."""
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping | list):
        for each in template.values() if isinstance(template, Mapping) else template:
            yield from texts_in(each)


def root_of(path: str) -> tuple[str, str]:
    """Return the first two steps of a path, ``("custom", "rounds")``; the second may be empty.

    Raises ``ValueError`` for a path that does not begin with a name.
    """
    found = _ROOT.match(path)
    if found is None:
        raise ValueError(f"{path!r} names no value: write it as $.custom.rounds")
    return found[1], found[2] or ""


def _filled(template: Any, document: Mapping[str, Any]) -> Any:
    if isinstance(template, str):
        found = ObjectPath(template).first(document) if is_path(template) else Text(template).of(document)
        return _NOTHING if found is None else found
    if isinstance(template, Mapping):
        return _filled_object(template, document)
    if isinstance(template, list):
        return [value for each in template if (value := _filled(each, document)) is not _NOTHING]
    return template


def _filled_object(template: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    spread = _filled(template[SPREAD], document) if SPREAD in template else _NOTHING
    made: dict[str, Any] = dict(spread) if isinstance(spread, Mapping) else {}
    for key, each in template.items():
        value = _NOTHING if key == SPREAD else _filled(each, document)
        if value is not _NOTHING:
            made[key] = _over(made.get(key), value)
    return made if made or not template or isinstance(spread, Mapping) else _NOTHING


def _over(below: Any, above: Any) -> Any:
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    return {**below, **{key: _over(below.get(key), value) for key, value in above.items()}}


def _read(value: object) -> Text:
    if isinstance(value, Text):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a text, such as /jobs/{$.id}")  # noqa: TRY004 - pydantic's rule
    return Text(str(value))


Template = Annotated[Text, BeforeValidator(_read), PlainSerializer(str)]
"""A key of a description that holds a text with placeholders."""
