"""Law 20 through the ledger: what a proxy needs to give a caller its place back."""

from __future__ import annotations

import pytest

from backoff_ctrl.engine import Abandoned, Identity, ObservedQuota, Policy, Rejected
from backoff_ctrl.k8s.creates.creation import Creation
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.timers import ThreadTimers
from backoff_ctrl.k8s.gate.waiters import Trial

POD = {"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c"}]}}
ANN = Identity("ann", "p-")
FULL = {"pods": 4 * 10**9}


def waiting_ledger() -> Ledger:
    """Return a ledger at a watched full quota."""
    ledger = Ledger(ThreadTimers(), Policy(), "enforce", None)
    ledger.observe_quota("team", "q", ObservedQuota(FULL, FULL, FULL))
    ledger.watching("team")
    return ledger


def stand(ledger: Ledger, identity: Identity | None = None) -> tuple[int, Trial]:
    """Put a create in line; return its place, and its waiter."""
    request, waiter = ledger.request(Creation("http://s", "me", "team", "pods", POD)), Trial(lambda _: None)
    ledger.stand(request, waiter, identity)
    why = ledger.explain(request)
    return 0 if why is None else why.place, waiter


def test_who_left_with_a_seat_stands_where_it_stood() -> None:
    """First in line, behind nobody who came meanwhile; and the seat is gone then."""
    ledger = waiting_ledger()
    request = ledger.request(Creation("http://s", "me", "team", "pods", POD))
    ledger.stand(request, Trial(lambda _: None))
    ledger.leave(request, ANN, retry_after=1.0)
    assert ledger.snapshot().namespaces["team"].seats == 1
    stand(ledger)

    assert stand(ledger, ANN)[0] == 1
    assert stand(ledger, ANN)[0] == 3
    assert ledger.snapshot().namespaces["team"].seats == 0
    assert ledger.counts.waiting == 3


@pytest.mark.parametrize("outcome", [Abandoned(ANN), Rejected("q", {"pods": 10**9}, FULL, FULL)], ids=lambda o: o.event)
def test_a_create_that_ends_uncreated_may_leave_a_seat(outcome: Abandoned | Rejected) -> None:
    """It had a ticket: it was given back unsent, or the server refused it after its caller had gone."""
    ledger = Ledger(ThreadTimers(), Policy(), "enforce", None)
    first = ledger.force(ledger.request(Creation("http://s", "me", "team", "pods", POD)))
    assert first is not None
    ledger.observe_quota("team", "q", ObservedQuota(FULL, FULL, FULL))
    ledger.watching("team")
    stand(ledger)
    ledger.settle(first, outcome, seat=ANN)

    assert ledger.snapshot().namespaces["team"].seats == 1
    assert stand(ledger, ANN)[0] == 1
