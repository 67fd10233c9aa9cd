"""Quantities as the sandbox reads and prints them: in a quota's message they are the part that varies."""

from __future__ import annotations

import pytest

from backoff_ctrl.k8s.lab.sandbox.admission.amounts import AmountError, amount_of, canonical_list


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1000Ki", "1000Ki"),
        ("9048576k", "9048576k"),
        ("1e3", "1e3"),
        ("1000000", "1M"),
        ("12E", "12E"),
        ("0.7m", "700u"),
        ("0.1n", "1n"),
        ("-1.5", "-1500m"),
        ("100Mi", "100Mi"),
        ("0.5Gi", "512Mi"),
        ("0.5Ki", "512"),
        ("1500M", "1500M"),
        ("17145233164", "17145233164"),
        ("0", "0"),
        ("0Gi", "0"),
        ("1E2", "100"),
        ("5E", "5E"),
        ("1.", "1."),
        (".5", "500m"),
        ("1e-3", "1e-3"),
        ("123Ei", "9223372036854775807"),
        ("0.1Mi", "104857600m"),
        ("1.500", "1.500"),
        ("+2Gi", "+2Gi"),
        ("007", "007"),
        ("2000m", "2"),
        ("0.500", "500m"),
        ("1e1", "10"),
        ("12e-1", "1200e-3"),
        ("3E0", "3E0"),
        ("16Mi", "16Mi"),
        ("12345678901234567890", "12345678901234567890"),
        ("-0.5Ki", "-512"),
        ("1000E", "1"),
        ("+", "0"),
        ("Mi", "0"),
        (None, "0"),
        (2, "2"),
        (0.25, "250m"),
    ],
)
def test_quantities_print_as_apimachinery_prints_them(written: str | float | None, told: str) -> None:
    """Canonical: the shortest exact form in the family it was written in, unless the text already looks canonical."""
    assert str(amount_of(written)) == told


@pytest.mark.parametrize("text", ["", "x", "1.2.3", "--1", "1KiB", "1 Gi", [], {}, True, "0x10", "1e", "٣"])
def test_an_invalid_quantity_is_refused(text: object) -> None:
    """With the message of apimachinery."""
    with pytest.raises(AmountError, match="quantit"):
        amount_of(text)


def test_a_sum_is_canonical() -> None:
    """The written text of an amount is dropped as soon as something is added to it."""
    assert str(amount_of("1.500").plus(amount_of("0"))) == "1500m"
    assert str(amount_of("1.500").minus(amount_of("500m"))) == "1"


def test_a_resource_list_is_no_finer_than_a_thousandth() -> None:
    """Finer amounts are rounded up, away from zero."""
    written = {"a": "0.1n", "b": "2500u", "c": "-2500u", "d": "1.500", "e": "1.0001"}

    assert canonical_list(written) == {"a": "1m", "b": "3m", "c": "-3m", "d": "1.500", "e": "1001m"}
