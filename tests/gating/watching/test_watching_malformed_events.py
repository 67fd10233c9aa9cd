"""Malformed data, from the server or a proxy: counted, logged at a limited rate, and never the end of a watch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.charges.quotas import read_cluster_quota, read_quota
from backoff_ctrl.k8s.kube.watching.objects import (
    CLUSTER_QUOTAS,
    GONE_MAX,
    QUOTAS,
    Event,
    Ignored,
    IgnoredError,
    Order,
    WatchBrokenError,
    is_older,
    read_event,
)
from tests.kit.virtual_tests import in_virtual_time
from tests.kit.watch_script import ScriptedServer, elapse, observed

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PODS = {"pods": "2"}


def quotas_of(value: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with the fields of quotas and anything in each field."""
    hard = st.dictionaries(st.sampled_from(["pods", "requests.cpu", ""]), value, max_size=2) | value
    expression = st.fixed_dictionaries(
        {}, optional={"scopeName": value | st.just("PriorityClass"), "operator": value | st.just("In"), "values": value}
    )
    selector = st.fixed_dictionaries(
        {}, optional={"matchExpressions": st.lists(expression | value, max_size=2) | value}
    )
    spec = st.fixed_dictionaries(
        {}, optional={"hard": hard, "scopes": value | st.lists(value, max_size=2), "scopeSelector": selector | value}
    )
    status = st.fixed_dictionaries({}, optional={"hard": hard, "used": hard})
    over = st.fixed_dictionaries({"quota": spec | value}, optional={"selector": value})
    entries = st.lists(st.fixed_dictionaries({}, optional={"namespace": value}) | value, max_size=2)
    total = st.fixed_dictionaries({}, optional={"total": status | value, "namespaces": entries | value})
    return st.fixed_dictionaries(
        {}, optional={"spec": spec | over | value, "status": status | total | value, "metadata": value}
    )


