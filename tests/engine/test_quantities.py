"""Quantities: the grammar of Kubernetes, compared exactly with fractions."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from backoff_ctrl.engine.errors import QuantityError
from backoff_ctrl.engine.facts.quantities import (
    LARGEST_BINARY,
    LARGEST_UNITS,
    NANO,
    format_quantity,
    parse_quantity,
    taken_share,
)

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}

numbers = st.from_regex(r"\A([0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12})\Z")
signs = st.sampled_from(["", "+", "-"])
exponents = st.builds(str.__add__, st.sampled_from("eE"), st.integers(-15, 15).map(str))


def exact(sign: str, number: str, suffix: str) -> int:
    """Compute the nano-units of a quantity the slow way, rounded away from zero."""
    value = Fraction(f"0{number}0" if "." in number else number) * NANO
    if suffix in BINARY:
        value *= 1024 ** BINARY[suffix]
    elif suffix in DECIMAL:
        value *= Fraction(10) ** DECIMAL[suffix]
    else:
        value *= Fraction(10) ** int(suffix[1:])
    amount = ceil(value)
    if suffix in BINARY:
        amount = min(amount, LARGEST_BINARY)
    return -amount if sign == "-" else amount


@given(signs, numbers, st.sampled_from([*DECIMAL, *BINARY]) | exponents)
@example("", "1.5", "Gi")
@example("", "0.7", "m")
@example("-", ".5", "n")
@example("", "9", "Ei")
@example("", "999999999999", "E")
def test_a_quantity_is_read_exactly(sign: str, number: str, suffix: str) -> None:
    """Every text of the grammar gives the nano-units that exact fractions give."""
    expected = exact(sign, number, suffix)
    if abs(expected) > LARGEST_UNITS * NANO:
        with pytest.raises(QuantityError, match="too large"):
            parse_quantity(f"{sign}{number}{suffix}")
    else:
        assert parse_quantity(f"{sign}{number}{suffix}") == expected


@given(st.integers(-(10**36), 10**36), st.booleans())
def test_formatting_and_parsing_round_trip(amount: int, binary: bool) -> None:
    """Formatting loses nothing, with decimal or binary suffixes."""
    assert parse_quantity(format_quantity(amount, binary=binary)) == amount


@given(st.integers(-(10**30), 10**30), st.booleans())
def test_the_canonical_text_has_no_fraction_and_the_largest_suffix(amount: int, binary: bool) -> None:
    """As Kubernetes defines the canonical form, the digits are not divisible by a further factor."""
    text = format_quantity(amount, binary=binary)
    digits = text.rstrip("".join({*"".join(DECIMAL), *"".join(BINARY)}))
    suffix = text[len(digits) :]
    assert "." not in text
    assert suffix in DECIMAL or suffix in BINARY
    if amount and suffix not in {"E", "Ei"}:
        factor = 1024 if suffix in BINARY else 1000
        assert int(digits) % factor != 0 or (binary and suffix == "")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1.5Gi", "1536Mi"),
        ("007", "7"),
        ("-0", "0"),
        ("1e-30", "1n"),
        ("8Ei", "9223372036854775807"),
        ("0e99999999999999999999", "0"),
        ("1e-99999999999999999999", "1n"),
    ],
)
def test_two_spellings_of_an_amount_are_equal(text: str, same: str) -> None:
    """Suffixes may differ, fractions round up to one nano-unit, binary amounts are capped as in Kubernetes."""
    assert parse_quantity(text) == parse_quantity(same)


@pytest.mark.parametrize(
    ("amount", "binary", "text"),
    [
        (0, False, "0"),
        (1, False, "1n"),
        (1_500_000_000, False, "1500m"),
        (1536 * 1024**2 * NANO, True, "1536Mi"),
        (1536 * 1024**2 * NANO, False, "1610612736"),
        (1023 * NANO, True, "1023"),
        (1024 * NANO, True, "1Ki"),
        (1024 * NANO + 1, True, "1024000000001n"),
        (-2 * 1024**3 * NANO, True, "-2Gi"),
        (5_000 * 10**18 * NANO, False, "5000E"),
    ],
)
def test_amounts_are_written_as_kubernetes_writes_them(amount: int, binary: bool, text: str) -> None:
    """These amounts have the canonical text of Kubernetes."""
    assert format_quantity(amount, binary=binary) == text


@pytest.mark.parametrize(
    "text",
    ["", " ", ".", "m", "Ki", "+", "1 Gi", " 1", "1\n", "1ki", "1KI", "1i", "1gb", "1e", "1e1.5", "e3", "--1", "1.1.1",
     "0x1", "1_000", "٣", "\uff11", "²", "1mm", "nan", "inf", "1,5", "1e+", "1Ke3", "9" * 300],
)  # fmt: skip
def test_a_text_that_kubernetes_refuses_is_refused_with_a_sentence(text: str) -> None:
    """No guessing: the one-line error shows the text and a valid example."""
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)
    assert "quantity" in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "text", ["9e999", "1e99999999999999999999", "1e31", "9" * 40, "-9e999", "1000000000000000000E"]
)
def test_an_amount_beyond_the_bound_is_refused_before_it_is_computed(text: str) -> None:
    """A huge exponent is refused at once with a clear error."""
    with pytest.raises(QuantityError, match=r"too large: a quantity may be at most 1e\+30"):
        parse_quantity(text)


@given(st.integers(-LARGEST_UNITS, LARGEST_UNITS))
def test_whole_numbers_are_units(value: int) -> None:
    """An int is a number of units."""
    assert parse_quantity(value) == value * NANO


@given(st.floats(min_value=-1e20, max_value=1e20))
def test_a_float_is_read_by_its_decimal_text(value: float) -> None:
    """0.1 is exactly one tenth, not the nearest double."""
    exactly = Fraction(repr(value)) * NANO
    expected = ceil(exactly) if exactly >= 0 else -ceil(-exactly)
    assert parse_quantity(value) == expected


@given(st.decimals(min_value=-(10**20), max_value=10**20, allow_nan=False, places=10))
def test_a_decimal_is_read_exactly(value: Decimal) -> None:
    """Decimals are read by their text, whatever the exponent."""
    assume(len(str(value)) < 200)
    exactly = Fraction(value) * NANO
    assert parse_quantity(value) == (ceil(exactly) if exactly >= 0 else -ceil(-exactly))


@pytest.mark.parametrize(
    "value",
    [True, None, [], {}, b"1", float("nan"), float("inf"), Decimal("NaN"), Decimal("1E+999"), 10**31, -(10**100)],
)
def test_values_of_other_types_are_refused(value: object) -> None:
    """Above all booleans: YAML turns a bare yes into one."""
    with pytest.raises(QuantityError):
        parse_quantity(value)  # type: ignore[arg-type]  # what a manifest may hold


@given(st.text(max_size=300) | st.from_regex(r"[-+0-9.eEinumkKMGTP]{0,30}", fullmatch=True))
def test_any_text_is_an_amount_or_a_quantity_error(text: str) -> None:
    """No other error, and amounts are integers within the bound."""
    try:
        amount = parse_quantity(text)
    except QuantityError:
        return
    assert isinstance(amount, int)
    assert abs(amount) <= LARGEST_UNITS * NANO


def test_a_limit_of_0_is_full_only_where_something_is_taken_or_asked_for() -> None:
    """Else it only forbids a resource. More than the limit may be taken."""
    assert [taken_share(taken, 4) for taken in (-1, 0, 3, 6)] == [0.0, 0.0, 0.75, 1.5]
    assert [taken_share(0, 0), taken_share(1, 0), taken_share(0, 0, asked=True)] == [0.0, 1.0, 1.0]
