"""Events of creates that wait: one event for the same news, few requests however many wait, and no story is lost."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8s.event_bodies import INSTANCE_MAX, LEFT_OUT, NOTE_MAX, event_name, instance_name, micro_time, short_note
from k8s.event_sender import ended_by, events_wanted
from k8s.events import Ended, EventBook, Limits, Write
from k8s.stories import Happening, Owner, Story, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

EPOCH = 1_700_000_000.0
JOB = Owner("batch/v1", "Job", "train", "uid-1")


def story(
    happening: Happening = Happening.WAITS,
    owner: Owner | None = JOB,
    namespace: str = "team",
    quota: str = "q",
    resource: str = "pods",
    note: str = "pods p waits",
) -> Story:
    return Story(happening, namespace, owner, quota, resource, lambda: note)


@dataclass
class Press:
    """A book, a clock, and a server that keeps the events; writes go out as soon as they may."""

    limits: Limits = field(default_factory=Limits)
    now: float = 100.0
    answer: Callable[[Write], Ended] = lambda write: Ended.DONE
    writes: list[tuple[float, Write]] = field(default_factory=list)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.book = EventBook("host-1", lambda: EPOCH, random.Random(3), self.limits)

    def tell(self, *told: Story) -> None:
        """Tell, and write what is due at once."""
        for each in told:
            self.book.tell(each, self.now)
            self.write_all()

    def wait(self, seconds: float) -> None:
        """Let time go by; what becomes due on the way is written then."""
        until = self.now + seconds
        while (due := self.book.next_due()) is not None and due <= until:
            self.now = max(self.now, due)
            self.write_all()
        self.now = until

    def write_all(self) -> None:
        while self.write(self.answer):
            pass

    def write(self, answer: Callable[[Write], Ended]) -> bool:
        """Write what is due, one request; False: nothing is."""
        write = self.begin()
        if write is None:
            return False
        self.end(write, answer(write))
        return True

    def begin(self) -> Write | None:
        """Send a request."""
        write = self.book.next(self.now)
        if write is not None:
            self.writes.append((self.now, write))
        return write

    def end(self, write: Write, how: Ended) -> None:
        """Answer it."""
        if how is Ended.DONE and write.verb == "create":
            assert write.name not in self.events
            self.events[write.name] = write.body
        elif how is Ended.DONE:
            self.events[write.name] = {**self.events[write.name], **write.body}
        elif how is Ended.GONE:
            del self.events[write.name]
        self.book.ended(how, self.now)

    def of(self, reason: str) -> list[dict[str, Any]]:
        return [event for event in self.events.values() if event["reason"] == reason]

    def drain(self) -> None:
        """Go on until nothing is left to be written."""
        self.answer = lambda write: Ended.DONE
        while (due := self.book.next_due()) is not None:
            self.now = max(self.now, due)
            self.write_all()


def count_of(event: dict[str, Any]) -> int:
    return int((event.get("series") or {"count": 1})["count"])


def told_by_summary(event: dict[str, Any]) -> int:
    return int(event["note"].split()[0])


# -- one event ---------


def test_a_wait_becomes_an_event_on_the_owner() -> None:
    """All that events.k8s.io/v1 demands is there, and it is a Warning."""
    press = Press()
    press.tell(story())
    (event,) = press.events.values()

    assert event["regarding"] == {
        "apiVersion": "batch/v1", "kind": "Job", "name": "train", "namespace": "team", "uid": "uid-1"
    }  # fmt: skip
    assert (event["reason"], event["type"], event["action"]) == ("WaitingForQuota", "Warning", "Waiting")
    assert (event["reportingController"], event["reportingInstance"]) == ("backoff-ctrl.dev/gate", "host-1")
    assert event["eventTime"] == micro_time(EPOCH + 100) == "2023-11-14T22:15:00.000000Z"
    assert event["metadata"]["namespace"] == "team"
    assert event["metadata"]["name"].startswith("train.")
    assert "series" not in event


def test_what_has_no_owner_is_told_of_its_namespace() -> None:
    """The reference names the namespace twice: only so may the event lie in that namespace."""
    press = Press()
    press.tell(story(owner=None))
    (event,) = press.events.values()
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Namespace", "name": "team", "namespace": "team"}


@pytest.mark.parametrize(
    ("references", "owner"),
    [
        ([], None),
        (None, None),
        ("nonsense", None),
        ([3, None, {}, {"kind": "Job"}, {"apiVersion": "v1", "kind": 3, "name": "x"}], None),
        ([{"apiVersion": "v1", "kind": "A", "name": "a"}], Owner("v1", "A", "a")),
        ([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": 5}], Owner("v1", "A", "a")),
        (
            [
                {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"},
                {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "2", "controller": True},
            ],
            Owner("v1", "B", "b", "2"),
        ),
    ],
)
def test_the_owner_is_the_controller_or_else_the_first(references: Any, owner: Owner | None) -> None:
    """Anything that is no ownerReference is passed over."""
    assert owner_of({"metadata": {"ownerReferences": references}}) == owner


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": 3}, {"metadata": {}}])
def test_a_body_without_metadata_has_no_owner(body: Any) -> None:
    """It is the server's business to refuse it."""
    assert owner_of(body) is None


