"""Events about waiting creates: repeated news is one event; what it says and which object it regards."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.k8s.gate.creates.creation import Owner, owner_of
from backoff_ctrl.k8s.gate.events.correlator import (
    INSTANCE_MAX,
    NOTE_MAX,
    Ended,
    Reason,
    Report,
    event_name,
    instance_name,
    micro_time,
    short_note,
)
from tests.gating.press import EPOCH, Press, count_of, story


def test_a_wait_becomes_an_event_on_the_owner() -> None:
    """It is a Warning and has every field that events.k8s.io/v1 requires."""
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


def test_without_an_owner_the_event_regards_the_namespace() -> None:
    """The reference also gives the namespace as its namespace; else the event would belong in ``default``."""
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
    """Entries that are not valid ownerReferences are skipped."""
    assert owner_of({"metadata": {"ownerReferences": references}}) == owner


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": 3}, {"metadata": {}}])
def test_a_body_without_metadata_has_no_owner(body: Any) -> None:
    """Refusing such a body is left to the server."""
    assert owner_of(body) is None


def test_repeated_news_is_one_event_that_counts() -> None:
    """Created at once; then its series is patched after pauses of 10, 20, 40 ... seconds; no repetition is lost."""
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
        story(Reason.NEVER_FITS),
        story(quota="r"),
        story(resource="requests.cpu"),
        story(owner=None),
        story(owner=Owner("batch/v1", "Job", "train", "uid-2")),
        story(namespace="others"),
    ],
    ids=["reason", "quota", "resource", "no owner", "owner", "namespace"],
)
def test_other_news_is_another_event(other: Report) -> None:
    """News counts as repeated only if regarding, reason, quota and resource are the same."""
    press = Press()
    press.tell(story(), other)
    assert [count_of(event) for event in press.events.values()] == [1, 1]


@pytest.mark.parametrize(("pause", "events"), [(360, 1), (360.1, 2)])
def test_a_series_ends_after_six_minutes_of_silence(pause: float, events: int) -> None:
    """As in client-go's EventBroadcaster."""
    press = Press()
    press.tell(story())
    press.wait(pause)
    press.tell(story())
    press.drain()
    assert len(press.events) == events
    assert sum(map(count_of, press.events.values())) == 2


def test_an_expired_event_is_created_again_with_its_count() -> None:
    """The server keeps events for an hour by default."""
    press = Press()
    press.tell(story(), story())
    press.answer = lambda write: Ended.GONE if write.verb == "patch" else Ended.DONE
    press.wait(10)
    (event,) = press.events.values()
    assert event["series"]["count"] == 2
    assert [write.verb for _, write in press.writes] == ["create", "patch", "create"]
    assert len({write.name for _, write in press.writes}) == 2


# -- fields ---------


@given(st.text(max_size=300), st.floats(1e9, 4e9), st.integers(0, 2**16 - 1))
def test_event_names_are_valid_whatever_the_owner_is_called(about: str, when: float, nonce: int) -> None:
    """They are DNS subdomains of at most 253 characters."""
    import re  # noqa: PLC0415

    name = event_name(about, when, nonce)
    assert len(name) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", name)


@given(st.text(max_size=2000))
def test_notes_are_cut_by_bytes(text: str) -> None:
    """The server's limit is in bytes of UTF-8."""
    cut = short_note(text)
    assert len(cut.encode("utf-8", "replace")) <= NOTE_MAX
    assert cut == text or cut.endswith("...")


@given(st.text(max_size=300), st.integers(1, 2**22))
def test_the_instance_keeps_its_process_id(host: str, pid: int) -> None:
    """However long the host name is."""
    name = instance_name(host, pid)
    assert len(name.encode()) <= INSTANCE_MAX
    assert name.endswith(f"-{pid}")
