"""Exact amounts: Kubernetes Quantity texts as integers of nano-units, and back.

``"1"`` is 1_000_000_000 and ``"1m"`` is 1_000_000. No float ever touches an amount, so sums and comparisons
are exact: ``1.5Gi == 1536Mi``, ``500m < 1``, and ``0.7m`` is kept.

The grammar and the rounding are those of ``k8s.io/apimachinery/pkg/api/resource/quantity.go``. Two bounds are added,
since the text may come from anywhere: at most ``LONGEST_TEXT`` characters, and at most ``LARGEST_UNITS`` units, so that
``9e999`` is refused before a huge number is built.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, TypeAlias

from backoff_ctrl.engine.errors import QuantityError

Nano: TypeAlias = int

NANO: Final = 1_000_000_000
LONGEST_TEXT: Final = 256
LARGEST_UNITS: Final = 10**30
LARGEST_BINARY: Final = (2**63 - 1) * NANO  # Kubernetes caps 8Ei and everything above it to this

_LARGEST: Final = LARGEST_UNITS * NANO
_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL: Final[dict[str, int]] = {suffix: 10 ** (exponent + 9) for suffix, exponent in _EXPONENTS.items()}
_BINARY: Final[dict[str, int]] = {f"{letter}i": 1024**power * NANO for power, letter in enumerate("KMGTPE", start=1)}

# Every part is bounded by a character class that the next part does not start with: linear time.
_GRAMMAR: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]+))?")


def parse_quantity(value: str | float | Decimal) -> int:
    """Read a Quantity as nano-units, exactly; anything finer than one nano-unit is rounded away from zero.

    Floats are read through ``repr``: ``0.1`` is one tenth. Raises ``QuantityError`` for each value that Kubernetes
    would refuse (``"1 Gi"``, ``"1gb"``, ``""``, ``True``, NaN), and for amounts and texts beyond the bounds above.
    """
    if type(value) is str:
        if len(value) <= 18 and value.isascii():  # as servers write them: digits, then a suffix
            if value.isdecimal():
                return int(value) * NANO
            if factor := _DECIMAL.get(value[-1:]):
                head = value[:-1]
            else:
                factor, head = _BINARY.get(value[-2:]), value[:-2]
            if factor and head.isdecimal():
                amount = int(head) * factor
                if amount <= LARGEST_BINARY:
                    return amount
        return _parse_any(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        raise QuantityError(f"{_shown(value)} is not a quantity: write a number or a text such as 500m or 4Gi")
    if isinstance(value, int):
        if abs(value) > LARGEST_UNITS:
            raise QuantityError(f"a quantity may be at most {LARGEST_UNITS:.0e}")
        return value * NANO
    return _parse_any(repr(value) if isinstance(value, float) else str(value))


def format_quantity(amount: int, *, binary: bool = False) -> str:
    """Write nano-units as the canonical Quantity: no fraction, and the largest suffix that keeps the amount exact.

    ``binary`` asks for Ki, Mi, ...; as in Kubernetes they are not used below 1024, nor for fractions. Parsing the
    text gives the same amount again.
    """
    if amount == 0:
        return "0"
    if binary and 1024 * NANO <= abs(amount) <= LARGEST_BINARY and amount % NANO == 0:
        return _largest_suffix(amount, _BINARY, "", NANO)
    return _largest_suffix(amount, _DECIMAL, "n", 1)


def quantity(amount: int, resource: str) -> str:
    """Write nano-units of a resource as people do: memory and storage in binary units."""
    return format_quantity(amount, binary="memory" in resource or "storage" in resource)


def taken_share(taken: int, limited: int, *, asked: bool = False) -> float:
    """Return the taken share of a limit, from 0 to 1 and above.

    A limit of 0 is full where anything is taken, or a create ``asked`` for it in vain. Else it only forbids a resource.
    """
    if limited > 0:
        return max(0.0, taken / limited)
    return 1.0 if taken > 0 or asked else 0.0


def _largest_suffix(amount: int, factors: dict[str, int], suffix: str, factor: int) -> str:
    """Write the amount with the last of the ascending factors that divides it."""
    for candidate, size in factors.items():
        if amount % size:
            break
        suffix, factor = candidate, size
    return f"{amount // factor}{suffix}"


def _parse_any(text: str) -> int:
    """Read any text that the grammar allows; ``QuantityError`` for all others."""
    if len(text) > LONGEST_TEXT:
        raise QuantityError(f"a quantity of {len(text)} characters is too long: {_shown(text[:20])}...")
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise QuantityError(f"{_shown(text)} is not a quantity: write a number such as 2, 500m or 4Gi")
    sign, whole, fraction, suffix, exponent = match.groups(default="")
    if not whole and not fraction:
        raise QuantityError(f"{_shown(text)} is not a quantity: it has no digits")
    digits = int(whole + fraction)
    if factor := _BINARY.get(suffix):
        amount = min(_shifted(digits * factor, -len(fraction)), LARGEST_BINARY)
    else:
        scale = int(exponent) if exponent else _EXPONENTS[suffix]
        amount = _shifted(digits, scale + 9 - len(fraction))
    if amount > _LARGEST:
        raise QuantityError(f"{_shown(text)} is too large: a quantity may be at most {LARGEST_UNITS:.0e}")
    return -amount if sign == "-" else amount


def _shifted(digits: int, places: int) -> int:
    """Return ``digits`` times ten to the ``places``, rounded up.

    Exponents of any size are cheap: a large one is cut where the result is refused anyway, a small one where only the
    rounding is left.
    """
    power: int = 10 ** min(abs(places), 2 * LONGEST_TEXT)
    return digits * power if places >= 0 else -(-digits // power)


def _shown(value: object) -> str:
    """Quote a value for an error message, shortened, as it is written in YAML."""
    words = {"None": "null", "True": "true", "False": "false"}
    shown = f'"{value}"' if isinstance(value, str) else words.get(repr(value), repr(value))
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
