"""What watches tell: objects counted by state, events as reasons in order, and namespaces that may be watched alone."""

from __future__ import annotations

from typing import Any

from backoff_ctrl.k8s.kube.answers.objects import Object
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.plugins.config import K8sPluginConfig
from backoff_ctrl.k8s.tasks.plugins.events import EventBook
from backoff_ctrl.k8s.tasks.plugins.following import ZERO_FOR, Monitor
from tests.tasks.bench import Bench
from tests.tasks.small_plugins import JOB, POD, task

U = "a", "u"


def thing(name: str, namespace: str = "a", *, going: bool = False, **status: Any) -> Object:
    return Object({"status": status}, (namespace, name), name, "1", is_going=going)


def test_objects_are_counted_by_kind_namespace_and_state_and_zero_is_shown_and_then_dropped() -> None:
    now = [0.0]
    monitor = Monitor(lambda _, found: bool(found.body["status"].get("ended")), lambda: now[0])
    monitor.changed(POD, thing("x"), False)
    monitor.changed(POD, thing("y"), False)
    monitor.changed(POD, thing("z", "b"), False)
    monitor.changed(JOB, thing("x"), False)
    assert dict(monitor.numbers()) == {
        ("pods", "a", "living"): 2,
        ("pods", "b", "living"): 1,
        ("jobs.batch", "a", "living"): 1,
    }
    monitor.changed(POD, thing("x", ended=True), False)
    monitor.changed(POD, thing("x", ended=True), False)
    monitor.changed(POD, thing("y", going=True), False)
    monitor.changed(POD, thing("z", "b"), True)
    monitor.changed(POD, thing("z", "b"), True)
    zero = {("pods", "a", "living"): 0, ("pods", "b", "living"): 0}
    ones = {("pods", "a", "ended"): 1, ("pods", "a", "deleting"): 1, ("jobs.batch", "a", "living"): 1}
    assert dict(monitor.numbers()) == zero | ones
    now[0] = ZERO_FOR
    assert dict(monitor.numbers()) == ones
    monitor.changed(POD, thing("z", "b"), False)
    assert dict(monitor.numbers()) == ones | {("pods", "b", "living"): 1}


def event(
    uid: str, second: int, version: int, about: str = "u", count: int = 0, namespace: str = "a", **more: Any
) -> JSON:
    series = {"series": {"count": count, "lastObservedTime": f"2026-01-01T00:00:{second:02}.5Z"}} if count else {}
    created = f"2026-01-01T00:00:{second:02}Z"
    metadata = {
        "uid": uid,
        "name": uid,
        "namespace": namespace,
        "resourceVersion": str(version),
        "creationTimestamp": created,
    }
    return {"metadata": metadata, "regarding": {"uid": about}, "reason": uid.title(), "note": "so", **series, **more}


def test_events_are_told_once_in_order_and_none_is_lost_within_a_second() -> None:
    woken: list[Any] = []
    book = EventBook(woken.append)
    book.changed(event("early", 1, 10))
    book.claim(U, ("t", 0))
    book.changed(event("third", 5, 13))
    book.changed(event("second", 5, 12))
    book.changed(event("elsewhere", 5, 12, about="other"))
    book.changed(event("forged", 5, 12, namespace="b"))
    reasons, told = book.news(U, {})
    assert [each.text for each in reasons] == ["Early: so", "Second: so", "Third: so"]
    assert (woken, told) == ([("t", 0)] * 2, {"early": 1, "second": 1, "third": 1})
    book.changed(event("fourth", 5, 11))  # of the same second, and seen late
    book.changed(event("third", 5, 13))  # again, as after a new list
    reasons, told = book.news(U, told)
    assert [each.text for each in reasons] == ["Fourth: so"]
    book.changed(event("second", 9, 20, count=4))
    reasons, told = book.news(U, told)
    assert [each.text for each in reasons] == ["Second: so (x4)"]
    assert book.news(U, told)[0] == ()
    book.release(U)
    assert book.news(U, told) == ((), told)
    for malformed in ({}, {"regarding": {"uid": "u"}}, {"regarding": 3, "metadata": {"uid": "x"}}):
        book.changed(malformed)


async def test_events_of_the_object_come_with_its_phase_and_are_not_told_again_after_a_restart(bench: Bench) -> None:
    one = task(config=K8sPluginConfig(send_object_events=True))
    await bench.until(one, Phase.QUEUED)
    pod = await bench.pod("one-0")
    about = {"apiVersion": "v1", "kind": "Pod", "name": "one-0", "namespace": "team", "uid": pod["metadata"]["uid"]}

    async def happen(name: str) -> None:
        body = {
            "metadata": {"name": name},
            "regarding": about,
            "reason": name.title(),
            "note": "it happened",
            "type": "Normal",
            "action": "Test",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "test",
            "reportingInstance": "test",
        }
        made = await bench.call("POST", "/apis/events.k8s.io/v1/namespaces/team/events", body)
        assert made["http"] == 201, made

    await happen("pulling")
    await happen("pulled")
    said = [each.text for each in (await bench.until(one, Phase.QUEUED, holds=lambda info: info.reasons)).reasons]
    while len(said) < 2:
        said += [each.text for each in (await bench.until(one, Phase.QUEUED, holds=lambda info: info.reasons)).reasons]
    assert said == ["Pulling: it happened", "Pulled: it happened"]
    await bench.restart()
    await bench.step(one)
    await happen("started")
    info = await bench.until(one, Phase.QUEUED, holds=lambda info: info.reasons)
    assert [each.text for each in info.reasons] == ["Started: it happened"]


async def test_figures_of_the_manager_are_samples_of_the_catalogue(bench: Bench) -> None:
    from backoff_ctrl.k8s.status.catalogue import BY_NAME  # noqa: PLC0415

    await bench.until(task(), Phase.QUEUED)
    await bench.step(task())
    ledger = bench.manager.gate.ledger
    found = {name: (labels, value) for each in ledger.subscribers.every for name, labels, value in each.figures()}
    assert all(len(labels) == len(BY_NAME[f"backoff_ctrl_{name}"].labels) for name, (labels, _) in found.items())
    assert found["task_creates_total"] == (("container", "created"), 1)
    await bench.restart()
    assert ledger.subscribers.every == ()  # the manager that ended is told no more
