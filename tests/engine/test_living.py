"""Law 8: where the ends of our creates are told, no count of what is used is believed below what lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl import Created, Demand, ObservedQuota, Rejected, Ticket
from backoff_ctrl.ceilings import Ceiling, Quota
from backoff_ctrl.living import DOUBTED_MAX, ENDED_MAX, LASTING, LIVES_MAX, Life, Living
from tests.timeline import NS, ONE, QUOTA, Timeline, amounts_of, tickets

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.explaining import CeilingSnapshot

SETTLED = 0.0025


class Followed(Timeline):
    """A watched namespace with a quota of four, whose ends are told. Creates are called a, b, c and so on."""

    def __init__(self, *, told: bool = True) -> None:
        super().__init__()
        self.observe(0, 4)
        self.watching()
        if told:
            self.controller.ends_told(NS, self.now, told=True)
        self.advance()

    def create(self, *names: str, cpu: float = 1) -> None:
        """Have so many created and answered, with their charges seen."""
        used = self.cpu().used
        sent = [self.ticket_of(self.submit(cpu)) for _ in names]
        self.observe((used + sum(ticket.request.demand.amounts["cpu"] for ticket in sent)) / ONE, 4)
        for ticket, name in zip(sent, names, strict=True):
            self.settle(ticket, Created(stored=name))

    def wait_in_line(self, waiters: int = 5) -> None:
        """Have somebody wait."""
        for _ in range(waiters):
            self.submit(1)
        assert self.waiting() == waiters

    def wait_more(self, waiters: int) -> None:
        """Have more wait, whoever of them goes at once."""
        for _ in range(waiters):
            self.submit(1)

    def count_again(self, used: float) -> list[Ticket]:
        """Tell of a recount, and let it settle."""
        four, by = amounts_of(4), frozenset({"cpu"})
        seen = ObservedQuota(four, four, amounts_of(used), recounted=by)
        self.controller.observe_quota(NS, QUOTA, seen, self.now)
        return [*tickets(self.advance()), *tickets(self.later(SETTLED))]

    def end(self, name: str) -> list[Ticket]:
        """Tell of an end."""
        self.controller.ended(NS, name, self.now)
        return tickets(self.advance())

    def cpu(self) -> CeilingSnapshot:
        """Show the one there is."""
        return self.controller.snapshot(self.now).namespaces[NS].quotas[QUOTA]["cpu"]


def full(*, told: bool = True) -> Followed:
    """Return one that is full of a, b, c and d, with five in line."""
    line = Followed(told=told)
    line.create("a", "b", "c", "d")
    line.wait_in_line()
    return line


@pytest.mark.parametrize(("counted", "ended", "free"), [(2, "", 0), (2, "a", 1), (3, "ab", 1), (2, "ab", 2)])
def test_only_what_has_ended_makes_room(counted: int, ended: str, free: int) -> None:
    """A recount that lacks creates that live frees nothing; of what it frees beyond, everything counts."""
    line = full()
    for name in ended:
        assert line.end(name) == []  # an end is no room: the quota gives it back

    assert len(line.count_again(counted)) == free


def test_room_that_was_doubted_counts_as_soon_as_the_end_is_told() -> None:
    """The quota's news may overtake the pod's."""
    line = full()
    assert line.count_again(3) == []

    assert len(line.end("c")) == 1
    assert line.end("d") == []


def test_what_a_recount_lacked_and_finds_again_changes_nothing() -> None:
    """It was never given away, and it is no room later."""
    line = full()
    assert line.count_again(2) == []
    assert line.count_again(4) == []
    assert line.cpu().used == 4 * ONE
    assert tickets(line.later(5)) == []


def test_what_lives_is_shown_as_used() -> None:
    """Who asks why somebody waits hears of no room that is not believed."""
    line = full()
    line.count_again(1)
    assert (line.cpu().used, line.cpu().headroom) == (4 * ONE, 0)
    line.end("a")
    assert (line.cpu().used, line.cpu().headroom, line.cpu().held) == (3 * ONE, 0, ONE)


def test_a_recount_is_doubted_for_nothing_else_where_ends_are_told() -> None:
    """Told of each end it is known what lives: no room waits for the time that a recount may trail."""
    for told, free in ((True, 4), (False, 0)):
        line = Followed(told=told)
        sent = [line.ticket_of(line.submit(1)) for _ in range(4)]
        line.wait_in_line()
        line.later(0.01)
        line.observe(4, 4)
        for ticket, name in zip(sent, "abcd", strict=True):
            line.settle(ticket, Created(stored=name))
            line.end(name)
        assert len(line.count_again(0)) == free


def test_a_doubt_that_lasts_is_let_go_and_begins_anew_with_the_next_create() -> None:
    """Charged less than we believe, or given back before its end: the server decides, after a second."""
    line = full()
    assert line.count_again(2) == []
    assert tickets(line.later(LASTING - 2 * SETTLED)) == []
    went = tickets(line.later(2 * SETTLED))
    assert len(went) == 2
    line.observe(4, 4)
    for ticket, name in zip(went, "ef", strict=True):
        line.settle(ticket, Created(stored=name))

    assert line.end("a") == line.end("b") == []  # they count no more, and their ends do not make the others count less
    assert len(line.count_again(1)) == 2  # e and f are known to live, whatever is counted


def test_a_doubt_that_grows_has_lasted_for_no_longer() -> None:
    """More news in the same second is no reason to let it go sooner."""
    line = full()
    assert line.count_again(3) == []
    line.later(LASTING / 2)
    assert line.count_again(1) == []
    assert tickets(line.later(LASTING / 4)) == []


def test_doubts_that_come_and_go_are_not_let_go() -> None:
    """A busy second is full of recounts that lack what was created in it; each is found again soon."""
    line = full()
    alive = ["a", "b", "c", "d"]
    line.wait_more(95)
    for number in range(90):  # six seconds
        line.end(alive.pop(0))
        (ticket,) = line.count_again(3)
        line.observe(4, 4)
        line.settle(ticket, Created(stored=f"new-{number}"))
        alive.append(f"new-{number}")
        assert line.count_again(3) == []
        line.later(0.06)
        assert line.count_again(4) == []


@pytest.mark.parametrize("each", [0.05, 0.3, 0.9])
def test_in_a_busy_namespace_too_a_doubt_is_let_go_in_the_end(each: float) -> None:
    """One that is taken to live and is not charged costs its room for half a minute, however much comes and goes."""
    line = Followed()
    line.create("false")
    line.observe(0, 4)
    line.later(SETTLED)
    alive = ["a", "b", "c"]
    sent = [line.ticket_of(line.submit(1)) for _ in alive]
    line.observe(3, 4)
    for ticket, name in zip(sent, alive, strict=True):
        line.settle(ticket, Created(stored=name))
    line.wait_more(1000)
    began, went = line.now, list[Ticket]()
    while line.now < began + DOUBTED_MAX + 2:
        went += line.end(alive.pop(0))
        line.observe(len(alive) + len(went), 4)
        went += tickets(line.later(SETTLED))
        line.observe(len(alive) + len(went), 4)
        for ticket in went:
            line.settle(ticket, Created(stored=ticket.request.id))
            alive.append(ticket.request.id)
        went = tickets(line.later(each))

    assert len(alive) + len(went) == 4


def test_a_doubt_is_looked_at_though_no_news_comes() -> None:
    """What the quota never counts, since it is none of its business, ends its hold by time and is let go in the end."""
    line = Followed()
    sent = [line.ticket_of(line.submit(1)) for _ in range(4)]
    for ticket, name in zip(sent, "abcd", strict=True):
        line.settle(ticket, Created(stored=name))
    line.wait_in_line()
    assert tickets(line.later(LASTING)) == []

    assert len(tickets(line.later(0.1))) == 4
    assert line.controller.next_deadline() is not None


def test_an_end_that_is_told_before_the_answer_leaves_nothing_behind() -> None:
    """The watch may be faster than the answer: what is over is not counted as living for ever."""
    line = Followed()
    sent = [line.ticket_of(line.submit(1)) for _ in range(4)]
    line.wait_in_line()
    line.observe(4, 4)
    line.end("a")
    for ticket, name in zip(sent, "abcd", strict=True):
        line.settle(ticket, Created(stored=name))

    assert len(line.count_again(3)) == 1


def test_an_end_before_the_hold_has_ended_counts_too() -> None:
    """The answer has come, the charge is not seen yet, and the pod is over already."""
    line = Followed()
    sent = [line.ticket_of(line.submit(1)) for _ in range(4)]
    line.wait_in_line()
    for ticket, name in zip(sent, "abcd", strict=True):
        line.settle(ticket, Created(stored=name))
    line.end("a")
    line.observe(4, 4)

    assert len(line.count_again(3)) == 1


def test_where_ends_may_be_missed_nothing_is_taken_to_live() -> None:
    """A lost watch is no reason to believe that nothing has ended, and what came before it comes back is not known."""
    line = full()
    line.count_again(2)
    line.controller.ends_told(NS, line.now, told=False)
    assert len(tickets(line.advance())) == 2

    line = full()
    line.controller.ends_told(NS, line.now, told=False)
    line.controller.ends_told(NS, line.now, told=True)
    assert len(line.count_again(1)) == 3


def test_a_refusal_that_says_more_is_believed_over_the_doubt() -> None:
    """Its figures are newer: what they leave is no less for what was doubted before."""
    line = Followed()
    line.create("a", "b")
    line.count_again(1)
    ticket = line.ticket_of(line.submit(2))
    line.later(0.001)
    line.refused(ticket, 3, 4)

    assert (line.cpu().used, line.cpu().headroom) == (3 * ONE, ONE)


def test_a_refusal_that_says_less_than_lives_is_doubted_too() -> None:
    """It speaks of the same count: an edited limit is believed, and no less used than what lives."""
    line = Followed()
    line.create("a", "b", "c")
    line.later(0.01)
    line.refused(line.ticket_of(line.submit(1)), 1, 1)

    assert (line.cpu().limited, line.cpu().used) == (ONE, 3 * ONE)


def test_a_doubt_that_a_refusal_brings_is_let_go_too() -> None:
    """It came before the news of the watch, which are of the same amounts, and nothing more comes."""
    line = full()
    line.later(5)
    forced = line.controller.force(line.request(4), line.now)
    line.later(0.01)
    line.settle(forced, Rejected(QUOTA, {"cpu": 4 * ONE}, {"cpu": ONE}, {"cpu": 4 * ONE}))
    line.controller.withdraw(forced.request, line.now)
    line.later(2 * LASTING + SETTLED)

    assert line.waiting() == 5 - 3


def test_a_doubt_that_a_refusal_on_an_ungated_path_brings_is_let_go_too() -> None:
    """As ``learn`` hears of it."""
    line = full()
    line.later(5)
    rejected = Rejected(QUOTA, {"cpu": 4 * ONE}, {"cpu": ONE}, {"cpu": 4 * ONE})
    line.controller.learn(NS, frozenset(), rejected, line.now - 0.01, line.now)
    line.later(2 * LASTING + SETTLED)

    assert line.waiting() == 5 - 3


def test_a_doubt_that_comes_with_less_room_is_let_go_too() -> None:
    """A quota is edited down, and with the same news it says that less is used."""
    line = Followed()
    line.observe(0, 8)
    line.later(SETTLED)
    sent = [line.ticket_of(line.submit(1)) for _ in range(6)]
    line.observe(6, 8)
    for ticket, name in zip(sent, "abcdef", strict=True):
        line.settle(ticket, Created(stored=name))
    line.later(5)
    waiter = line.submit(3)
    line.observe(0, 4)
    line.later(2 * LASTING)

    assert waiter.state == "sent"


def test_a_create_that_is_found_again_lives_once() -> None:
    """A retry under an idempotency key is answered with the object of the first: one end is the end of both."""
    line = Followed()
    line.observe(0, 1)
    for _ in range(2):
        ticket = line.controller.force(line.request(1), line.now)
        line.observe(1, 1)
        line.settle(ticket, Created(stored="a"))
        line.later(0.1)
    line.end("a")
    line.observe(0, 1)
    waiter = line.submit(1)
    line.later(SETTLED)

    assert waiter.state == "sent"


@pytest.mark.parametrize("why", ["not followed", "nameless", "forgotten"])
def test_what_is_not_known_to_live_raises_doubt_for_a_moment(why: str) -> None:
    """A claim, or a pod from before the watch began: a recount may lack it as well."""
    line = Followed(told=why != "not followed")
    sent = [line.ticket_of(line.submit(1)) for _ in range(4)]
    line.wait_in_line()
    line.later(0.04)
    line.observe(4, 4)
    for ticket, name in zip(sent, "abcd", strict=True):
        line.settle(ticket, Created(stored="" if why == "nameless" else name))
    if why == "forgotten":
        line.controller.ends_told(NS, line.now, told=False)
        line.controller.ends_told(NS, line.now, told=True)
        line.advance()

    assert line.count_again(1) == []
    assert tickets(line.later(0.02)) == []  # its settle time is over
    assert len(tickets(line.later(0.1))) == 3


def test_a_doubt_is_no_fresh_room_to_probe_for() -> None:
    """With the watch of quotas lost, refusals that repeat themselves are met ever more rarely."""
    probes = []
    for told in (True, False):
        line = Followed(told=told)
        line.create("a", "b", "c")
        line.watch_lost()
        line.submit(4)
        count = 0
        while line.now < 300:
            for ticket in tickets(line.later(0.1)):
                count += 1
                line.refused(ticket, 1, 4)
        probes.append(count)

    assert probes[0] == probes[1] < 30


def test_an_end_counts_at_every_ceiling() -> None:
    """A pod is charged for more than one resource."""
    line = Followed()
    two = {"cpu": 4 * ONE, "pods": 4 * ONE}

    def tell(used: int) -> None:
        seen = ObservedQuota(two, two, dict.fromkeys(two, used * ONE))
        line.controller.observe_quota(NS, QUOTA, seen, line.now)
        line.later(SETTLED)

    tell(0)
    sent = [line.ticket_of(line.submit(demand=Demand(dict.fromkeys(two, ONE)))) for _ in range(4)]
    tell(4)
    for ticket, name in zip(sent, "abcd", strict=True):
        line.settle(ticket, Created(stored=name))
    tell(2)
    line.end("a")
    quota = line.controller.snapshot(line.now).namespaces[NS].quotas[QUOTA]
    assert {name: ceiling.used for name, ceiling in quota.items()} == dict.fromkeys(two, 3 * ONE)


def test_a_namespace_that_was_forgotten_is_told_of_ends_as_before() -> None:
    """The watch goes on over the engine's own forgetting."""
    line = Followed()
    line.controller.forget_quota(NS, QUOTA, line.now)
    line.later(10_000)
    assert NS not in line.controller.snapshot(line.now).namespaces
    line.observe(0, 4)
    line.create("a", "b", "c", "d")
    line.wait_in_line()

    assert line.count_again(2) == []
    line.controller.ends_told(NS, line.now, told=False)
    line.controller.forget_quota(NS, QUOTA, line.now)
    line.later(20_000)
    line.observe(0, 4)
    assert not line.controller.snapshot(line.now).namespaces[NS].ends_told


