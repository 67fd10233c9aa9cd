"""Who may take a Lease and who leads, by the clock: tables of time, and two candidates against each other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.kube.cluster.election import Candidate, Record, Terms, read_record

TERMS = Terms(duration=10, deadline=7, retry=1.5)
OTHER = Record("other", 10.0, "2026-01-01T00:00:00.000000Z", 3, "7")


@pytest.mark.parametrize(
    ("record", "seen", "now", "may"),
    [
        pytest.param(Record(), 0, 0, True, id="no Lease"),
        pytest.param(Record("", 1.0, version="7"), 0, 0, True, id="given back"),
        pytest.param(Record("me", 10.0, version="7"), 0, 0, True, id="its own, after a restart under the same name"),
        pytest.param(OTHER, 5, 14.9, False, id="another's"),
        pytest.param(OTHER, 5, 15, True, id="another's, unchanged for its duration"),
        pytest.param(Record("other", 0.0, version="7"), 5, 14.9, False, id="without a duration: ours counts"),
        pytest.param(Record("other", 60.0, version="7"), 5, 64, False, id="of longer terms than ours"),
        pytest.param(Record("other", 2.0**31, version="7"), 5, 104, False, id="of 68 years, for a while"),
        pytest.param(Record("other", 2.0**31, version="7"), 5, 105, True, id="of 68 years, for ten of ours"),
        pytest.param(Record("other", -1.0, version="7"), 5, 14.9, False, id="of less than nothing: ours counts"),
    ],
)
def test_a_lease_is_taken_once_it_has_not_changed_for_its_duration(
    record: Record, seen: float, now: float, may: bool
) -> None:
    """By the candidate's own clock: the times in the record may be those of a clock that is wrong."""
    candidate = Candidate("me", TERMS)
    candidate.saw(record, seen)
    candidate.saw(record, now)

    assert candidate.may_take(now) is may


def test_a_renewal_begins_the_duration_anew() -> None:
    candidate = Candidate("me", TERMS)
    candidate.saw(OTHER, 0)
    candidate.saw(Record("other", 10.0, OTHER.acquired, 3, "8"), 9)

    assert not candidate.may_take(18.9)
    assert candidate.may_take(19)


def test_a_lease_that_somebody_has_deleted_counts_until_it_would_have_lapsed() -> None:
    """Its holder does not know yet, and leads; then it makes the Lease anew."""
    candidate = Candidate("me", TERMS)
    candidate.saw(OTHER, 5)
    for now, may in ((6, False), (14.9, False), (15, True)):
        candidate.saw(Record(), now)
        assert candidate.may_take(now) is may
    assert not candidate.record.version  # so that it is created, not renewed


def test_it_leads_until_the_deadline_after_its_last_write_was_sent() -> None:
    candidate = Candidate("me", TERMS)
    assert not candidate.leads(0)
    candidate.wrote(Record("me", 10.0, version="7"), 100)
    assert [candidate.leads(now) for now in (100, 106.9, 107)] == [True, True, False]
    candidate.wrote(Record("me", 10.0, version="8"), 103)
    candidate.lost()
    assert not candidate.leads(103)


@pytest.mark.parametrize(
    ("before", "acquired", "transitions"),
    [
        pytest.param(Record(), "now", 0, id="the first holder"),
        pytest.param(OTHER, "now", 4, id="after another"),
        pytest.param(Record("", 1.0, "then", 3, "7"), "now", 4, id="after it was given back"),
        pytest.param(Record("me", 10.0, "then", 3, "7"), "then", 3, id="its own, renewed"),
    ],
)
def test_the_lease_shows_since_when_and_how_often_it_changed_hands(
    before: Record, acquired: str, transitions: int
) -> None:
    candidate = Candidate("me", TERMS)
    candidate.saw(before, 0)

    assert candidate.next_spec("now") == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 10,
        "acquireTime": acquired,
        "renewTime": "now",
        "leaseTransitions": transitions,
    }


@pytest.mark.parametrize(
    "lease",
    [None, [], {"spec": 3}, {"spec": {"holderIdentity": 1, "leaseDurationSeconds": "x", "leaseTransitions": None}}],
)
def test_a_malformed_lease_counts_as_not_set(lease: Any) -> None:
    assert read_record(lease) == Record()


@pytest.mark.parametrize("times", [(10, 10, 1), (10, 1, 1), (10, 7, 0), (10, 1.1, 1)])
def test_terms_that_would_let_two_lead_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="must last longer"):
        Terms(*times)


class _Server:
    """A Lease with optimistic locking, as the API server keeps it."""

    def __init__(self) -> None:
        self.record = Record()
        self.version = 0

    def put(self, candidate: Candidate, lasts: int) -> Record | None:
        if candidate.record.version != self.record.version:
            return None
        self.version += 1
        self.record = Record(candidate.who, float(lasts), "", 0, str(self.version))
        return self.record


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("ab"), st.floats(0, 4), st.floats(0, 3), st.sampled_from(["try", "write lost", "read only"])
        ),
        max_size=60,
    ),
    skew=st.floats(-1e6, 1e6),
)
def test_two_never_lead_at_a_time(steps: list[tuple[str, float, float, str]], skew: float) -> None:
    """Whatever is slow or lost, and however far their clocks are apart, as long as they run at one speed."""
    server, now, clocks = _Server(), 0.0, {"a": 0.0, "b": skew}
    candidates = {name: Candidate(name, TERMS) for name in "ab"}
    for who, pause, slow, what in steps:
        now += pause
        candidate, ahead = candidates[who], clocks[who]
        candidate.saw(server.record, now + ahead)
        asked = now + ahead
        if what != "read only" and candidate.may_take(asked):
            now += slow
            written = server.put(candidate, 10)
            if written is not None and what == "try":
                candidate.wrote(written, asked)

        assert sum(each.leads(now + clocks[name]) for name, each in candidates.items()) <= 1
