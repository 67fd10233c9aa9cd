"""Both tables, cell by cell: each listed event leads to its state, every other one raises and changes nothing."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from backoff_ctrl.engine import Abandoned, Created, Demand, Expired, Failed, Overloaded, Rejected, Request, TicketError
from backoff_ctrl.engine.facts.requests import REQUESTS, RequestEvent, RequestState
from backoff_ctrl.engine.line.blocks import BLOCKS, Block, BlockEvent, BlockState

BLOCK_STATES: tuple[BlockState, ...] = get_args(BlockState)
BLOCK_EVENTS: tuple[BlockEvent, ...] = get_args(BlockEvent)
REQUEST_STATES: tuple[RequestState, ...] = get_args(RequestState)
REQUEST_EVENTS: tuple[RequestEvent, ...] = get_args(RequestEvent)

# Written by hand from the words and laws, not read from the tables.
BLOCK_STEPS: dict[tuple[str, str], str] = {
    ("shut", "timer"): "ready",
    ("shut", "late"): "shut",
    ("ready", "probe"): "probing",
    ("ready", "late"): "shut",
    ("probing", "refused"): "shut",
    ("probing", "passed"): "ready",
    ("probing", "elsewhere"): "shut",
    ("probing", "undecided"): "ready",
    ("probing", "late"): "probing",
}
REQUEST_STEPS: dict[tuple[str, str], str] = {
    ("new", "submit"): "waiting",
    ("new", "admit"): "sent",
    ("new", "grant"): "over",
    ("new", "refuse"): "over",
    ("waiting", "admit"): "sent",
    ("waiting", "grant"): "over",
    ("waiting", "withdraw"): "over",
    ("waiting", "refuse"): "over",
    ("sent", "created"): "over",
    ("sent", "rejected"): "waiting",
    ("sent", "overloaded"): "waiting",
    ("sent", "failed"): "over",
    ("sent", "abandoned"): "over",
    ("sent", "expired"): "over",
}


@pytest.mark.parametrize(("state", "event"), list(product(BLOCK_STATES, BLOCK_EVENTS)))
def test_a_block_takes_each_listed_step_and_refuses_every_other(state: BlockState, event: BlockEvent) -> None:
    """A block moves as the law says, or raises and stays as it was."""
    block = Block(due=1.0)
    block.state = state
    want = BLOCK_STEPS.get((state, event))

    if want is None:
        with pytest.raises(TicketError, match=f"a block is {state}: '{event}' is not allowed in that state"):
            block.happens(event)
        assert block.state == state
    else:
        block.happens(event)
        assert block.state == want


@pytest.mark.parametrize(("state", "event"), list(product(REQUEST_STATES, REQUEST_EVENTS)))
def test_a_request_takes_each_listed_step_and_refuses_every_other(state: RequestState, event: RequestEvent) -> None:
    """A request moves as the law says, or raises and stays as it was."""
    request = Request("r1", "team-a", Demand({}))
    request.state = state
    want = REQUEST_STEPS.get((state, event))

    if want is None:
        with pytest.raises(TicketError, match=f"request r1 is {state}: '{event}' is not allowed in that state"):
            request.happens(event)
        assert request.state == state
    else:
        request.happens(event)
        assert request.state == want


def test_every_state_of_the_tables_can_be_reached() -> None:
    """Every state is a key, and some event leads to every state but the first."""
    assert set(BLOCKS) == set(BLOCK_STATES)
    assert {state for row in BLOCKS.values() for state in row.values()} == set(BLOCK_STATES)
    assert set(REQUESTS) == set(REQUEST_STATES)
    assert {state for row in REQUESTS.values() for state in row.values()} == set(REQUEST_STATES) - {"new"}


@pytest.mark.parametrize(
    ("outcome", "event"),
    [
        (Created(), "created"),
        (Rejected("q", {}, {}, {}), "rejected"),
        (Overloaded(), "overloaded"),
        (Failed(), "failed"),
        (Abandoned(), "abandoned"),
        (Expired(), "expired"),
    ],
)
def test_each_outcome_is_one_event_of_a_sent_request(outcome: Created | Rejected, event: RequestEvent) -> None:
    """The six outcomes are the six ways out of ``sent``, one each."""
    assert outcome.event == event
    assert event in REQUESTS["sent"]