def test_an_end_is_a_hint_where_quotas_are_not_watched() -> None:
    """As ``hint_release``: a reason to probe soon."""
    line = Timeline()
    line.refused(line.ticket_of(line.submit(1)), 4, 4)
    line.controller.ended(NS, "a", line.now)
    line.controller.ended("nobody", "a", line.now)
    before = line.controller.next_deadline()
    hinted = Timeline()
    hinted.refused(hinted.ticket_of(hinted.submit(1)), 4, 4)
    hinted.controller.hint_release(NS, hinted.now)

    assert before == hinted.controller.next_deadline()
    watched = full()
    watched.later(10)
    before = watched.controller.next_deadline()
    watched.controller.ended(NS, "a stranger's", watched.now)
    assert watched.controller.next_deadline() == before
    assert len(tickets(line.later(0.1))) == len(tickets(hinted.later(0.1))) == 1


def test_what_is_kept_is_bounded() -> None:
    """Creates beyond the limit are not counted; ends that nobody knows are kept for a while."""
    living = Living(told=True)
    assert all(isinstance(living.begin(f"pod-{n}"), Life) for n in range(LIVES_MAX))
    assert living.begin("one more") is None
    living.end("pod-0")
    assert living.begin("one more") is not None

    for n in range(ENDED_MAX + 1):
        living.end(f"stranger-{n}")
    living.end("pod-1")
    living.end("pod-2")
    assert living.begin("stranger-1") is None
    assert living.begin("stranger-0") is not None
    assert living.begin("") is None
    assert Living(told=False).begin("a") is None