def test_the_same_news_is_one_event_that_counts() -> None:
    """Create at once, then patches of the series alone, at 10, 20, 40 ... seconds; the last one tells all."""
    press = Press()
    for _ in range(200):
        press.tell(story())
        press.wait(1)
    press.drain()

    (event,) = press.events.values()
    assert event["series"] == {"count": 200, "lastObservedTime": micro_time(EPOCH + 299)}
    assert [(at - 100, write.verb) for at, write in press.writes] == [
        (0, "create"), (10, "patch"), (30, "patch"), (70, "patch"), (150, "patch"), (310, "patch")
    ]  # fmt: skip
    assert all(set(write.body) == {"series"} for _, write in press.writes if write.verb == "patch")


@pytest.mark.parametrize(
    "other",
    [
        story(Happening.NEVER_FITS),
        story(quota="r"),
        story(resource="requests.cpu"),
        story(owner=None),
        story(owner=Owner("batch/v1", "Job", "train", "uid-2")),
        story(namespace="others"),
    ],
    ids=["reason", "quota", "resource", "no owner", "owner", "namespace"],
)
def test_other_news_is_another_event(other: Story) -> None:
    """Same regarding, reason, quota and resource, or it is not the same."""
    press = Press()
    press.tell(story(), other)
    assert [count_of(event) for event in press.events.values()] == [1, 1]


@pytest.mark.parametrize(("pause", "events"), [(360, 1), (360.1, 2)])
def test_a_series_ends_after_six_minutes_of_silence(pause: float, events: int) -> None:
    """As with client-go's EventBroadcaster."""
    press = Press()
    press.tell(story())
    press.wait(pause)
    press.tell(story())
    press.drain()
    assert len(press.events) == events
    assert sum(map(count_of, press.events.values())) == 2


def test_news_heard_while_the_event_is_created_is_counted() -> None:
    """The patch follows."""
    press = Press()
    press.book.tell(story(), press.now)
    assert press.book.next(press.now) is not None
    press.book.tell(story(), press.now)
    assert press.book.next(press.now) is None
    press.book.ended(Ended.DONE, press.now)
    assert press.book.next_due() == press.now + 10
    write = press.book.next(press.now + 10)
    assert write is not None
    assert write.body["series"]["count"] == 2


def test_an_event_whose_time_was_over_is_made_anew_with_its_count() -> None:
    """The server keeps events for an hour."""
    press = Press()
    press.tell(story(), story())
    press.answer = lambda write: Ended.GONE if write.verb == "patch" else Ended.DONE
    press.wait(10)
    (event,) = press.events.values()
    assert event["series"]["count"] == 2
    assert [write.verb for _, write in press.writes] == ["create", "patch", "create"]
    assert len({write.name for _, write in press.writes}) == 2


# -- few requests ---------


@pytest.mark.parametrize("owners", [1, 10_000])
def test_ten_thousand_waiters_of_a_namespace_are_no_storm(owners: int) -> None:
    """31 requests in a minute at the most, whether one object made them or 10,000; what is left out is told."""
    press = Press()
    for number in range(10_000):
        press.tell(story(owner=Owner("batch/v1", "Job", f"job-{number % owners}", str(number % owners))))
        press.wait(0.006)

    assert 100 + 60 <= press.now + 1e-6 < 100 + 61
    assert 2 <= len(press.writes) <= (4 if owners == 1 else 31)
    press.drain()
    assert len(press.writes) <= (5 if owners == 1 else 33)
    told = sum(map(count_of, press.of("WaitingForQuota")))
    assert told + sum(map(told_by_summary, press.of(LEFT_OUT))) == 10_000
    assert press.book.counts.left_out == 10_000 - told
    assert press.book.held < 50


def test_ten_thousand_waiters_of_a_thousand_namespaces_are_no_storm() -> None:
    """Not more than 160 requests in a minute: the second bucket is everybody's."""
    press = Press()
    for number in range(10_000):
        press.tell(story(namespace=f"team-{number % 1000}", owner=None))
        press.wait(0.006)
    assert len(press.writes) <= 160
    assert press.book.counts.told == 10_000