@given(JSON | quotas_of(JSON))
@example({"spec": {"scopes": 5}})
@example({"spec": {"scopes": [["BestEffort"]]}})
@example({"spec": {"hard": ["pods"]}})
@example({"spec": {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": {}}]}}})
@example({"spec": {"scopeSelector": {"matchExpressions": [{"scopeName": {}, "operator": "In", "values": [{}]}]}}})
@example({"status": {"hard": {"pods": -1}, "used": {"pods": float("nan")}}})
def test_a_quota_of_any_shape_is_read_or_refused(quota: Any) -> None:
    """Anything malformed raises the same error, and no amount is negative."""
    for read in (read_quota, read_cluster_quota):
        try:
            found = read(quota)
        except FieldError:
            continue
        seen = found if isinstance(found, ObservedQuota) else found.seen
        amounts = [*seen.spec.values(), *seen.hard.values(), *seen.used.values()]
        assert all(type(amount) is int and amount >= 0 for amount in amounts)


@given(
    JSON
    | st.fixed_dictionaries(
        {"type": st.sampled_from(["ADDED", "DELETED", "ERROR", "BOOKMARK"]) | JSON, "object": JSON | quotas_of(JSON)}
    )
)
@example({"type": ["ADDED"], "object": {}})
@example({"type": "ADDED", "object": {"kind": {}, "metadata": {"name": "q", "namespace": "team"}}})
@example({"type": "ADDED", "object": {"metadata": {"name": [], "namespace": {}, "resourceVersion": 5}}})
@example({"type": "ERROR", "object": {"code": [], "reason": {}, "message": [[]]}})
def test_a_line_of_any_content_is_an_event_or_refused(line: Any) -> None:
    """An event has a place and strings; anything else is an error with a reason, or a broken watch."""
    try:
        event = read_event(line, QUOTAS, None)
    except (IgnoredError, WatchBrokenError):
        return
    assert isinstance(event, Event)
    assert event.type == "BOOKMARK" or all(event.object.key)
    assert all(isinstance(text, str) for text in (*event.object.key, event.object.uid, event.object.version))


@given(
    st.lists(
        JSON
        | st.fixed_dictionaries({"type": st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), "object": quotas_of(JSON)}),
        max_size=20,
    )
)
@in_virtual_time
async def test_the_watch_outlives_any_lines(lines: list[Any]) -> None:
    """Afterwards a regular change still counts, and no internal error has occurred."""
    server = ScriptedServer()
    server.quota(hard="2")
    async with observed(server) as seen:
        await elapse(30)
        for line in lines:
            if not (isinstance(line, dict) and line.get("type") == "ERROR"):
                server.tell(line)
        server.quota(hard="8")
        await elapse(1)

        assert seen.ledger.left() == 8
        assert seen.record.counts.failures == 0
        assert not seen.task.done()


def event(kind: str, version: str, hard: str = "9", **more: Any) -> dict[str, Any]:
    """An event of the quota q."""
    amounts = {"hard": {"pods": hard}, "used": {"pods": "0"}}
    metadata = {"namespace": "team", "name": "q", "uid": "uid-101", "resourceVersion": version, **more}
    return {"type": kind, "object": {"metadata": metadata, "spec": {"hard": {"pods": hard}}, "status": amounts}}


MALFORMED: list[tuple[Any, Ignored]] = [
    (Ignored.NO_JSON, Ignored.NO_JSON),
    (Ignored.TOO_LONG, Ignored.TOO_LONG),
    (17, Ignored.NO_EVENT),
    ({"type": "ADDED"}, Ignored.NO_EVENT),
    ({"type": "ADDED", "object": "quota"}, Ignored.NO_EVENT),
    ({"type": "RENAMED", "object": {}}, Ignored.UNKNOWN_TYPE),
    ({"object": {"metadata": {"name": "q", "namespace": "team"}}}, Ignored.UNKNOWN_TYPE),
    ({"type": "ADDED", "object": {"kind": "Secret", "metadata": {}}}, Ignored.UNKNOWN_KIND),
    ({"type": "ADDED", "object": {"spec": {}}}, Ignored.NO_METADATA),
    ({"type": "ADDED", "object": {"metadata": {"name": "q"}}}, Ignored.NO_METADATA),
    ({"type": "BOOKMARK", "object": {"metadata": {}}}, Ignored.NO_METADATA),
    ({"type": "ADDED", "object": {"metadata": {"name": "q", "namespace": "other"}}}, Ignored.ELSEWHERE),
    (event("MODIFIED", "99"), Ignored.OLDER),
    (event("DELETED", "99"), Ignored.OLDER),
    (event("MODIFIED", "101"), Ignored.DUPLICATE),
    (event("DELETED", "150", name="nobody"), Ignored.DUPLICATE),
    (event("DELETED", "150", uid="of-an-earlier-one"), Ignored.OLDER),
]


@pytest.mark.parametrize(("line", "reason"), MALFORMED, ids=lambda value: str(value)[:40])
@in_virtual_time
async def test_malformed_events_are_counted_by_reason_and_change_nothing(line: Any, reason: Ignored) -> None:
    """Known quotas stay, and so does the stream."""
    server = ScriptedServer()
    server.quota(hard="2")
    async with observed(server) as seen:
        await elapse(1)
        server.tell(line)
        await elapse(1)

        assert seen.record.counts.ignored == {str(reason): 1}
        assert seen.ledger.left() == 2
        assert seen.ledger.news == ["team/q", "watching team"]
        assert server.count("watch") == 1


@in_virtual_time
async def test_a_quota_that_becomes_unreadable_is_dropped() -> None:
    """Its old amounts must not count any longer; other quotas still do, and so does this one once it is fixed."""
    server = ScriptedServer()
    server.quota("q", hard="2")
    server.quota("good", hard="3")
    async with observed(server) as seen:
        await elapse(1)
        server.put("resourcequotas", "team", "q", {"spec": {"scopes": 5}, "status": {"hard": {"pods": "1"}}})
        await elapse(1)
        assert seen.ledger.left("q") is None
        assert seen.ledger.left("good") == 3
        assert seen.record.counts.ignored == {"unreadable": 1}

        server.quota("q", hard="4")
        await elapse(1)
        assert seen.ledger.left("q") == 4


@in_virtual_time
async def test_malformed_items_do_not_spoil_the_rest_of_a_list() -> None:
    """One item without metadata, one that is not an object, one unreadable quota, one good quota."""
    server = ScriptedServer()
    objects = server.objects.setdefault("resourcequotas", {})
    objects["team", "1"] = {"spec": {}}
    objects["team", "2"] = [1, 2]  # type: ignore[assignment]
    server.put("resourcequotas", "team", "3", {"spec": {"hard": "all"}})
    server.quota("good", hard="3")
    async with observed(server) as seen:
        await elapse(1)

        assert seen.ledger.left("good") == 3
        assert seen.ledger.observes()
        assert seen.record.counts.ignored == {"no-metadata": 1, "no-event": 1, "unreadable": 1}


@in_virtual_time
async def test_a_flood_of_malformed_events_makes_few_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    """20,000 in a minute: all are counted; of at most 12 log lines the last gives the number suppressed."""
    server = ScriptedServer()
    async with observed(server) as seen:
        for _ in range(20):
            server.tell(*[17] * 1000)
            await elapse(3)
        server.tell(17)
        await elapse(1)

        assert seen.record.counts.ignored == {"no-event": 20_001}

    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    lines = [line for line in warnings if line.startswith("the watch of")]  # a watch of another test may just end
    assert len(lines) <= 12
    assert "similar lines suppressed" in lines[-1]


@in_virtual_time
async def test_events_that_come_faster_than_they_are_read_do_not_block_the_event_loop() -> None:
    """Other tasks get their turns while 10,000 buffered events are handled."""
    server = ScriptedServer()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with observed(server) as seen:
        await elapse(1)
        server.tell(*[17] * 10_000)
        task = asyncio.ensure_future(other())
        server.quota(hard="7")
        while seen.ledger.left() != 7:
            await asyncio.wait([task], timeout=0)
        task.cancel()

        assert turns > 100


@in_virtual_time
async def test_an_internal_error_is_counted_and_the_watch_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A source that fails with an unexpected exception: it is logged with its traceback, and the list is retried."""

    class Failing(ScriptedServer):
        async def pages(self, kind: Any, namespace: str | None, trim: Any = None) -> Any:
            async for page in super().pages(kind, namespace):
                if self.count("list") < 3:
                    raise LookupError("an unexpected exception")
                yield page

    server = Failing()
    server.quota(hard="4")
    async with observed(server) as seen:
        await elapse(5)

        assert seen.record.counts.failures == 2
        assert seen.ledger.left() == 4

    assert any(record.exc_info and "internal error" in record.getMessage() for record in caplog.records)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["ADDED", "MODIFIED", "DELETED"])), max_size=30),
    st.data(),
)
def test_an_older_event_never_replaces_a_newer_one(happened: list[tuple[str, str]], data: st.DataObject) -> None:
    """Each event comes twice, in any order: those taken of one object never go back in version."""
    order = Order()
    order.begin()
    order.listed("0")
    truth: dict[str, int] = {}
    events = [
        read_event(
            {"type": kind, "object": {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(version)}}},
            QUOTAS,
            None,
        )
        for version, (name, kind) in enumerate(happened, start=1)
    ]
    for each in data.draw(st.permutations(events * 2)):
        version, name = int(each.object.version), each.object.key[1]
        with contextlib.suppress(IgnoredError):
            order.take(each)
            assert version >= truth.get(name, 0)
            truth[name] = version


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("9", "9", False),
        ("a9", "b1", False),
        ("", "5", False),
        ("5", "", False),
        ("\u0665", "9", False),
        ("-1", "5", False),
        ("1" * 5000, "2" * 5000, False),
    ],
)
def test_versions_are_compared_only_as_numbers(version: str, than: str, *, older: bool) -> None:
    """They are opaque strings: unless both are numbers their order is unknown, and the order of arrival counts."""
    assert is_older(version, than) is older


def test_the_memory_of_deleted_objects_is_bounded() -> None:
    """Ten times as many objects are created and deleted."""
    order = Order()
    order.begin()
    for number in range(GONE_MAX * 10):
        metadata = {"name": f"q{number}", "namespace": "n"}
        order.take(read_event({"type": "ADDED", "object": {"metadata": metadata}}, QUOTAS, None))
        order.take(read_event({"type": "DELETED", "object": {"metadata": metadata}}, QUOTAS, None))

    assert len(order) == GONE_MAX


def test_objects_beyond_the_limit_are_ignored() -> None:
    """Those that came first still count."""
    order = Order(live_max=2)
    for name in "ab":
        order.take(
            read_event({"type": "ADDED", "object": {"metadata": {"name": name, "namespace": "n"}}}, QUOTAS, None)
        )
    third = read_event({"type": "ADDED", "object": {"metadata": {"name": "c", "namespace": "n"}}}, QUOTAS, None)

    with pytest.raises(IgnoredError) as found:
        order.take(third)
    assert found.value.reason is Ignored.TOO_MANY
    assert json.dumps(str(found.value))


def test_a_cluster_scoped_object_with_a_namespace_is_malformed() -> None:
    """A ClusterResourceQuota is in no namespace."""
    line = {"type": "ADDED", "object": {"metadata": {"name": "q", "namespace": "team"}}}

    with pytest.raises(IgnoredError):
        read_event(line, CLUSTER_QUOTAS, None)