def test_nothing_is_kept_of_creates_where_quotas_are_not_watched() -> None:
    """No hold of theirs will ever be handed over."""
    line = Followed()
    line.watch_lost()
    line.create("a", "b")
    assert line.controller._handlers[NS].knowledge.living._lives == {}


def test_whoever_looks_is_asked_to_only_where_there_is_a_doubt() -> None:
    """An end says whether it left less to doubt; without a doubt nothing is due."""
    living, ceiling = Living(told=True), Ceiling(Quota("q"), "cpu", 4, 2)
    lives = [living.begin(name) for name in "abc"]
    for number, life in enumerate(lives):
        assert life is not None
        life.count(((ceiling, 1),))
        assert living.doubtful is (number == 2)
    assert (ceiling.doubt, living.look([ceiling], 0.0)) == (1, False)
    assert (living.doubtful, living.look_at) == (False, LASTING)

    assert [living.end(name) for name in "abcd"] == [True, False, False, False]
    assert (ceiling.living, ceiling.doubt, ceiling.room) == (0, 0, 2)
    assert living.look([ceiling], LASTING) is False
    assert living.look_at == float("inf")


def looked_at(doubts: Callable[[float], bool], *, every: float, until: float) -> int:
    """Look every so often at a ceiling where something lives that is doubted at some times; count what is forgotten."""
    living, ceiling = Living(told=True), Ceiling(Quota("q"), "cpu", 4, 2)
    number, moment = 0, 0.0
    while moment < until:
        if not ceiling.living:
            number += 1
            life = living.begin(f"pod-{number}")
            assert life is not None
            life.count(((ceiling, 1),))
        ceiling.lowest = 0  # what comes and goes hides it
        ceiling.observe(4, 0 if doubts(moment) else 2)
        living.look([ceiling], moment)
        moment += every
    return living.forgotten


