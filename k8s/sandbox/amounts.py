"""Quantities as ``apimachinery`` adds, compares and prints them: an exact amount and the family it was written in.

The sandbox has its own copy of this rule on purpose: the reader of quantities in the engine must not be
proven by itself. Source: ``k8s.io/apimachinery/pkg/api/resource/quantity.go`` (1.36).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

NANO = 10**9
_LARGEST = (2**63 - 1) * NANO  # quantities are capped at an int64

BINARY = "BinarySI"
DECIMAL = "DecimalSI"
EXPONENT = "DecimalExponent"

_TEXT = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE]?)", re.ASCII)
_LOOKS_RIGHT = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL_SUFFIXES = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_DECIMAL_EXPONENTS = {suffix: exponent for exponent, suffix in _DECIMAL_SUFFIXES.items()}

_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_SUFFIX = "unable to parse quantity's suffix"


class AmountError(ValueError):
    """A text is no Quantity; the sentence is the one of ``apimachinery``."""


class Amount(NamedTuple):
    """``nano`` units, and the ``family`` that decides how they are printed."""

    nano: int
    family: str = DECIMAL

    def plus(self, other: Amount) -> Amount:
        """Add; a zero takes the family of what is added to it (``Quantity.Add``)."""
        return Amount(self.nano + other.nano, self.family if self.nano else other.family)

    def minus(self, other: Amount) -> Amount:
        """Subtract; a zero takes the family of what is taken from it (``Quantity.Sub``)."""
        return Amount(self.nano - other.nano, self.family if self.nano else other.family)

    def __str__(self) -> str:
        """Print canonically."""
        return _canonical(self)


ONE = Amount(NANO)
ZERO = Amount(0)


def amount_of(value: Any) -> Amount:
    """Read a quantity as it stands in JSON: a string or a bare number. Raises ``AmountError``."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise AmountError(_WRONG_FORMAT)
    return _parse(value.strip() if isinstance(value, str) else repr(value))


def amounts_of(values: Mapping[str, Any] | None) -> dict[str, Amount]:
    """Read a ResourceList. Raises ``AmountError``."""
    return {name: amount_of(value) for name, value in values.items()} if values else {}


def canonical_list(values: Mapping[str, Any]) -> dict[str, str]:
    """A ResourceList as the API server gives it back: every quantity in canonical form."""
    return {name: str(amount_of(value)) for name, value in values.items()}


@lru_cache(maxsize=8192)
def _parse(text: str) -> Amount:
    """Turn text into nano-units; what is finer than a nano rounds up, away from zero."""
    found = _TEXT.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        raise AmountError(_WRONG_SUFFIX if _LOOKS_RIGHT.fullmatch(text) else _WRONG_FORMAT)
    sign, whole, fraction, suffix = found[1], found[2], found[3] or "", found[4]
    family, scale, exponent = _suffix_scale(suffix)
    digits = int((whole + fraction) or "0") * scale * NANO
    exponent -= len(fraction)
    nano = digits * 10 ** min(exponent, 60) if exponent >= 0 else -(-digits // 10 ** min(-exponent, 400))
    if family == BINARY and 0 < nano < NANO:
        family = DECIMAL
    nano = min(nano, _LARGEST)
    return Amount(-nano if sign == "-" else nano, family)


def _suffix_scale(suffix: str) -> tuple[str, int, int]:
    """Family, binary factor and decimal exponent of a suffix."""
    if suffix.endswith("i"):
        return BINARY, int(1024 ** _BINARY_SUFFIXES.index(suffix)), 0
    if len(suffix) > 1:
        return EXPONENT, 1, int(suffix[1:])
    return DECIMAL, 1, _DECIMAL_EXPONENTS[suffix]


@lru_cache(maxsize=65536)
def _canonical(amount: Amount) -> str:
    """``Quantity.String``: the shortest exact form in the amount's family."""
    nano, family = amount
    if not nano:
        return "0"
    if family == BINARY and abs(nano) >= 1024 * NANO and not nano % NANO:
        number, step = nano // NANO, 0
        while number % 1024 == 0 and step < len(_BINARY_SUFFIXES) - 1:
            number, step = number // 1024, step + 1
        return f"{number}{_BINARY_SUFFIXES[step]}"
    exponent = -9
    while nano % 1000 == 0 and exponent < 18:
        nano, exponent = nano // 1000, exponent + 3
    if family == EXPONENT:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_SUFFIXES[exponent]}"
