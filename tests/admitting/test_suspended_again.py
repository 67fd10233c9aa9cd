"""What is suspended again although it was let in: who did that, how often, and what is done about it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.workloads.admitting.again import OFTEN, SOON, SuspendedAgain, Suspender, suspender_of, with_note
from backoff_ctrl.k8s.workloads.admitting.kinds import ADMITTED, JOB, subject_of
from tests.admitting.objects import merged, named

AT = datetime(2026, 1, 1, tzinfo=UTC)


def let_in(**said: Any) -> dict[str, Any]:
    noted = {"at": "2026-01-01T00:00:00Z", "uid": "u", **said}
    return {"metadata": {"uid": "u", "generation": 3, "annotations": {ADMITTED: json.dumps(noted)}}}


def suspended(body: dict[str, Any], after: float, by: Suspender | None = None) -> SuspendedAgain:
    again = SuspendedAgain.of(subject_of(JOB, body))
    assert again is not None
    return again.seen(subject_of(JOB, body), by or Suspender(), AT + timedelta(seconds=after))


@pytest.mark.parametrize(
    ("said", "after", "times", "loop"),
    [
        ({}, 1, 1, False),
        ({}, SOON + 1, 0, False),
        ({"times": 1}, 1, 2, True),
        ({"times": 1}, SOON + 1, 0, False),
        ({"times": "many"}, 1, 1, False),
        ({"times": 10**30}, 1, 1, False),
        ({"at": "yesterday", "times": 1}, 1, 0, False),
    ],
)
def test_only_what_is_suspended_soon_and_often_is_not_let_in_again(
    said: dict[str, Any], after: float, times: int, loop: bool
) -> None:
    again = suspended(let_in(**said), after)
    assert (again.times, again.is_loop) == (times, loop)


def test_what_is_noted_is_read_again_and_counts_until_the_spec_changes() -> None:
    body = let_in(times=1)
    again = suspended(body, 1, Suspender("tool", None))
    stored = merged(body, with_note(subject_of(JOB, body), again))
    assert SuspendedAgain.of(subject_of(JOB, stored)) == again
    assert not again.has_changed(subject_of(JOB, stored))
    assert again.has_changed(subject_of(JOB, merged(stored, {"metadata": {"generation": 4}})))
    assert "the field manager tool has suspended it twice within 10 minutes" in again.sentence(JOB)
    assert OFTEN == 2


def test_what_is_noted_on_another_object_says_nothing() -> None:
    assert SuspendedAgain.of(subject_of(JOB, merged(let_in(), {"metadata": {"uid": "of a copy"}}))) is None


@pytest.mark.parametrize(("kind", "path"), [("Job", ["suspend"]), ("PyTorchJob", ["runPolicy", "suspend"])])
def test_the_last_field_manager_of_the_field_is_named(kind: str, path: list[str]) -> None:
    fields: dict[str, Any] = {}
    for name in reversed(["spec", *path]):
        fields = {f"f:{name}": fields}
    entries = [
        {"manager": "first", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields},
        {"manager": "tool", "time": "2026-01-01T00:00:05Z", "fieldsV1": fields},
        {"manager": "other", "time": "2026-01-01T00:00:09Z", "fieldsV1": {"f:spec": {"f:parallelism": {}}}},
    ]
    found = suspender_of(named(kind), {"metadata": {"managedFields": entries}})
    assert found == Suspender("tool", AT + timedelta(seconds=5))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just("2026-01-01T00:00:00Z"),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["manager", "time", "fieldsV1", "f:spec", "f:suspend", "at", "times", "suspended"]), inner
        )
    ),
)


@given(values, values, values)
def test_whatever_is_written_there_is_no_error(entries: object, said: object, generation: object) -> None:
    noted = {**said, "uid": "u"} if isinstance(said, dict) else said
    annotations = {ADMITTED: json.dumps(noted)}
    body = {
        "metadata": {"uid": "u", "generation": generation, "managedFields": entries, "annotations": annotations},
    }
    subject = subject_of(JOB, body)
    again = SuspendedAgain.of(subject)
    if again is not None:
        seen = again.seen(subject, suspender_of(JOB, body), AT)
        assert not seen.has_changed(subject)
        assert seen.sentence(JOB)
