"""Sections of settings and descriptions: their keys, durations and quantities, with errors in YAML's words."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from fractions import Fraction
from math import ceil
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.facts.quantities import parse_quantity

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}


_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


_LONGEST: Final = 2**63 - 1


_LONGEST_TEXT: Final = 64


SHOWN_MAX: Final = 80
"""Characters of a wrong value that an error repeats."""


def parse_duration(value: object) -> timedelta:
    """Read a duration of 0 or more. Raises ``ValueError`` with a sentence that says how one is written."""
    if isinstance(value, timedelta):
        return _checked(Fraction(round(value.total_seconds() * 10**9)), value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _checked(Fraction(value), value)
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise ValueError(f"{in_yaml(value)} is not a duration: write 30s, 3m or 1h30m, or a number of nanoseconds")
    if re.fullmatch(r"[+-]?[0-9]+", value):
        return _checked(Fraction(int(value)), value)
    sign, body = (value[0], value[1:]) if value[:1] in ("+", "-") else ("", value)
    parts = _PART.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise ValueError(f"{value!r} is not a duration: write 30s, 3m or 1h30m, or a number of nanoseconds")
    total = Fraction(0)
    for number, unit in parts:
        total += Fraction(f"0{number}") * _UNITS[unit]
    return _checked(-total if sign == "-" else total, value)


def _checked(nanoseconds: Fraction, value: object) -> timedelta:
    if nanoseconds < 0:
        raise ValueError(f"{str(value)!r} is negative: write a duration of 0 or more")
    if nanoseconds > _LONGEST:
        raise ValueError(f"{str(value)!r} is longer than 292 years: write a shorter duration")
    return timedelta(microseconds=ceil(nanoseconds / 1000))  # a few nanoseconds are not 0, which often means no limit


def in_yaml(value: object) -> str:
    """Return a value as it is written in YAML, as far as that is possible in a line: for errors."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        text = repr(value)
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError):
            text = str(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def format_duration(duration: timedelta) -> str:
    """Write a duration as Go prints it: ``3m0s``, ``1h30m0s``, ``1.5s``, ``250ms``, ``0s``."""
    micros = duration // timedelta(microseconds=1)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    if micros == 0:
        return "0s"
    if micros < 10**6:
        return f"{sign}{micros}µs" if micros < 1000 else f"{sign}{_decimal(micros, 1000)}ms"
    minutes, rest = divmod(micros, 60 * 10**6)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, 10**6)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    fraction = str(rest).zfill(len(str(unit)) - 1).rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration)]
"""A setting that is a duration."""


def _quantity(value: object) -> str:
    """Return a quantity as text. Raises ``ValueError`` for an invalid or negative one."""
    try:
        amount = parse_quantity(value)  # type: ignore[arg-type]  # it refuses other types
    except QuantityError as error:
        raise ValueError(str(error)) from None
    if amount < 0:
        raise ValueError(f"{value} is negative: write a quantity of 0 or more, such as 500m or 2Gi")
    return str(value)


Quantity = Annotated[str, BeforeValidator(_quantity)]
"""A Kubernetes quantity, ``500m`` or ``2Gi``, or a number."""


def _key(name: str) -> str:
    return name.replace("_", "-")


class Section(BaseModel):
    """A section: keys are written with dashes, unknown keys are errors, and values are immutable."""

    model_config = ConfigDict(
        alias_generator=_key, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )
