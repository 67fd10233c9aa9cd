"""What pydantic says of a wrong value, in words that are not Python's: those who read it write YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, get_args

from pydantic import BaseModel

from backoff_ctrl.k8s.kube.answers.spelling import hint

from .sections import format_duration, in_yaml

_LIMIT: Final = re.compile(r"datetime\.timedelta\(([^()]*)\)")
_COUNTED: Final = re.compile(r"^(?:Dictionary|List|Set|Tuple|Frozenset) should have")
_PART: Final = re.compile(r"(days|seconds|microseconds)=(-?[0-9]+)")
_ZEROES: Final = re.compile(r"(?<=[hm])0[ms]")
OBJECTS: Final = frozenset(
    {"dict_type", "mapping_type", "model_attributes_type", "model_type", "dataclass_type", "dataclass_exact_type"}
)
"""The types of errors of a value that is no object."""
_WORDS: Final = {
    "bool_parsing": "Input should be true or false",
    "bool_type": "Input should be true or false",
    "list_type": "Input should be a list",
    "string_type": "Input should be a text",
    "int_type": "Input should be a whole number",
    "int_parsing": "Input should be a whole number",
    "int_from_float": "Input should be a whole number",
    "is_instance_of": "Input should be of another type",
    "none_required": "leave it out",
}
"""The words for errors whose own ones name types of Python."""


def told(error: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, by one error of ``ValidationError.errors()``."""
    if error["type"] in OBJECTS:
        value = error["input"]
        return f"must be an object with keys, not {'null' if value is None else type(value).__name__}"
    known = _WORDS.get(error["type"])
    if known is not None:
        return known
    said = str(error["msg"]).removeprefix("Value error, ")
    said = _LIMIT.sub(lambda found: duration(_length(found[1])), said)
    return _COUNTED.sub("Input should have", said).replace(" after validation", "")


def unknown_key(model: type[BaseModel], place: Sequence[str | int]) -> str:
    """Return what is wrong with the key at this place of a model's values, and which one may be meant."""
    return f"unknown key: {hint(str(place[-1]), keys_at(model, place[:-1]))}"


def keys_at(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """Return the keys that the object at a place of a model's values may have."""
    for part in place:
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                model = _model_in(field.annotation) or model
                break
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a field holds, also in a list or a map, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _length(written: str) -> timedelta:
    """Return a duration as pydantic writes it, with Python's names: ``seconds=5``, or ``0``."""
    return timedelta(**{name: int(number) for name, number in _PART.findall(written)})


def shown(value: Any) -> str:
    """Return a wrong value as it is written in YAML."""
    return duration(value) if isinstance(value, timedelta) else in_yaml(value)


def duration(length: timedelta) -> str:
    """Write a duration as people do: ``1h``, ``1h30m``, ``5s``."""
    short = format_duration(length)
    while (shorter := _ZEROES.sub("", short)) != short:
        short = shorter
    return short
