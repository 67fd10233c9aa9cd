"""The causes of a 422, worded as ``k8s.io/apimachinery`` ``pkg/util/validation/field`` words them."""

from __future__ import annotations

import json
from typing import Any

Problem = tuple[str, str, str]
"""Reason, field and message: one cause of a 422."""


def bad(field: str, value: Any, text: str) -> Problem:
    """A value that breaks a rule; ``text`` says which."""
    return (
        "FieldValueInvalid",
        field,
        f"Invalid value: {json.dumps(value, separators=(',', ':'), ensure_ascii=False)}: {text}",
    )


def missing(field: str, text: str = "") -> Problem:
    """A required value that is not given."""
    return ("FieldValueRequired", field, f"Required value: {text}" if text else "Required value")


def unsupported(field: str, value: Any, *supported: str) -> Problem:
    """A value that is not one of the supported ones."""
    listed = ", ".join(f'"{each}"' for each in supported)
    return ("FieldValueNotSupported", field, f'Unsupported value: "{value or ""}": supported values: {listed}')


def fixed(field: str, value: Any) -> Problem:
    """A value that must not change."""
    return bad(field, value, "field is immutable")


def in_range(field: str, value: int, least: int, most: int) -> list[Problem]:
    """A number that must be from ``least`` to ``most``."""
    return [] if least <= value <= most else [bad(field, value, f"must be between {least} and {most}, inclusive")]


def not_negative(field: str, value: int | None) -> list[Problem]:
    """A number that must not be negative."""
    return [bad(field, value, "must be greater than or equal to 0")] if value is not None and value < 0 else []
