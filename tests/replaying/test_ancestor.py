"""The ancestor's back-off: its schedule and its defects are those of Flyte 1."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine.facts.quantities import parse_quantity
from backoff_ctrl.k8s.lab.replay.clients import Backoff, requested_limits


@pytest.mark.parametrize(
    ("base", "delays"),
    [
        pytest.param(2.0, [1, 2, 4, 8, 16, 20, 20], id="base-2"),
        pytest.param(3.0, [1, 3, 9, 20, 20], id="base-3"),
        pytest.param(10.0, [1, 10, 20, 20], id="base-10"),
        pytest.param(1.0, [1, 1, 1, 1], id="base-1"),
    ],
)
def test_the_first_delay_is_a_second_and_the_cap_is_twenty(base: float, delays: list[int]) -> None:
    """base^exponent; the exponent stops growing once the cap is passed."""
    backoff = Backoff(0.0, base=base)
    assert [backoff.back_off(0.0) for _ in delays] == delays


def test_it_still_blocks_at_the_very_instant_its_timer_ends() -> None:
    """Therefore a create at the instant of a reset is blocked, too."""
    backoff = Backoff(5.0)
    assert backoff.blocks(5.0)
    assert not backoff.blocks(5.0001)
    backoff.succeeded(7.0)
    assert backoff.blocks(7.0)


@pytest.mark.parametrize(
    ("requested", "learned"),
    [
        pytest.param("limits.cpu=7,limits.memory=64Gi", {"cpu": "7", "memory": "64Gi"}, id="limits"),
        pytest.param("limits.cpu=4,requests.nvidia.com/gpu=1", {"cpu": "4"}, id="the-rest-is-lost"),
        pytest.param("requests.nvidia.com/gpu=1", {}, id="gpus-are-not-seen"),
        pytest.param("pods=1", {}, id="pods-are-not-seen"),
        pytest.param("cpu=4,limits.cpu=4", {}, id="cpu-sorts-first"),
        pytest.param("limits.memory=1.5Gi", {"memory": "1"}, id="cut-at-the-point"),
    ],
)
def test_it_reads_the_limits_straight_after_requested_and_nothing_else(requested: str, learned: dict[str, str]) -> None:
    """Its regular expression matches limits only."""
    message = f'pods "p" is forbidden: exceeded quota: q, requested: {requested}, used: limits.cpu=3, limited: x=1'
    assert requested_limits(message) == {name: parse_quantity(amount) for name, amount in learned.items()}


def refusal(requested: str) -> str:
    """The part of a refusal's text that the ancestor reads."""
    return f"exceeded quota: q, requested: {requested}, used: limits.cpu=3, limited: limits.cpu=3"


def test_a_request_as_large_as_its_ceiling_waits_and_a_smaller_one_is_tried() -> None:
    """It compares with ``>=``, and does not limit how many smaller requests are tried."""
    backoff = Backoff(0.0)
    backoff.refused(refusal("limits.cpu=4"), was_blocking=False, now=10.0)
    assert not backoff.tries({"cpu": parse_quantity("4")}, 10.5)
    assert backoff.tries({"cpu": parse_quantity("3")}, 10.5)
    assert backoff.tries({"cpu": parse_quantity("4")}, 11.1)


def test_any_success_wipes_every_ceiling_and_the_timer() -> None:
    """After the success of a tiny pod all large ones are sent."""
    backoff = Backoff(0.0)
    backoff.refused(refusal("limits.cpu=4,limits.memory=8Gi"), was_blocking=False, now=10.0)
    backoff.succeeded(10.2)
    assert backoff.tries({"cpu": parse_quantity("400")}, 10.2)
    assert backoff.exponent == 0


def test_a_ceiling_is_lowered_by_whole_units_only() -> None:
    """``Value()`` rounds up, so 200m is not below 500m."""
    backoff = Backoff(0.0)
    backoff.refused(refusal("limits.cpu=500m"), was_blocking=False, now=10.0)
    backoff.refused(refusal("limits.cpu=200m"), was_blocking=True, now=10.1)
    assert backoff.ceilings == {"cpu": parse_quantity("500m")}


def test_a_refusal_of_a_create_sent_while_it_blocked_leaves_the_timer() -> None:
    """Only a create sent while it did not block advances the timer."""
    backoff = Backoff(0.0)
    backoff.refused(refusal("limits.cpu=4"), was_blocking=False, now=10.0)
    due = backoff.next_eligible
    backoff.refused(refusal("limits.cpu=3"), was_blocking=True, now=10.3)
    assert backoff.next_eligible == due
