"""A gate that is asked just when its own thread decides something: by a signal handler, or by a finalizer."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.k8s.gate.gangs import gang_of
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.threads import Gate
from tests.kit.patience import PATIENCE
from tests.kit.transports import POD, Transport, creation

if TYPE_CHECKING:
    from collections.abc import Callable


class Busy:
    """A clock that does something once, as the gate reads it: then the gate's lock is held by this very thread."""

    def __init__(self) -> None:
        self.then: Callable[[], object] | None = None

    def __call__(self) -> float:
        then, self.then = self.then, None
        if then is not None:
            then()
        return time.monotonic()


def at_the_create(gate: Gate) -> None:
    assert gate.create(creation(), Transport()).ok


def at_the_keyed_create(gate: Gate) -> None:
    assert gate.create(creation(key="once"), Transport()).ok


def at_the_gang(gate: Gate) -> None:
    with gate.gang(gang_of("team", [(POD, 2)])):
        pass


@pytest.mark.parametrize(
    "asked",
    [
        at_the_create,
        at_the_keyed_create,
        at_the_gang,
        Gate.close,
        Gate.waiting_now,
        lambda gate: gate.ledger.hint_release("team"),  # as every deletion does
    ],
    ids=["a create", "with a key", "a gang", "close", "who waits", "a deletion"],
)
@pytest.mark.parametrize("busy", [Ledger.hint_release, Ledger.is_watched], ids=["deciding", "answering"])
def test_a_signal_handler_or_a_finalizer_may_ask_a_gate_that_its_own_thread_is_busy_with(
    busy: Callable[[Ledger, str], object], asked: Callable[[Gate], object]
) -> None:
    """An operator's SIGTERM deletes the pod that it has just created: the gate's lock may be held below that frame."""
    clock = Busy()
    gate = Gate(clock=clock)
    assert gate.create(creation(), Transport()).ok
    done: list[str] = []

    def ask() -> None:
        asked(gate)
        done.append("asked")

    def work() -> None:
        clock.then = ask
        busy(gate.ledger, "team")
        done.append("worked")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)

    assert done == ["asked", "worked"]
    assert gate.create(creation(), Transport()).ok  # what was held is free again
    team = gate.ledger.snapshot().namespaces["team"]
    assert (team.waiting, gate.waiting()) == (0, [])
