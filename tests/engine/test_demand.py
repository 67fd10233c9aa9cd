"""Demand and selector: equality is by content; which scope classes a quota applies to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine import Demand, Selector

AMOUNTS = st.dictionaries(st.sampled_from(["pods", "cpu", "requests.nvidia.com/gpu"]), st.integers(0, 10**20))
SCOPES = st.frozensets(st.sampled_from(["BestEffort", "Terminating", "PriorityClass", "PriorityClass=high"]))


@given(amounts=AMOUNTS, scopes=SCOPES)
def test_equal_content_is_the_same_shape_in_any_order(amounts: dict[str, int], scopes: frozenset[str]) -> None:
    """Key, equality and hash agree, whatever the order of the amounts."""
    one = Demand(amounts, scopes)
    other = Demand(dict(reversed(amounts.items())), sorted(scopes, reverse=True))

    assert one == other
    assert one.key == other.key
    assert hash(one) == hash(other)
    assert list(one.amounts) == sorted(name for name, amount in amounts.items() if amount)


@given(amounts=AMOUNTS, others=AMOUNTS, scopes=SCOPES, other_scopes=SCOPES)
def test_different_content_is_another_shape(
    amounts: dict[str, int], others: dict[str, int], scopes: frozenset[str], other_scopes: frozenset[str]
) -> None:
    """Two demands are equal exactly when their non-zero amounts and scope facts are."""
    same = {n: a for n, a in amounts.items() if a} == {n: a for n, a in others.items() if a} and scopes == other_scopes

    assert (Demand(amounts, scopes) == Demand(others, other_scopes)) is same


def test_a_demand_equals_only_demands_and_is_read_only() -> None:
    """It equals no dict, and its amounts cannot be changed."""
    demand = Demand({"cpu": 5, "pods": 0})

    assert demand != {"cpu": 5}
    assert repr(demand) == "Demand({'cpu': 5}, scopes=[])"
    with pytest.raises(TypeError):
        demand.amounts["cpu"] = 6  # type: ignore[index]


def test_a_negative_amount_is_refused_with_its_name() -> None:
    """The error names the resource."""
    with pytest.raises(ValueError, match=r"^cpu: a demand cannot be negative, got -5 nano-units$"):
        Demand({"cpu": -5})


@pytest.mark.parametrize(
    ("clauses", "scopes", "want"),
    [
        pytest.param([], set(), True, id="no clause applies to everything"),
        pytest.param([(True, {"BestEffort"})], {"BestEffort"}, True, id="wanted and there"),
        pytest.param([(True, {"BestEffort"})], set(), False, id="wanted and missing"),
        pytest.param([(False, {"BestEffort"})], set(), True, id="unwanted and missing"),
        pytest.param([(False, {"BestEffort"})], {"BestEffort"}, False, id="unwanted and there"),
        pytest.param([(True, {"a", "b"})], {"b", "c"}, True, id="one of many is enough"),
        pytest.param([(False, {"a", "b"})], {"b", "c"}, False, id="one of many is too much"),
        pytest.param([(True, {"a"}), (False, {"b"})], {"a"}, True, id="every clause holds"),
        pytest.param([(True, {"a"}), (False, {"b"})], {"a", "b"}, False, id="one clause does not"),
    ],
)
def test_a_selector_applies_when_every_clause_holds(
    clauses: list[tuple[bool, set[str]]], scopes: set[str], want: bool
) -> None:
    """The scope table of a quota, row by row."""
    selector = Selector((wanted, frozenset(facts)) for wanted, facts in clauses)

    assert selector.applies(frozenset(scopes)) is want


def test_selectors_are_equal_by_clauses() -> None:
    """Equal clauses make equal selectors, and a selector equals nothing else."""
    one = Selector([(True, frozenset({"a"}))])

    assert one == Selector([(True, frozenset({"a"}))])
    assert hash(one) == hash(Selector([(True, frozenset({"a"}))]))
    assert one != Selector()
    assert one != "a"


def test_different_contents_have_different_hashes() -> None:
    """A thousand shapes are found in a dictionary at once, not one after the other."""
    assert len({hash(Demand({"cpu": amount})) for amount in range(1000)}) > 900
    assert len({hash(Selector([(True, frozenset({str(name)}))])) for name in range(1000)}) > 900