def test_a_summary_says_what_was_left_out() -> None:
    """By reason, on the namespace, ten seconds after the first and then every five minutes."""
    press = Press(Limits(namespace_burst=3, kept_share=0.34, namespace_rate=0.1))
    for number in range(5):
        press.tell(story(owner=Owner("v1", "A", f"a{number}")))
    press.tell(story(Happening.ADMITTED, owner=Owner("v1", "A", "b")))
    press.wait(9.9)
    assert press.of(LEFT_OUT) == []
    press.wait(0.1)
    (summary,) = press.of(LEFT_OUT)
    assert summary["note"] == (
        "4 events of the last 10 s were left out, so as not to flood this namespace: 1 Admitted, 3 WaitingForQuota"
    )
    assert (summary["type"], summary["regarding"]["kind"]) == ("Normal", "Namespace")
    for number in range(10):
        press.tell(story(owner=Owner("v1", "A", f"c{number}")))
    press.wait(299.9)
    assert len(press.of(LEFT_OUT)) == 1
    press.wait(0.2)
    assert len(press.of(LEFT_OUT)) == 2


def test_a_long_silence_saves_up_no_more_than_the_burst() -> None:
    """An hour without events allows no more of them at once than the first minute did."""
    press = Press()
    press.tell(story())
    press.wait(3600)
    before = len(press.writes)
    for number in range(100):
        press.tell(story(owner=Owner("v1", "A", f"a{number}")))
    assert len(press.writes) - before == 20


def test_memory_is_bounded_though_every_owner_is_another() -> None:
    """Of more events than fit the one heard longest ago is forgotten, with its call; what it still had is left out."""
    limits = Limits(
        rate=1000, burst=1000, namespace_rate=1000, namespace_burst=1000, series_max=5, first_patch=1e5, window=1e6
    )
    press = Press(limits)
    for number in range(500):
        press.tell(*[story(owner=Owner("v1", "A", f"a{number}"))] * 2)
        assert press.book.held <= 5 + 1 + 2 * (5 + 1) + 8
    press.drain()
    told = sum(map(count_of, press.of("WaitingForQuota"))) + sum(map(told_by_summary, press.of(LEFT_OUT)))
    assert (press.book.counts.told, told) == (1000, 1000)
    assert len(press.of("WaitingForQuota")) == 500


def test_news_heard_while_the_series_is_patched_is_counted_by_the_next_patch() -> None:
    """What the server was told is what stood in the request, not what is known by the time of its answer."""
    press = Press()
    press.tell(story(), story())
    press.now += 10
    patch = press.begin()
    assert patch is not None
    press.tell(story())
    press.end(patch, Ended.DONE)
    press.drain()
    assert [count_of(event) for event in press.events.values()] == [3]


def test_an_event_that_is_under_way_for_long_is_not_begun_twice() -> None:
    """A server that takes seven minutes: the news heard meanwhile is counted by the same event."""
    press = Press()
    press.book.tell(story(), press.now)
    write = press.begin()
    assert write is not None
    press.now += 420
    press.tell(story())
    press.end(write, Ended.DONE)
    press.drain()
    assert [count_of(event) for event in press.events.values()] == [2]


# -- refusals and failures ---------


def test_forbidden_is_left_alone_for_five_minutes() -> None:
    """No request until then; what was told meanwhile is left out, counted, and told once it may be."""
    press = Press(answer=lambda write: Ended.FORBIDDEN)
    for number in range(20):
        press.tell(story(owner=Owner("v1", "A", f"a{number}")))
    press.wait(299)
    assert len(press.writes) == 1
    press.answer = lambda write: Ended.DONE
    press.wait(2)
    (summary,) = press.events.values()
    assert told_by_summary(summary) == 20
    press.wait(3600)
    for number in range(100):
        press.tell(story(owner=Owner("v1", "A", f"b{number}")))
    assert len(press.of("WaitingForQuota")) == 20


def test_what_was_promised_a_token_gives_it_back_where_events_are_forbidden() -> None:
    """Told while the first request was under way: later there are as many as ever."""
    press = Press()
    press.book.tell(story(), press.now)
    write = press.begin()
    assert write is not None
    for number in range(30):
        press.book.tell(story(owner=Owner("v1", "A", f"a{number}")), press.now)
    press.end(write, Ended.FORBIDDEN)
    press.wait(3600)
    for number in range(100):
        press.tell(story(owner=Owner("v1", "A", f"b{number}")))
    assert len(press.of("WaitingForQuota")) == 20