def test_half_a_minute_of_doubts_that_come_and_go_is_too_much_and_then_it_begins_anew() -> None:
    """Some in every second: once in half a minute. None in one second of ten: never, nor in looks without a doubt."""
    assert looked_at(lambda moment: round(moment * 10) % 5 == 0, every=0.1, until=DOUBTED_MAX - 1) == 0
    assert looked_at(lambda moment: round(moment * 10) % 5 == 0, every=0.1, until=DOUBTED_MAX + 1) == 1
    assert looked_at(lambda moment: round(moment * 10) % 5 == 0, every=0.1, until=2 * DOUBTED_MAX - 1) == 1
    assert looked_at(lambda moment: moment % 10 < 8, every=0.1, until=5 * DOUBTED_MAX) == 0
    assert looked_at(lambda moment: moment % 10 < 1, every=5, until=5 * DOUBTED_MAX) == 0
    assert looked_at(lambda _: True, every=3, until=5 * DOUBTED_MAX) == 0


def test_what_has_ended_stays_known_whatever_is_forgotten() -> None:
    """A recount that lacks it is right."""
    living = Living(told=True)
    over, alive = living.begin("over"), living.begin("alive")
    assert over is not None
    assert alive is not None
    living.end("over")
    living.follow([], told=True)

    assert (over.known, alive.known) == (True, False)


