"""Events are sent beside the creates: no create waits for them or fails with them; they end with the last client."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client, watch

from backoff_ctrl.k8s.gate.aio import Gate
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.events.correlator import Limits, Reason, Report
from backoff_ctrl.k8s.gate.events.sender import EventSender, Reporter, send_events
from backoff_ctrl.k8s.gate.runtime.host import LOADING
from tests.kit.official import aio, token
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Seen, failure, scripted_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
    from tests.kit.scripted_server import Reply, Script


def story(number: int = 0, namespace: str = "team") -> Report:
    return Report(Reason.WAITS, namespace, Owner("v1", "A", f"a{number}"), "q", "pods", lambda: "waits")


class Scene:
    """A server scripted by the test, the requests for events that it received, and the sender."""

    def __init__(self, script: Script, sender: EventSender, asked: threading.Semaphore) -> None:
        self.script = script
        self.sender = sender
        self._asked = asked

    def was_asked(self) -> bool:
        """Wait for the next request."""
        return self._asked.acquire(timeout=45)


@contextmanager
def scene(answer: Callable[[Seen], Reply], limits: Limits | None = None, configuration: Any = None) -> Iterator[Scene]:
    asked = threading.Semaphore(0)

    def told(seen: Seen) -> Reply:
        asked.release()
        return answer(seen)

    with scripted_server(told) as script:
        given = configuration or client.Configuration()
        given.host = script.url
        sender = EventSender(given, limits=limits)
        try:
            yield Scene(script, sender, asked)
        finally:
            sender.finish()


def taken(seen: Seen) -> Reply:
    return 201, seen.body


def test_ten_thousand_stories_are_counted_at_the_server_as_a_few_requests() -> None:
    """A namespace's burst of 25 allows 20 new events; the other stories are only counted."""
    only_the_burst = Limits(namespace_rate=1e-6, first_patch=3600)
    with scene(taken, only_the_burst) as at:
        for number in range(10_000):
            at.sender.report(story(number))
        assert all(at.was_asked() for _ in range(20))
        at.sender.finish()
        posts = at.script.of("POST")
        assert len(posts) == len(at.script.seen) == 20
    assert {seen.path for seen in posts} == {"/apis/events.k8s.io/v1/namespaces/team/events"}
    assert at.sender.counts.reported == 10_000
    assert at.sender.counts.left_out == 10_000 - len(posts)


def test_one_writes_whichever_threads_report_first(at_work: Callable[[], int]) -> None:
    """Those that began besides were never ended."""
    before = at_work()
    with scene(taken) as at, ThreadPoolExecutor(8) as pool:
        with LOADING:  # all of them have looked, and none has begun
            begun = [threading.Event() for _ in range(8)]

            def report(number: int) -> None:
                begun[number].set()
                at.sender.report(story(number))

            reports = [pool.submit(report, number) for number in range(8)]
            assert all(each.wait(PATIENCE) for each in begun)
        for each in reports:
            each.result(PATIENCE)
        assert all(at.was_asked() for _ in range(8))
    assert at_work() <= before


def test_a_403_is_logged_once_and_tried_once_per_namespace(caplog: pytest.LogCaptureFixture) -> None:
    """Two namespaces make two requests and one log line; further events of either make none."""
    text = 'events.events.k8s.io is forbidden: User "me" cannot create resource "events"'
    with scene(lambda seen: failure(403, "Forbidden", text)) as at:
        for number in range(10):
            at.sender.report(story(number, "one"))
            at.sender.report(story(number, "two"))
        assert at.was_asked()
        assert at.was_asked()
        at.sender.finish()
        assert len(at.script.seen) == 2
    assert sum("not allowed to write Kubernetes events" in message for message in caplog.messages) == 1
    assert at.sender.counts.errors == 2


@pytest.mark.long
def test_each_event_is_sent_with_fresh_credentials() -> None:
    """Those that the refresh hook of the configuration gives, be it synchronous or asynchronous."""
    given = aio.Configuration(api_key=token("Bearer old"))

    def refresh(configuration: Any) -> None:
        configuration.api_key.update(token("Bearer fresh"))

    async def refresh_later(configuration: Any) -> None:
        await asyncio.sleep(0)
        refresh(configuration)

    awaits = asyncio.iscoroutinefunction(aio.Configuration.auth_settings)  # kubernetes_asyncio does since 33
    given.refresh_api_key_hook = refresh_later if awaits else refresh
    with scene(taken, configuration=given) as at:
        at.sender.report(story())
        assert at.was_asked()
        assert [seen.headers.get("authorization") for seen in at.script.seen] == ["Bearer fresh"]


@pytest.mark.long
def test_an_overloaded_server_gets_the_same_event_again_later() -> None:
    """After 429 and 500, until it accepts the event."""
    answers = iter([failure(429, "TooManyRequests", "later"), failure(500, "InternalError", "oh")])
    with scene(lambda seen: next(answers, (201, {}))) as at:
        at.sender.report(story())
        assert all(at.was_asked() for _ in range(3))
        at.sender.finish()
        names = {seen.body["metadata"]["name"] for seen in at.script.seen}
    assert len(names) == 1
    assert at.sender.counts.errors == 2


