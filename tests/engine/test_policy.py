"""The settings: validated at construction; each error names the setting and its range."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from backoff_ctrl.engine import Policy, PolicyError

WHOLE = ("overtakes_max", "unproven_max", "overload_start", "overload_max", "waiters_max", "scan_max", "seats_max")
NUMBERS = [field.name for field in fields(Policy) if field.name not in ("on_never_fits", "gang_blind")]


def test_the_defaults_are_valid_and_frozen() -> None:
    """A policy without arguments is valid, and cannot be changed."""
    policy = Policy()

    with pytest.raises(AttributeError):
        policy.base = 2.0  # type: ignore[misc]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 10**12], ids=str)
def test_a_setting_out_of_its_range_is_named_with_the_range(name: str, value: float) -> None:
    """Below, above, infinite and not a number: one message with the setting's name."""
    settings: dict[str, Any] = {name: value}

    with pytest.raises(PolicyError, match=rf"^{name} must be "):
        Policy(**settings)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["1", None, True], ids=repr)
def test_a_setting_of_another_type_is_refused(name: str, value: object) -> None:
    """Texts, None and truth values are not numbers."""
    settings: dict[str, Any] = {name: value}

    kind = "whole number" if name in WHOLE else "number"
    with pytest.raises(PolicyError, match=rf"^{name} must be a {kind}, not "):
        Policy(**settings)


@pytest.mark.parametrize("name", WHOLE)
def test_counts_are_whole(name: str) -> None:
    """Half a request is refused."""
    settings: dict[str, Any] = {name: 8.5}

    with pytest.raises(PolicyError, match=f"^{name} must be a whole number, not 8.5$"):
        Policy(**settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"base": 2.0, "cap": 1.0}, r"base \(2.0\) must not be greater than cap \(1.0\)"),
        ({"settle_time": 1.0, "settle_max": 0.5}, r"settle_time \(1.0\) must not be greater than settle_max \(0.5\)"),
        ({"overload_start": 9, "overload_max": 8}, r"overload_start \(9\) must not be greater than overload_max \(8\)"),
    ],
)
def test_a_start_above_its_limit_is_refused(settings: dict[str, Any], sentence: str) -> None:
    """The message names both settings."""
    with pytest.raises(PolicyError, match=sentence):
        Policy(**settings)


@pytest.mark.parametrize("equal", [{"base": 5.0, "cap": 5.0}, {"overload_start": 8, "overload_max": 8}])
def test_a_start_equal_to_its_limit_is_allowed(equal: dict[str, Any]) -> None:
    """Equal values make a constant schedule."""
    assert Policy(**equal) == Policy(**equal)


def test_on_never_fits_is_fail_or_wait() -> None:
    """The one setting that is a word."""
    assert Policy(on_never_fits="wait").on_never_fits == "wait"
    with pytest.raises(PolicyError, match=r"^on_never_fits must be \"fail\" or \"wait\", not 'drop'$"):
        Policy(on_never_fits="drop")  # type: ignore[arg-type]


def test_ranges_are_inclusive() -> None:
    """Both ends are allowed."""
    assert Policy(overtakes_max=0, settle_time=0, answered_hold=0).overtakes_max == 0
    assert Policy(waiters_max=100_000_000, ticket_max=86_400, idle_ttl=1).idle_ttl == 1


def test_its_limits_of_overtaking_are_said_in_words() -> None:
    """Pages and dashboards show the defaults by it."""
    said = Policy(overtakes_max=5, overtaken_for_max=2.5, overtaken_at_most=90).until_kept()
    assert said == "after 5 times and 2.5 s, and at the latest 1.5 minutes after the first"
