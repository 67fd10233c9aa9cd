"""The table of an object's life: what each thing that is seen leads to, whatever happened before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.workloads.admitting.life import LIFE, Act, Seen, State, step

OF_THE_OBJECT = (Seen.LEFT, Seen.SUSPENDED, Seen.RUNS, Seen.ENDED, Seen.GONE)


@pytest.mark.parametrize("state", [each for each in State if each is not State.GONE])
@pytest.mark.parametrize("seen", OF_THE_OBJECT)
def test_whatever_is_seen_of_an_object_says_where_it_is(state: State, seen: Seen) -> None:
    """Nothing that was missed matters: the same object leads to the same place from everywhere."""
    after, _ = step(state, seen)
    wanted = {
        Seen.LEFT: {State.LEFT},
        Seen.SUSPENDED: {State.WAITING, State.REFUSED, State.GRANTED},
        Seen.RUNS: {State.RUNNING},
        Seen.ENDED: {State.ENDED},
        Seen.GONE: {State.GONE},
    }
    assert after in wanted[seen]


def test_what_is_gone_stays_so() -> None:
    assert {step(State.GONE, seen) for seen in Seen} == {(State.GONE, ())}


def test_only_what_the_line_has_granted_is_resumed() -> None:
    resumed = {(state, seen) for state, row in LIFE.items() for seen, (_, acts) in row.items() if Act.RESUME in acts}
    assert resumed == {(State.WAITING, Seen.GRANT)}


@given(st.lists(st.sampled_from(list(Seen)), max_size=40))
def test_room_and_places_are_neither_lost_nor_had_twice(events: list[Seen]) -> None:
    """Who joins or stands has dropped what it had before; who has left, ended or gone has nothing."""
    state, has = State.NEW, False
    for seen in events:
        state, acts = step(state, seen)
        for act in acts:
            if act is Act.DROP:
                has = False
            elif act in (Act.JOIN, Act.STAND):
                assert not has
                has = True
        assert has or state not in (State.WAITING, State.GRANTED, State.RUNNING)
        assert not (has and state in (State.NEW, State.LEFT, State.ENDED, State.GONE))
