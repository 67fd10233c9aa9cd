"""Bounded overtaking: however rarely small ones come, room is kept for a large one in time, and without pause."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from backoff_ctrl.engine import Created, Demand, ObservedQuota, Parts, Policy, Request, Reservation, Ticket
from tests.kit.engine_twin import TwinPassing, TwinWaiter
from tests.kit.timeline import NS, ONE, QUOTA, Timeline, settled, state_of

HOUR = 3600.0
AT_MOST = Policy().overtaken_at_most
STALLED = Policy().keep_stalled


class World(Timeline):
    """A watched quota that counts at once; each create ends ``runs_for`` after it was sent, and its end is told."""

    def __init__(self, limited: int, runs_for: float, policy: Policy | None = None) -> None:
        super().__init__(policy)
        self.limited, self.runs_for = limited, runs_for
        self.used = 0
        self.sticks = False
        """Whether ``used`` no longer falls."""
        self.running: list[tuple[float, Request]] = []
        self.inside: dict[Request, float] = {}
        self.line: list[TwinWaiter] = []
        self.passing = TwinPassing(self.controller.policy.overtaken_at_most, tolerance=1)
        self.broken: list[str] = []
        self._seen = 0
        self.observe(0, limited)
        self.watching()
        self.controller.ends_told(NS, self.now, told=True)
        self.later(1)

    def come(self, size: int) -> Request:
        """Submit a create now."""
        request = self.request(size)
        self.controller.submit(request, self.now)
        self.line.append(waiter(request))
        self.advance()
        self._store()
        return request

    def run_until(self, moment: float) -> None:
        """Let time pass, and what runs end in its time."""
        while self.running and self.running[0][0] <= moment:
            at, request = self.running.pop(0)
            self.until(max(self.now, at))
            self._store()
            self.used -= 0 if self.sticks else size_of(request)
            self.controller.ended(NS, request.id, self.now)
            self.observe(self.used, self.limited, then=self.controller.policy.settle_max)
            self._store()
        self.until(moment)
        self._store()

    def _store(self) -> None:
        """Have the server store and count what was sent since."""
        while self._seen < len(self.log):
            at, ticket = self.log[self._seen]
            self._seen += 1
            assert isinstance(ticket, Ticket)
            request = ticket.request
            self.line.remove(waiter(request))
            room = {"cpu": self.limited - self.used}
            self.broken += self.passing.admitted(waiter(request), self.line, room, at)
            self.used += size_of(request)
            assert self.used <= self.limited
            self.inside[request] = at
            self.running.append((at + self.runs_for, request))
            self.observe(self.used, self.limited)
            self.settle(ticket, Created(stored=request.id))


def size_of(request: Request) -> int:
    return request.demand.amounts["cpu"] // ONE


def waiter(request: Request) -> TwinWaiter:
    return TwinWaiter((request.rank, request.seq), request.id, {"cpu": size_of(request)})


@given(runs_for=st.floats(HOUR, 3 * HOUR), size=st.integers(3, 4), begin=st.floats(0, HOUR))
@example(runs_for=1.5 * HOUR, size=4, begin=60.0)
def test_one_small_create_an_hour_passes_a_large_one_for_ten_minutes(runs_for: float, size: int, begin: float) -> None:
    """For a day: the large one is in ten minutes after the first that passed, and the time that its room takes."""
    world = World(4, runs_for)
    for hour in range(4):
        world.run_until(max(world.now, hour * HOUR))
        world.come(1)
    world.run_until(world.now + begin)
    large = world.come(size)
    for hour in range(5, 29):
        world.run_until(max(world.now, hour * HOUR))
        world.come(1)

    assert large in world.inside
    first = world.passing.first.get(large.id, world.inside[large])
    assert world.inside[large] <= first + AT_MOST + runs_for + 2
    assert world.broken == []


@given(
    sizes=st.lists(st.integers(1, 8), min_size=4, max_size=40),
    gap=st.floats(60, HOUR),
    runs_for=st.floats(60, 2 * HOUR),
    at_most=st.floats(0, HOUR),
)
def test_none_is_passed_for_longer_than_that(sizes: list[int], gap: float, runs_for: float, at_most: float) -> None:
    """Beside the naive twin, which goes over the whole line at each admission."""
    world = World(8, runs_for, Policy(overtaken_at_most=at_most))
    for size in sizes:
        world.come(size)
        world.run_until(world.now + gap)
    world.run_until(world.now + (len(sizes) + 1) * (runs_for + 1))

    assert len(world.inside) == len(sizes)
    assert world.broken == []


def owed(runs_for: float = HOUR) -> tuple[World, Request]:
    """Return a line in which room is owed, by time, to one of four CPUs; of five, three are in use."""
    world = World(5, runs_for)
    world.come(1)
    world.run_until(60)
    world.come(1)
    large = world.come(4)
    assert state_of(world.come(1)) == "over"
    world.run_until(world.now + AT_MOST)
    return world, large


def test_owed_room_is_kept_without_pause() -> None:
    """Nothing ends for most of an hour: that the kept room does not grow is no reason to let it go."""
    world, large = owed()
    small = world.come(1)
    world.run_until(HOUR)
    assert (small.state, large.state) == ("waiting", "waiting")
    world.run_until(HOUR + 120)
    assert state_of(large) == "over"


def test_owed_room_is_let_go_while_used_does_not_fall_though_creates_end() -> None:
    """A minute after an end that changed nothing; ten minutes after it keeping is tried again."""
    world, large = owed()
    world.sticks = True
    (ends, _), *_ = world.running
    small = world.come(1)
    world.run_until(ends + STALLED - 1)
    assert small.state == "waiting"
    world.run_until(ends + STALLED + 1)
    assert state_of(small) == "over"
    world.run_until(ends + 10 * STALLED + 1)
    small = world.come(1)
    assert (small.state, large.state) == ("waiting", "waiting")


def test_owed_room_is_kept_again_as_soon_as_used_falls() -> None:
    """Whoever lowers it: it does not stick."""
    world, large = owed()
    world.sticks = True
    (ends, _), *_ = world.running
    world.run_until(ends + STALLED + 1)
    assert state_of(world.come(1)) == "over"
    world.used -= 1
    world.observe(world.used, 5, then=1)
    assert (world.come(1).state, large.state) == ("waiting", "waiting")


def test_ends_elsewhere_prove_nothing() -> None:
    """What ends was charged cpu, and room is kept of GPUs."""
    line = Timeline()
    hard = {"cpu": 10 * ONE, "gpu": 4 * ONE}
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, {"cpu": 0, "gpu": 2 * ONE}), line.now)
    line.watching()
    line.controller.ends_told(NS, line.now, told=True)
    line.later(1)
    other = line.ticket_of(line.submit(demand=Demand({"cpu": ONE})))
    line.settle(other, Created(stored="other"))
    line.submit(demand=Demand({"gpu": 3 * ONE}))
    passing = line.ticket_of(line.submit(demand=Demand({"gpu": ONE})))
    line.settle(passing, Created(stored="passing"))
    used = {"cpu": ONE, "gpu": 3 * ONE}
    line.controller.observe_quota(NS, QUOTA, ObservedQuota(hard, hard, used), line.now)
    line.later(AT_MOST)
    small = line.submit(demand=Demand({"gpu": ONE}))
    line.later(STALLED)
    line.controller.ended(NS, "other", line.now)
    line.later(2 * STALLED)
    assert small.state == "waiting"


def beside_a_gang() -> tuple[Timeline, Request]:
    """Return a line in which room is owed to one of four CPUs, beside a gang of a and b, and a small one that waits."""
    line = settled(0, 5)
    line.controller.gangs_of(NS).follow_members(line.now, told=True)
    request = Reservation("gang", NS, Parts([(Demand({"cpu": ONE}), 2)]), keeps=True)
    line.controller.of(request.namespace).reserve(request, line.now)
    line.advance()
    gang = line.gang_of(request)
    for uid in "ab":
        line.controller.gangs_of(gang.namespace).appeared(gang, uid, Demand({"cpu": ONE}), line.now)
    line.observe(2, 5, then=1)
    line.submit(4)
    line.created(line.ticket_of(line.submit(1)))
    line.observe(3, 5, then=AT_MOST)
    small = line.submit(1)
    line.later(2 * STALLED)
    assert small.state == "waiting"
    return line, small


def test_the_end_of_a_gangs_member_counts_too() -> None:
    """Its charge stays in ``used``: the large one gets no room by waiting."""
    line, small = beside_a_gang()
    line.controller.ended(NS, "a", line.now)
    line.later(STALLED + 1)
    assert state_of(small) == "sent"


def test_an_end_soon_after_a_fall_of_used_proves_nothing() -> None:
    """News of pods and of quotas come in any order: the fall may be the one of that end."""
    line, small = beside_a_gang()
    line.observe(2, 5, then=1)
    line.controller.ended(NS, "a", line.now)
    line.later(3 * STALLED)
    assert small.state == "waiting"
