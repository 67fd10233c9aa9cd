"""A place survives, through the ledger: what a proxy needs to give a caller its place back."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Abandoned, Identity, ObservedQuota, Policy, Rejected
from backoff_ctrl.engine.tickets import Ticket
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.threads import Gate

POD = {"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c"}]}}
ANN = Identity("ann", "p-")
FULL = {"pods": 4 * 10**9}


def fill(ledger: Ledger) -> None:
    """Report a full quota, whose changes are watched."""
    ledger.observe_quota("team", "q", ObservedQuota(FULL, FULL, FULL))
    ledger.watching("team")


def join(gate: Gate, seat: Identity | None = None) -> Create:
    """Put a create in line."""
    create = Create(gate, Creation("http://s", "me", "team", "pods", POD, seat=seat, retry_after=1.0))
    create.request = gate.ledger.line.request(create.creation)
    gate.ledger.line.join(create, None)
    return create


def place(create: Create) -> int:
    """Return its place in line; 0: it does not stand there."""
    why = None if create.request is None else create.ledger.explain(create.request)
    return 0 if why is None else why.place


def test_who_left_with_a_seat_stands_where_it_stood() -> None:
    """First in line, behind nobody who came meanwhile; and the seat is gone then."""
    gate = Gate(policy=Policy())
    ledger = gate.ledger
    fill(ledger)
    ledger.line.end(join(gate, ANN), None)
    assert ledger.snapshot().namespaces["team"].seats == 1
    join(gate)

    assert place(join(gate, ANN)) == 1
    assert place(join(gate, ANN)) == 3
    assert ledger.snapshot().namespaces["team"].seats == 0
    assert ledger.counts.waiting == 3


@pytest.mark.parametrize("outcome", [Abandoned(ANN), Rejected("q", {"pods": 10**9}, FULL, FULL)], ids=lambda o: o.event)
def test_a_create_that_ends_uncreated_may_leave_a_seat(outcome: Abandoned | Rejected) -> None:
    """It had a ticket: it was given back unsent, or the server refused it after its caller had gone."""
    gate = Gate(policy=Policy())
    ledger = gate.ledger
    first = join(gate, ANN)
    assert isinstance(ledger.line.take(first), Ticket)
    fill(ledger)
    join(gate)
    ledger.line.end(first, outcome)

    assert ledger.snapshot().namespaces["team"].seats == 1
    assert place(join(gate, ANN)) == 1
