"""gangs.md 2: reserved amounts are no holds: nothing confirms them, and they prove and disprove no ceiling."""

from __future__ import annotations

from backoff_ctrl.engine import Created, Demand
from tests.engine.gangs.test_unwatched import read
from tests.kit.timeline import NS, ONE, Timeline, amounts_of, settled, state_of


def test_a_rise_of_used_confirms_nothing_that_is_reserved() -> None:
    """It is somebody else's: the gang still has all it may draw, and credit for none of it."""
    line, gang = settled(0, 10).with_gang((4, 2))
    line.observe(2, 10)
    assert line.ceiling() == {"limited": 10 * ONE, "used": 2 * ONE, "held": 0, "headroom": 0}
    assert line.reserved() == 8
    draw = line.draw(gang)
    line.created(line.ticket_of(draw))
    assert line.ceiling()["held"] == 2 * ONE  # its own charge has yet to be observed


def test_an_ungated_success_beside_a_reservation_does_not_prove_that_the_quota_does_not_apply() -> None:
    """There was room for it, though not beside what the gang may still draw."""
    line = Timeline()
    large = line.submit(10)
    line.refused(line.ticket_of(large), 0, 8)
    line.controller.of(large.namespace).withdraw(large, line.now)
    request = line.reserve((4, 1))
    line.looked(True)
    assert line.gang_of(request).covered
    for cpu, applies in ((6, None), (9, False)):
        stranger = line.controller.of(NS).force(line.request(demand=Demand(amounts_of(cpu), ["gold"])), line.now)
        line.settle(stranger, Created())
        assert line.applies().get(frozenset({"gold"})) is applies


def test_what_only_a_reservation_blocks_is_not_probed() -> None:
    """The server would store it, in the room of the gang: it waits until the gang has ended."""
    line = Timeline()
    request = line.reserve((4, 1))
    read(line, 4, 8)
    line.later(0.01)
    assert line.gang_of(request).covered
    rival = line.submit(1)
    line.later(30)
    assert state_of(rival) == "waiting"
    line.give_back(line.gang_of(request))
    assert state_of(rival) == "sent"


def test_the_memory_keeps_no_reservations() -> None:
    """gangs.md 8: what a gang may still draw is not remembered as used."""
    line = settled(2, 10)
    line.gang((4, 2))
    assert line.controller.remember(line.now).quotas[NS]["compute"].ceilings["cpu"].used == 2 * ONE