def test_who_may_create_but_not_patch_still_creates() -> None:
    """The counts are left out; there are no more events for it."""
    press = Press(answer=lambda write: Ended.FORBIDDEN if write.verb == "patch" else Ended.DONE)
    for _ in range(100):
        press.tell(story())
        press.wait(1)
    assert [write.verb for _, write in press.writes if write.body.get("reason") != LEFT_OUT] == ["create", "patch"]
    assert press.book.counts.left_out >= 89


def test_a_server_in_trouble_is_asked_ever_more_rarely_and_then_let_be() -> None:
    """Five tries for an event, with growing pauses; then it is left out."""
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
    assert [told_by_summary(event) for event in press.of(LEFT_OUT)] == [1]


def test_the_servers_retry_after_is_kept() -> None:
    """No request before."""
    press = Press()
    press.book.tell(story(), press.now)
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
    """A create that exists was ours: an answer was lost. A patch of what is gone makes it anew."""
    assert ended_by(Write(verb, "team", "n", {}, 1), status) == how


# -- fields ---------


@given(st.text(max_size=300), st.floats(1e9, 4e9), st.integers(0, 2**16 - 1))
def test_names_are_names_whatever_the_owner_is_called(about: str, when: float, nonce: int) -> None:
    """DNS subdomains of at most 253 characters."""
    import re  # noqa: PLC0415

    name = event_name(about, when, nonce)
    assert len(name) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name)


@given(st.text(max_size=2000))
def test_notes_are_cut_by_bytes(text: str) -> None:
    """As the server counts."""
    cut = short_note(text)
    assert len(cut.encode("utf-8", "replace")) <= NOTE_MAX
    assert cut == text or cut.endswith("...")


@given(st.text(max_size=300), st.integers(1, 2**22))
def test_the_instance_keeps_its_process_id(host: str, pid: int) -> None:
    """However long the name of the host is."""
    name = instance_name(host, pid)
    assert len(name.encode()) <= INSTANCE_MAX
    assert name.endswith(f"-{pid}")


@pytest.mark.parametrize(
    ("given_", "word", "wanted"),
    [
        (None, None, False),
        (None, "", False),
        (None, "1", True),
        (None, "True", True),
        (None, "off", False),
        (None, "maybe", False),
        (True, "0", True),
        (False, "1", False),
    ],
)
def test_events_are_written_only_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, given_: bool | None, word: str | None, wanted: bool
) -> None:
    """By the argument, else by the environment."""
    monkeypatch.delenv("BACKOFF_CTRL_EVENTS", raising=False)
    if word is not None:
        monkeypatch.setenv("BACKOFF_CTRL_EVENTS", word)
    assert events_wanted(given_) is wanted


# -- whatever happens ---------

SMALL = Limits(
    namespace_rate=0.5, namespace_burst=5, rate=1.0, burst=8, kept_share=0.3, window=20, first_patch=2,
    first_summary=1, summaries=5, shut=7, series_max=6, namespaces_max=3, tries=2,
)  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.integers(0, 4), st.integers(0, 9), st.sampled_from(Happening)),
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
                press.book.tell(story(happening, Owner("v1", "A", f"a{who}"), f"team-{place}"), press.now)
            case "wait", seconds:
                press.now += seconds
            case ("begin",):
                under_way = press.begin() or under_way
            case "end", how if under_way is not None:
                press.end(under_way, Ended.DONE if under_way.body.get("reason") == LEFT_OUT else how)
                under_way = None
        assert press.book.held <= 3 * (SMALL.series_max + SMALL.namespaces_max) + 8
    if under_way is not None:
        press.end(under_way, Ended.DONE)
    return press


@given(STEPS)
def test_the_rates_hold_whatever_happens(steps: Any) -> None:
    """In no span of time more requests than burst + rate x span, for a namespace and for all; memory is bounded."""
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
    """Every story is in an event's count or left out, and each that is left out is told by a summary, if any can."""
    press = play(steps)
    press.drain()
    counts = press.book.counts
    written = sum(count_of(event) for event in press.events.values() if event["reason"] != LEFT_OUT)
    assert counts.told == sum(step[0] == "tell" for step in steps) == written + counts.left_out
    summed_up = sum(map(told_by_summary, press.of(LEFT_OUT)))
    places = Counter(step[1] for step in steps if step[0] == "tell")
    assert summed_up == counts.left_out or (summed_up < counts.left_out and len(places) > SMALL.namespaces_max)
    assert counts.creates + counts.patches == len(press.writes)