class OnlyCreator:
    """A server whose quota controller counts from an old view, told to an engine that alone creates there."""

    LIMIT = 4

    def __init__(self) -> None:
        self.line = Followed()
        self.sent: list[Ticket] = []
        self.charged: list[Ticket] = []
        self.alive: dict[str, None] = {}
        self.views = [0]  # pods alive, by what happened to pods so far
        self.view = 0  # up to which of these the controller has read
        self.used = 0
        for _ in range(40):
            self.line.submit(1)
        self.take_sent()

    def take_sent(self) -> None:
        """Notice whom the engine has let go."""
        known = {*self.sent, *self.charged}
        self.sent += [
            each for _, each in self.line.log if isinstance(each, Ticket) and not each.ended and each not in known
        ]

    def tell(self, *, recounted: bool) -> None:
        """Tell of the quota."""
        four, by = amounts_of(self.LIMIT), frozenset({"cpu"} if recounted else ())
        self.line.controller.observe_quota(
            NS, QUOTA, ObservedQuota(four, four, amounts_of(self.used), recounted=by), self.line.now
        )

    def step(self, what: str, which: int) -> None:
        """Let something happen, where it can."""
        line = self.line
        if what == "charge" and self.sent:
            self.charged.append(ticket := self.sent.pop(which % len(self.sent)))
            self.used += 1
            self.alive[ticket.request.id] = None
            self.views.append(len(self.alive))
            self.tell(recounted=False)
        elif what == "answer" and self.charged:
            ticket = self.charged.pop(which % len(self.charged))
            line.controller.settle(ticket, Created(stored=ticket.request.id), line.now)
        elif what == "end" and (over := [pod for pod in self.alive if self.is_answered(pod)]):
            pod = over[which % len(over)]
            del self.alive[pod]
            self.views.append(len(self.alive))
            line.controller.ended(NS, pod, line.now)
        elif what == "recount":
            self.view = min(len(self.views) - 1, self.view + which)
            self.used = self.views[self.view]
            self.tell(recounted=True)
        line.later(0.003)
        self.take_sent()

    def is_answered(self, pod: str) -> bool:
        """Say whether its create was answered."""
        return all(ticket.request.id != pod for ticket in self.charged)


STEPS = st.lists(st.tuples(st.sampled_from(["charge", "answer", "end", "recount"]), st.integers(0, 9)), max_size=120)


@given(STEPS)
def test_the_only_creator_never_has_more_alive_and_under_way_than_the_quota_allows(
    steps: list[tuple[str, int]],
) -> None:
    """However old the view is that a recount was made from; and once all are counted, everybody gets in."""
    world = OnlyCreator()
    for what, which in steps:
        world.step(what, which)
        assert len(world.alive) + len(world.sent) <= world.LIMIT

    for _ in range(60):
        for what in ("charge", "answer", "end"):
            world.step(what, 0)
        world.step("recount", 9)
    assert world.line.waiting() == 0
