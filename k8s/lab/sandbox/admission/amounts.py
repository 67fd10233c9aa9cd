"""Quantities as ``apimachinery`` adds, compares and prints them: an exact amount and the format it was written in.

A quantity prints in canonical form. One that was only read, however, mostly prints as it was written: ``1.500`` and
``+2Gi`` stay as they are until they are added to something, because the parser takes them for canonical.

The sandbox has its own copy of these rules on purpose: the engine's quantity parser must not be its own proof.
Source: ``k8s.io/apimachinery/pkg/api/resource/quantity.go`` (1.36).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

NANO = 10**9
_LARGEST = (2**63 - 1) * NANO  # quantities are capped at an int64

BINARY = "BinarySI"
DECIMAL = "DecimalSI"
EXPONENT = "DecimalExponent"

_MILLI = 10**6
_MOST_DIGITS = 18  # of a number that the parser's fast path takes, and whose text it may keep
_TEXT = re.compile(r"([+-]?)0*(\d*)(?:\.(\d*))?([eEinumkKMGTP]*[-+]?\d*)", re.ASCII)
_EXPONENT = re.compile(r"[eE][-+]?\d+", re.ASCII)
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL_SUFFIXES = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_DECIMAL_EXPONENTS = {suffix: exponent for exponent, suffix in _DECIMAL_SUFFIXES.items()}

_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_SUFFIX = "unable to parse quantity's suffix"


class AmountError(ValueError):
    """A text is not a Quantity; the message is the one of ``apimachinery``."""


class Amount(NamedTuple):
    """``nano`` units, the ``family`` (format) to print them in, and the written ``text`` where it is kept."""

    nano: int
    family: str = DECIMAL
    text: str = ""

    def plus(self, other: Amount) -> Amount:
        """Add; a zero takes the family of the other amount (``Quantity.Add``)."""
        return Amount(self.nano + other.nano, self.family if self.nano else other.family)

    def minus(self, other: Amount) -> Amount:
        """Subtract; a zero takes the family of the other amount (``Quantity.Sub``)."""
        return Amount(self.nano - other.nano, self.family if self.nano else other.family)

    def __str__(self) -> str:
        return self.text or _canonical(self.nano, self.family)

    def rounded_up(self, unit: int) -> Amount:
        """Round to a multiple of ``unit`` nano-units, away from zero (``Quantity.RoundUp``)."""
        if self.nano % unit == 0:
            return self
        size = -(-abs(self.nano) // unit) * unit
        return Amount(size if self.nano > 0 else -size, self.family)


ONE = Amount(NANO)
ZERO = Amount(0)


def amount_of(value: Any) -> Amount:
    """Parse a quantity as it stands in JSON: a string, a number or null. Raises ``AmountError``."""
    if value is None:
        return ZERO
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise AmountError(_WRONG_FORMAT)
    return _parse(value.strip() if isinstance(value, str) else repr(value))


def amounts_of(values: Mapping[str, Any] | None) -> dict[str, Amount]:
    return {name: amount_of(value) for name, value in values.items()} if values else {}


def canonical_list(values: Mapping[str, Any]) -> dict[str, str]:
    """A ResourceList as the API server returns it: rounded up to thousandths (``SetDefaults_ResourceList``)."""
    return {name: str(amount_of(value).rounded_up(_MILLI)) for name, value in values.items()}


@lru_cache(maxsize=8192)
def _parse(text: str) -> Amount:
    """``ParseQuantity``: anything finer than a nano-unit is rounded away from zero."""
    found = _TEXT.fullmatch(text) if text else None
    if found is None:
        raise AmountError(_WRONG_FORMAT)
    sign, whole, fraction, suffix = found[1], found[2] or "0", found[3] or "", found[4]
    family, scale, exponent = _suffix_scale(suffix)
    exponent -= len(fraction)
    number = int(whole + fraction) * scale * NANO
    nano = number * 10 ** min(exponent, 60) if exponent >= 0 else -(-number // 10 ** min(-exponent, 400))
    fast = _goes_the_fast_way(family, whole, fraction, scale, exponent)
    if family == BINARY and not fast:
        nano = min(nano, _LARGEST)
        family = DECIMAL if 0 < nano < NANO else family
    kept = text if fast and _looks_canonical(family, whole + fraction, exponent) else ""
    return Amount(-nano if sign == "-" else nano, family, kept)


def _goes_the_fast_way(family: str, whole: str, fraction: str, scale: int, exponent: int) -> bool:
    if family != BINARY:
        return len(whole) + len(fraction) <= _MOST_DIGITS and exponent >= -9
    bits = scale.bit_length() - 1
    return not fraction and 15 - len(whole) - int(bits * 3 / 10) - 1 >= 0


def _looks_canonical(family: str, digits: str, exponent: int) -> bool:
    """Whether the parser takes a text for canonical and therefore keeps it."""
    if family == BINARY:
        return int(digits) % 8 != 0
    return exponent % 3 == 0 and not digits.endswith("000") and digits[0] != "0"


def _suffix_scale(suffix: str) -> tuple[str, int, int]:
    if suffix in _BINARY_SUFFIXES[1:]:
        return BINARY, int(1024 ** _BINARY_SUFFIXES.index(suffix)), 0
    if suffix in _DECIMAL_EXPONENTS:
        return DECIMAL, 1, _DECIMAL_EXPONENTS[suffix]
    if _EXPONENT.fullmatch(suffix):
        return EXPONENT, 1, int(suffix[1:])
    raise AmountError(_WRONG_SUFFIX)


@lru_cache(maxsize=65536)
def _canonical(nano: int, family: str) -> str:
    """``Quantity.String``: the shortest exact form in the amount's family."""
    if not nano:
        return "0"
    if family == BINARY and abs(nano) >= 1024 * NANO and not nano % NANO:
        number, step = nano // NANO, 0
        while number % 1024 == 0 and step < len(_BINARY_SUFFIXES) - 1:
            number, step = number // 1024, step + 1
        return f"{number}{_BINARY_SUFFIXES[step]}"
    exponent = -9
    while nano % 1000 == 0:
        nano, exponent = nano // 1000, exponent + 3
    if family == EXPONENT:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_SUFFIXES.get(exponent, '')}"  # above E there is no suffix in Go either
