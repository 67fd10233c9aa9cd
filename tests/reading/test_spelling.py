"""Which known name a misspelt one means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.kube.answers.spelling import abbreviated, hint, misspelt

KNOWN = ("plugins", "tasks", "default-cpus", "imagePullPolicy", "env", "hostIP")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("plugin", "plugins"), ("pluggins", "plugins"), ("task", "tasks"), ("Tasks", "tasks"), ("tsaks", "tasks"),
        ("default_cpus", "default-cpus"), ("defaultCpus", "default-cpus"), ("image-pull-polcy", "imagePullPolicy"),
        ("evn", "env"), ("enx", "env"),
        ("propeller", None), ("environment", None), ("storage", None), ("x", None), ("", None), ("ev" * 400, None),
    ],
)  # fmt: skip
def test_a_slip_is_told_from_another_name(written: str, meant: str | None) -> None:
    """One letter in a short name, two in a longer one, however it is cased and joined."""
    assert misspelt(written, KNOWN) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("img", "image"), ("cmd", "command"), ("CMD", "command"), ("vol", "volumes"),
        ("xyz", None), ("im", None), ("mage", None), ("", None), ("image", None),
    ],
)  # fmt: skip
def test_an_abbreviation_stands_for_a_name(written: str, meant: str | None) -> None:
    """Three or four letters in order, the first one included."""
    assert abbreviated(written, ["imagePullPolicy", "image", "command", "volumes"]) == meant


def test_a_hint_asks_or_lists() -> None:
    """What resembles nothing gets all names, and no list of hundreds."""
    assert hint("plugin", KNOWN) == "did you mean plugins?"
    assert hint("default-cpu-request", KNOWN) == "did you mean default-cpus?"
    assert hint("zzz", {"b", "a"}) == "choose from a, b"
    assert hint("zzz", []) == "leave it out"
    assert hint("zzz", [f"n{each:03}" for each in range(100)]).endswith("n029, ...")


@given(st.sampled_from(KNOWN), st.integers(0, 20), st.sampled_from("abcxyz"))
def test_any_one_slip_is_recognised(known: str, at: int, letter: str) -> None:
    """A letter too many, too few, changed, or swapped with its neighbour."""
    at %= len(known)
    swapped = known[:at] + known[at : at + 2][::-1] + known[at + 2 :]
    before, after = known[:at], known[at + 1 :]
    for slip in (f"{before}{letter}{known[at:]}", before + after, f"{before}{letter}{after}", swapped):
        assert misspelt(slip, [known]) == known, slip
