"""Events stay few however many creates wait and whatever the server answers, and every story is accounted for."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.events.correlator import LEFT_OUT, Ended, Limits, Reason, Write
from backoff_ctrl.k8s.gate.events.sender import ended_by
from tests.gating.press import Press, count_of, story

if TYPE_CHECKING:
    from collections.abc import Iterable

# -- few requests ---------


@pytest.mark.parametrize("owners", [1, 10_000])
def test_ten_thousand_waiters_of_a_namespace_are_no_storm(owners: int) -> None:
    """At most 31 requests in a minute, for one owner or 10,000; one event counts what was left out."""
    press = Press()
    for number in range(10_000):
        press.tell(story(owner=Owner("batch/v1", "Job", f"job-{number % owners}", str(number % owners))))
        press.wait(0.006)

    assert 100 + 60 <= press.now + 1e-6 < 100 + 61
    assert 2 <= len(press.writes) <= (4 if owners == 1 else 31)
    press.drain()
    assert len(press.writes) <= (5 if owners == 1 else 33)
    told = sum(map(count_of, press.of("WaitingForQuota")))
    assert told + sum(map(count_of, press.of(LEFT_OUT))) == 10_000
    assert press.book.counts.left_out == 10_000 - told
    assert press.book.held < 50


def test_ten_thousand_waiters_of_a_thousand_namespaces_are_no_storm() -> None:
    """At most 160 requests in a minute: one bucket is shared by all namespaces."""
    press = Press()
    for number in range(10_000):
        press.tell(story(namespace=f"team-{number % 1000}", owner=None))
        press.wait(0.006)
    assert len(press.writes) <= 160
    assert press.book.counts.reported == 10_000


def test_one_event_of_the_namespace_counts_what_was_left_out() -> None:
    """Ten seconds after the first omission; then it is patched like any other series."""
    press = Press(Limits(namespace_burst=3, kept_share=0.34, namespace_rate=0.1))
    for number in range(6):
        press.tell(story(owner=Owner("v1", "A", f"a{number}")))
    press.wait(9.9)
    assert press.of(LEFT_OUT) == []
    press.wait(0.1)
    (event,) = press.of(LEFT_OUT)
    assert (event["type"], event["regarding"]["kind"], count_of(event)) == ("Normal", "Namespace", 4)
    assert "were not written" in event["note"]
    for number in range(10):
        press.tell(story(owner=Owner("v1", "A", f"c{number}")))
    press.wait(10)
    written = len(press.of("WaitingForQuota"))
    assert [count_of(event) for event in press.of(LEFT_OUT)] == [16 - written]


def test_memory_is_bounded_though_every_owner_is_different() -> None:
    """While the table is full, other news is left out; there is room again once the series have ended."""
    press = Press(Limits(rate=1000, burst=1000, namespace_rate=1000, namespace_burst=1000, series_max=5))
    for number in range(500):
        press.tell(*[story(owner=Owner("v1", "A", f"a{number}"))] * 2)
        assert press.book.held <= 2 * (5 + 1) + 1
    press.drain()
    assert (len(press.of("WaitingForQuota")), press.book.counts.left_out) == (5, 990)
    press.wait(361)
    for number in range(500):
        press.tell(story(owner=Owner("v1", "A", f"b{number}")))
    assert len(press.of("WaitingForQuota")) == 10


def test_namespaces_that_are_quiet_make_room_for_others() -> None:
    """At most ``namespaces_max`` are remembered; stories of further ones are left out."""
    press = Press(Limits(namespaces_max=3))
    press.tell(*[story(namespace=f"team-{number}") for number in range(5)])
    assert (len(press.events), press.book.counts.left_out) == (3, 2)
    press.wait(361)
    press.tell(*[story(namespace=f"team-{number}") for number in range(5, 9)])
    assert (len(press.events), press.book.counts.left_out) == (6, 3)


def test_a_namespace_is_remembered_until_it_has_its_tokens_again() -> None:
    """Else it could write a whole burst again at once."""
    press = Press(Limits(namespaces_max=1, window=5, namespace_rate=0.01))
    press.tell(story())
    press.wait(50)
    press.tell(story(namespace="other"))
    assert press.book.counts.left_out == 1
    press.wait(60)
    press.tell(story(namespace="other"))
    assert press.book.counts.left_out == 1


def test_a_note_that_fails_is_left_out() -> None:
    """The error is raised to the caller; later events are written."""

    def fail() -> str:
        raise RuntimeError("not today")

    press = Press()
    press.book.report(replace(story(), note=fail), press.now)
    with pytest.raises(RuntimeError, match="not today"):
        press.book.next(press.now)
    press.tell(story(owner=None))
    assert [event["reason"] for event in press.events.values()] == ["WaitingForQuota"]
    assert press.book.counts.left_out == 1


def test_an_event_whose_creation_takes_long_is_not_created_twice() -> None:
    """The server takes seven minutes; repetitions in that time count towards the same event."""
    press = Press()
    press.book.report(story(), press.now)
    write = press.begin()
    assert write is not None
    press.now += 420
    press.tell(story())
    press.end(write, Ended.DONE)
    press.drain()
    assert [count_of(event) for event in press.events.values()] == [2]


# -- refusals and failures ---------


def test_after_a_403_there_is_no_request_for_five_minutes() -> None:
    """Reporter of that time are left out; an event tells how many once events are permitted."""
    press = Press(answer=lambda write: Ended.FORBIDDEN)
    for number in range(20):
        press.tell(story(owner=Owner("v1", "A", f"a{number}")))
    press.wait(299)
    assert len(press.writes) == 1
    press.answer = lambda write: Ended.DONE
    press.wait(2)
    (event,) = press.events.values()
    assert (event["reason"], count_of(event)) == (LEFT_OUT, 20)
    press.wait(3600)
    for number in range(100):
        press.tell(story(owner=Owner("v1", "A", f"b{number}")))
    assert len(press.of("WaitingForQuota")) == 20


def test_stories_that_arrive_during_a_refused_request_take_no_tokens() -> None:
    """They are left out with it; later the whole burst is available again."""
    press = Press()
    press.book.report(story(), press.now)
    write = press.begin()
    assert write is not None
    for number in range(30):
        press.book.report(story(owner=Owner("v1", "A", f"a{number}")), press.now)
    press.end(write, Ended.FORBIDDEN)
    press.wait(3600)
    for number in range(100):
        press.tell(story(owner=Owner("v1", "A", f"b{number}")))
    assert len(press.of("WaitingForQuota")) == 20


def test_with_permission_to_create_but_not_to_patch_events_are_created() -> None:
    """The repetitions are left out; they do not lead to more events."""
    press = Press(answer=lambda write: Ended.FORBIDDEN if write.verb == "patch" else Ended.DONE)
    for _ in range(100):
        press.tell(story())
        press.wait(1)
    assert [write.verb for _, write in press.writes if write.body.get("reason") != LEFT_OUT] == [
        "create",
        "patch",
    ]
    assert press.book.counts.left_out >= 89


def test_a_failing_server_gets_ever_rarer_retries_and_then_none() -> None:
    """An event gets five tries with growing pauses; then it is left out."""
    press = Press(answer=lambda write: Ended.LATER)
    press.tell(story())
    press.wait(9)
    pauses = [later - at for (at, _), (later, _) in itertools.pairwise(press.writes)]
    assert all(2**n / 2 <= pause <= 2**n for n, pause in enumerate(pauses))
    press.wait(120)
    creates = [write for _, write in press.writes if write.body["reason"] == "WaitingForQuota"]
    assert len(creates) == 5
    assert press.book.counts.left_out == 1
    press.drain()
    assert list(map(count_of, press.of(LEFT_OUT))) == [1]


def test_the_servers_retry_after_is_respected() -> None:
    """No request is sent earlier."""
    press = Press()
    press.book.report(story(), press.now)
    assert press.book.next(press.now) is not None
    press.book.ended(Ended.LATER, press.now, retry_after=7)
    assert press.book.next_due() == press.now + 7
    assert press.book.next(press.now + 6.9) is None


@pytest.mark.parametrize(
    ("verb", "status", "how"),
    [
        ("create", 201, "done"),
        ("create", 409, "done"),
        ("create", 404, "failed"),
        ("create", 422, "failed"),
        ("create", 400, "failed"),
        ("create", 401, "forbidden"),
        ("create", 403, "forbidden"),
        ("create", 429, "later"),
        ("create", 500, "later"),
        ("create", 504, "later"),
        ("patch", 200, "done"),
        ("patch", 404, "gone"),
        ("patch", 409, "later"),
        ("patch", 403, "forbidden"),
        ("patch", 422, "failed"),
    ],
)
def test_every_answer_has_a_meaning(verb: Any, status: int, how: str) -> None:
    """A 409 to a create means that our earlier try succeeded; a 404 to a patch means that the event has expired."""
    assert ended_by(Write(verb, "team", "n", {}, 1), status) == how


# -- whatever happens ---------

SMALL = Limits(
    namespace_rate=0.5, namespace_burst=5, rate=1.0, burst=8, kept_share=0.3, window=20, first_patch=2,
    shut=7, series_max=6, namespaces_max=3, tries=2,
)  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.integers(0, 4), st.integers(0, 9), st.sampled_from(Reason)),
        st.tuples(st.just("wait"), st.floats(0, 30)),
        st.tuples(st.just("begin")),
        st.tuples(st.just("end"), st.sampled_from([Ended.DONE] * 4 + [Ended.LATER, Ended.FORBIDDEN, Ended.FAILED])),
    ),
    max_size=120,
)


def play(steps: Iterable[Any]) -> Press:
    press = Press(SMALL)
    under_way: Write | None = None
    for step in steps:
        match step:
            case "tell", place, who, happening:
                press.book.report(story(happening, Owner("v1", "A", f"a{who}"), f"team-{place}"), press.now)
            case "wait", seconds:
                press.now += seconds
            case ("begin",):
                under_way = press.begin() or under_way
            case "end", how if under_way is not None:
                press.end(under_way, Ended.DONE if under_way.body.get("reason") == LEFT_OUT else how)
                under_way = None
        assert press.book.held <= 2 * SMALL.series_max + 3 * SMALL.namespaces_max
    if under_way is not None:
        press.end(under_way, Ended.DONE)
    return press


@given(STEPS)
def test_the_rates_hold_whatever_happens(steps: Any) -> None:
    """In no span are there more requests than burst + rate x span, per namespace and for all; memory is bounded."""
    press = play(steps)
    press.drain()
    times: defaultdict[str, list[float]] = defaultdict(list)
    for at, write in press.writes:
        times[write.namespace].append(at)
        times[""].append(at)
    for namespace, sent in times.items():
        rate, burst = (SMALL.namespace_rate, SMALL.namespace_burst) if namespace else (SMALL.rate, SMALL.burst)
        for first, last in itertools.combinations_with_replacement(range(len(sent)), 2):
            assert last - first + 1 <= burst + rate * (sent[last] - sent[first]) + 1e-3


@given(STEPS)
def test_the_counts_add_up_whatever_happens(steps: Any) -> None:
    """Every story is in an event's count or left out; an event of its namespace counts the latter, if tracked."""
    press = play(steps)
    press.drain()
    counts = press.book.counts
    written = sum(count_of(event) for event in press.events.values() if event["reason"] != LEFT_OUT)
    assert counts.reported == sum(step[0] == "tell" for step in steps) == written + counts.left_out
    summed_up = sum(map(count_of, press.of(LEFT_OUT)))
    places = Counter(step[1] for step in steps if step[0] == "tell")
    assert summed_up == counts.left_out or (summed_up < counts.left_out and len(places) > SMALL.namespaces_max)
    assert counts.creates + counts.patches == len(press.writes)
