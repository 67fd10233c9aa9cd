"""Looking is free: pages show what a snapshot shows, each item once; the changes are complete; a page is bounded."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from backoff_ctrl.engine import Controller, Demand, ObservedQuota, Policy, Request
from backoff_ctrl.engine.look.looking import Tally
from backoff_ctrl.engine.look.pages import CEILINGS_MAX, GONE_MAX, LOOKED_OVER, NAMESPACES_MAX, WAITERS_MAX
from tests.kit.timeline import ONE, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backoff_ctrl.engine.look.memory import RememberedQuota
    from backoff_ctrl.engine.look.pages import Changes, Cursor, NamespacePage, WaitingPage

HARD = {"cpu": 4 * ONE, "pods": 4 * ONE}


def crowded(namespaces: int, waiters: int) -> Timeline:
    """Return a line with so many namespaces at full quotas, and so many requests that wait in them by turns."""
    line = Timeline()
    for number in range(namespaces):
        line.controller.observe_quota(f"n{number:05}", "q", ObservedQuota(HARD, HARD, HARD), line.now)
    line.watching()
    for number in range(waiters):
        submit(line, f"n{number % namespaces:05}", 1 + number % 3)
    return line


def submit(line: Timeline, namespace: str, cpu: float = 1) -> Request:
    """Submit a request of cpu and one pod."""
    return line.submit(namespace=namespace, demand=Demand({"cpu": round(cpu * ONE), "pods": ONE}))


def pages(line: Timeline, limit: int) -> Iterator[NamespacePage]:
    """Look at all pages of namespaces."""
    after: str | None = None
    while True:
        page = line.controller.page(after, limit, line.now)
        yield page
        after = page.next
        if after is None:
            return


def waiting_pages(line: Timeline, limit: int, namespace: str | None = None) -> Iterator[WaitingPage]:
    """Look at all pages of waiting requests."""
    after: Cursor | None = None
    while True:
        page = line.controller.waiting(after, limit, line.now, namespace)
        yield page
        after = page.next
        if after is None:
            return


@pytest.mark.parametrize("limit", [0, 1, 7, 10**6])
def test_the_pages_together_are_the_snapshot(limit: int) -> None:
    """Each namespace is on one page, by name."""
    line = crowded(200, 300)
    shown = [item for page in pages(line, limit) for item in page.items.items()]

    assert dict(shown) == line.snapshot().namespaces
    assert [name for name, _ in shown] == sorted(name for name, _ in shown)


@pytest.mark.parametrize("limit", [1, 7, 10**6])
def test_the_pages_of_what_to_remember_together_are_all_of_it(limit: int) -> None:
    """As a keeper saves them."""
    line = crowded(200, 300)
    submit(line, "unknown")  # nothing is known of its quotas
    known: dict[str, Mapping[str, RememberedQuota]] = {}
    after = None
    while True:
        page = line.controller.remember_page(after, limit, line.now)
        assert not known.keys() & page.memory.quotas.keys()
        known |= page.memory.quotas
        after = page.next
        if after is None:
            break

    assert known == line.controller.remember(line.now).quotas


def test_a_page_is_bounded_whatever_is_asked() -> None:
    """By namespaces, by ceilings where there are many, and by waiters."""
    line = crowded(3 * NAMESPACES_MAX, 3 * WAITERS_MAX)
    assert len(line.controller.page(None, 10**9, line.now).items) == NAMESPACES_MAX
    assert len(line.controller.changes(0, 10**9, line.now).items) == NAMESPACES_MAX
    assert len(line.controller.waiting(None, 10**9, line.now).items) <= WAITERS_MAX
    for number in range(40):
        line.controller.observe_quota("n00000", f"q{number}", ObservedQuota(HARD, HARD, HARD), line.now)
    for number in range(1, 60):
        line.controller.observe_quota("n00001", f"q{number}", ObservedQuota(HARD, HARD, HARD), line.now)

    for shown in (line.controller.page(None, 99, line.now).items, line.controller.changes(0, 99, line.now).items):
        ceilings = [sum(map(len, namespace.quotas.values())) for namespace in shown.values()]
        assert sum(ceilings[:-1]) < CEILINGS_MAX
    assert len(line.controller.page(None, 99, line.now).items) == 2
    assert len(line.controller.remember_page(None, 99, line.now).memory.quotas) == 2


def test_a_page_of_waiters_looks_at_few_rows() -> None:
    """Where the line has hundreds of shapes, each estimate takes longer, and the page holds fewer."""
    line = crowded(1, 0)
    for number in range(300):
        submit(line, "n00000", 1 + number / 1000)
    page = line.controller.waiting(None, 10**9, line.now)

    assert 0 < len(page.items) < 10
    assert sum(len(page.items) for page in waiting_pages(line, 10**9)) == 300


def test_the_reasons_of_all_who_wait_are_counted_some_rows_at_a_time() -> None:
    """Each one once; a namespace that nobody knows has none."""
    line = crowded(2, 60)
    for number in range(300):
        submit(line, "n00000", 1 + number / 1000)
    found, blocked = Counter[str](), Counter[tuple[str, str]]()
    row: int | None = 0
    calls = 0
    while row is not None:
        part, row = line.controller.tally("n00000", row, line.now)
        found.update(part.reasons)
        blocked.update(part.blocked)
        calls += 1

    assert (found, calls) == ({"quota": 330}, 4)
    assert blocked == {("q", "cpu"): 330, ("q", "pods"): 330}
    assert line.controller.tally("nowhere", 0, line.now) == (Tally(Counter(), Counter()), None)


def test_one_namespace_is_shown_as_on_its_page() -> None:
    """By name, in the order in which they became known."""
    line = crowded(3, 9)
    shown = {name: line.controller.namespace(name, line.now) for name in line.controller.names()}

    assert shown == line.snapshot().namespaces
    assert list(shown) == ["n00000", "n00001", "n00002"]
    assert line.controller.size == 3
    assert line.controller.namespace("nowhere", line.now) is None


def test_the_pages_of_waiters_show_each_once_with_its_place() -> None:
    """Of all namespaces, or of one."""
    line = crowded(30, 500)
    items = [item for page in waiting_pages(line, 11) for item in page.items]

    assert len({item.request.id for item in items}) == len(items) == 500
    assert items == sorted(items, key=lambda item: (item.request.namespace, item.place))
    for item in items:
        assert item.why == line.controller.explain(item.request, line.now)
    of_one = [item for page in waiting_pages(line, 5, "n00007") for item in page.items]
    assert of_one == [item for item in items if item.request.namespace == "n00007"]
    assert [page.items for page in waiting_pages(line, 5, "nowhere")] == [[]]


def test_waiters_are_found_behind_many_namespaces_without_any() -> None:
    """A page may be empty before the last one: it looks over a thousand namespaces, not over all."""
    line = crowded(2 * LOOKED_OVER + 10, 0)
    last = submit(line, f"n{2 * LOOKED_OVER + 5:05}")
    shown = [[item.request for item in page.items] for page in waiting_pages(line, 10)]

    assert shown == [[], [], [last]]


@pytest.mark.parametrize("seed", range(5))
def test_waiters_that_stay_are_seen_exactly_once_while_others_come_and_go(seed: int) -> None:
    """Nobody is seen twice, even if requests join, leave, leave seats and return between the pages."""
    dice = random.Random(seed)
    line = crowded(5, 200)
    stay = {item.request.id: item.request for page in waiting_pages(line, 50) for item in page.items}
    seen: list[str] = []
    for page in waiting_pages(line, 7):
        seen += [item.request.id for item in page.items]
        for _ in range(5):
            request = submit(line, f"n{dice.randrange(5):05}", dice.randint(1, 3))
            if dice.random() < 0.5:
                line.controller.of(request.namespace).withdraw(request, line.now)
            request = stay.pop(dice.choice(list(stay)))
            line.withdraw(request)

    assert len(set(seen)) == len(seen)
    assert set(stay) <= set(seen)


def follow(line: Timeline, since: int, limit: int = 10) -> tuple[list[str], list[str], int]:
    """Ask for all changes since one; return the changed namespaces, the ones that are gone, and the newest change."""
    changed: list[str] = []
    gone: list[str] = []
    while True:
        told: Changes = line.controller.changes(since, limit, line.now)
        assert not told.lost
        changed += told.items
        gone += told.gone
        since = told.upto
        if not told.more:
            return changed, gone, since


def test_the_changes_since_a_look_name_what_has_changed_and_nothing_else() -> None:
    """Each kind of change counts once, whatever follows before the next look; a look changes nothing."""
    line = crowded(30, 0)
    changed, _, upto = follow(line, 0)
    assert sorted(changed) == sorted(line.snapshot().namespaces)
    assert follow(line, upto) == ([], [], upto)
    for _ in range(3):
        submit(line, "n00003")
    line.controller.observe_quota("n00001", "q", ObservedQuota(HARD, HARD, {"cpu": 0, "pods": 0}), line.now)
    line.controller.forget_quota("n00002", "q", line.now)
    line.controller.hint_release("n00004", line.now)
    line.controller.ended("n00005", "x", line.now)
    line.controller.ends_told("n00006", line.now, told=True)
    line.watch_lost("n00007")
    line.controller.of("n00008").force(line.request(namespace="n00008"), line.now)
    touched = [3, 1, 2, 4, 5, 6, 7, 8]

    assert follow(line, upto)[0] == [f"n{number:05}" for number in touched]


@pytest.mark.parametrize("by", ["page", "waiting"])
def test_what_changes_after_a_page_is_a_change_since_before_that_page(by: str) -> None:
    """Whoever has paged through everything follows the changes from the number that was the newest before."""
    line = crowded(3, 3)
    since = line.controller.sequence
    for _ in pages(line, 2) if by == "page" else waiting_pages(line, 2):
        pass
    line.controller.of("n00001").withdraw(submit(line, "n00001"), line.now)

    assert "n00001" in follow(line, since)[0]


def test_forgotten_namespaces_are_told_and_one_that_comes_back_is_new() -> None:
    """They are gone for those who follow; then one is there again."""
    line = Timeline(Policy(idle_ttl=10))
    for number in range(3):
        line.created(line.ticket_of(line.submit(namespace=f"n{number}")))
    _, _, upto = follow(line, 0)
    line.later(100)
    changed, gone, upto = follow(line, upto, 1)
    assert (changed, sorted(gone)) == ([], ["n0", "n1", "n2"])
    line.submit(namespace="n1")

    assert follow(line, upto)[:2] == (["n1"], [])


def test_who_looked_too_long_ago_is_told_to_begin_anew() -> None:
    """Ends of namespaces are not remembered for ever; who begins anew is told what there is."""
    line = Timeline(Policy(idle_ttl=10))
    line.submit(namespace="first")
    _, _, upto = follow(line, 0)
    _, _, soon = follow(line, upto)
    for number in range(GONE_MAX + 10):
        line.created(line.ticket_of(line.submit(namespace=f"n{number:04}")))
    line.later(100)
    line.submit(namespace="last")

    told = line.controller.changes(upto, 10, line.now)
    assert (told.lost, told.items) == (True, {})
    assert "last" in follow(line, 0)[0]
    assert line.controller.changes(soon, 10, line.now).lost


def test_a_controller_that_replaces_another_goes_on_with_its_numbers() -> None:
    """Who followed the old one is told to begin anew: what it knew of is no longer known."""
    old = Controller()
    old.submit(Request("r", "team", Demand({})), 0.0)
    upto = old.changes(0, 10, 0.0).upto
    new = Controller(sequence=old.sequence + 1)
    new.submit(Request("r", "other", Demand({})), 0.0)

    assert new.changes(upto, 10, 0.0).lost
    assert list(new.changes(0, 10, 0.0).items) == ["other"]