def test_an_endless_answer_is_cut_short() -> None:
    """The status at its beginning says whether the event was accepted."""
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 1 << 30:
            sent += 60_000
            yield b"oh no " * 10_000

    with scene(lambda seen: (201, endless())) as at:
        at.sender.report(story())
        assert at.was_asked()
        at.sender.finish()
    assert at.sender.counts.errors == 0
    assert sent < 64 << 20  # what the machine's buffers hold


def test_a_rejected_event_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """After one try; the rejection is logged once, and the next event is tried all the same."""
    with scene(lambda seen: failure(422, "Invalid", "no good")) as at:
        at.sender.report(story(1))
        assert at.was_asked()
        at.sender.report(story(2))
        assert at.was_asked()
        at.sender.finish()
        assert len(at.script.seen) == 2
    assert sum("the server rejected an event (422" in message for message in caplog.messages) == 1


def test_an_unreachable_server_costs_nothing_but_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """``tell`` never fails, and ``finish`` returns in time."""
    caplog.set_level(logging.INFO)
    sender = EventSender(client.Configuration(host="http://127.0.0.1:9"))
    for number in range(100):
        sender.report(story(number))
    sender.finish()
    assert sender.counts.reported == 100


def test_a_stopped_sender_takes_no_more_stories() -> None:
    """Nor does it start its thread."""
    sender = EventSender(client.Configuration(host="http://127.0.0.1:9"))
    sender.stop()
    sender.report(story())
    assert sender.counts.reported == 0
    assert not any(thread.name == "backoff-ctrl-events" for thread in threading.enumerate())


def writers_of(gate: Gate) -> list[Reporter]:
    """Return what reports on the creates of this gate."""
    return [each for each in gate.ledger.subscribers.every if isinstance(each, Reporter)]


def test_clients_of_one_gate_share_a_sender_until_the_last_is_closed() -> None:
    """There is one: two would report each story twice."""
    gate, configuration = Gate(), client.Configuration(host="http://127.0.0.1:9")
    first = GatedApiClient(configuration, gate=gate, events=True)
    writers = writers_of(gate)
    second = GatedApiClient(configuration, gate=gate, events=True)
    silent = GatedApiClient(configuration, gate=gate)
    assert len(writers) == 1
    assert writers_of(gate) == writers
    first.close()
    silent.close()
    assert writers_of(gate) == writers
    second.close()
    second.close()
    assert writers_of(gate) == []


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
    """The argument decides; without one the environment does."""
    monkeypatch.delenv("BACKOFF_CTRL_EVENTS", raising=False)
    if word is not None:
        monkeypatch.setenv("BACKOFF_CTRL_EVENTS", word)
    with GatedApiClient(client.Configuration(host="http://127.0.0.1:9"), gate=Gate(), events=given_) as api:
        assert bool(writers_of(api.gate)) is wanted


def test_stories_of_the_callers_own_stay() -> None:
    """Events are written beside them."""
    gate = Gate()
    own = Reporter(gate.ledger, lambda story: None)
    gate.ledger.subscribe(own)
    end = send_events(gate.ledger, client.Configuration(host="http://127.0.0.1:9"))
    assert len(writers_of(gate)) == 2
    end()
    assert writers_of(gate) == [own]


SCRIPT = """
    import sys
    from kubernetes import client
    from backoff_ctrl import GatedApiClient

    core = client.CoreV1Api(GatedApiClient(client.Configuration(host=sys.argv[1]), events=True))
    spec = {"containers": [{"name": "c", "image": "i"}]}
    def pod(name): return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    core.create_namespaced_pod("team", pod("first"))
    core.create_namespaced_pod("team", pod("second"))
"""


@pytest.mark.long
def test_the_last_events_of_a_script_are_still_written(sandbox: BackgroundSandbox) -> None:
    """The script ends as soon as its create is answered, without closing the client."""
    sandbox.create_quota("team", "q", {"pods": "1"})
    with client.ApiClient(client.Configuration(host=sandbox.url)) as plain:
        core, told = client.CoreV1Api(plain), client.EventsV1Api(plain)
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), sandbox.url],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as script:  # fmt: skip
            heard = watch.Watch().stream(told.list_namespaced_event, "team", timeout_seconds=45)
            assert any(each["object"].reason == "WaitingForQuota" for each in heard)
            core.delete_namespaced_pod("first", "team", grace_period_seconds=0)
            out, errors = script.communicate(timeout=PATIENCE)
        events: Any = told.list_namespaced_event("team").items
    assert (script.returncode, out, errors) == (0, "", "")
    assert sorted(event.reason for event in events) == ["Admitted", "WaitingForQuota"]
