"""Webhooks to receivers on loopback: what they are told, signed, tried again, dropped; at a real gate."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import tenacity

from backoff_ctrl.k8s.gate.events.webhooks import EVENTS, Delivery, Notifier, Receiver
from backoff_ctrl.k8s.gate.runtime.host import LOADING
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Seen, scripted_server
from tests.status.asking import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.status.asking import Crowd

SECRET = "s" * 20


class Hook:
    """A receiver that remembers what it was told, and answers what the test says.

    Only what is sent to its path counts: its port may be one that a program of another test still asks for another
    server.
    """

    def __init__(self) -> None:
        """Answer 200."""
        self.url = ""
        self.seen: list[Seen] = []
        self.statuses: list[int] = []
        self.news = threading.Condition()

    def __call__(self, seen: Seen) -> Any:
        """Take a request."""
        if seen.path != "/hook":
            return 404, {}
        with self.news:
            self.seen.append(seen)
            self.news.notify_all()
            return (self.statuses.pop(0) if self.statuses else 200), {}

    def told(self, count: int) -> list[dict[str, Any]]:
        """Return the events, once there are so many."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.seen) >= count, PATIENCE), self.seen
            return [each.body for each in self.seen]


@contextmanager
def hook() -> Iterator[Hook]:
    """Serve a receiver."""
    made = Hook()
    with scripted_server(made) as script:
        made.url = script.url + "/hook"
        yield made


def test_each_event_is_sent_once_whichever_threads_come_first() -> None:
    """Several began to send at once: one event came often, others never, and an error of ours ended it for good."""
    with hook() as seen, ThreadPoolExecutor(8) as pool:
        delivery = Delivery(Receiver("hook", seen.url))
        with LOADING:  # all of them have looked, and none has begun
            begun = [threading.Event() for _ in range(8)]

            def put(number: int) -> None:
                begun[number].set()
                delivery.put({"id": str(number)})

            puts = [pool.submit(put, number) for number in range(8)]
            assert all(each.wait(PATIENCE) for each in begun)
        for each in puts:
            each.result(PATIENCE)
        seen.told(8)
        delivery.put({"id": "last"})
        assert sorted(each["id"] for each in seen.told(9)) == [*map(str, range(8)), "last"]
        delivery.close(5)
        assert delivery.counts == {"sent": 9, "failed": 0, "dropped": 0}


@contextmanager
def notifying(crowd: Crowd, *receivers: Receiver) -> Iterator[Notifier]:
    """Notify of the crowd's creates."""
    ledger = crowd.gate.ledger
    notifier = Notifier(ledger, receivers, "here")
    end = ledger.subscribe(notifier)
    yield notifier
    end()
    notifier.close()


def test_who_waits_long_is_told_and_what_came_of_it(crowd: Crowd) -> None:
    """CloudEvents 1.0: first that it waits and why, then that it was created."""
    with hook() as hooked, notifying(crowd, Receiver("r", hooked.url, SECRET, events=EVENTS, longer_than=0.05)):
        crowd.wait_with("second")
        waiting = hooked.told(1)[0]
        crowd.make_room("first")
        created = hooked.told(2)[1]
        assert set(waiting) == {
            "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data",
        }  # fmt: skip
        assert (waiting["specversion"], waiting["source"]) == ("1.0", "/backoff-ctrl/gates/here")
        assert (waiting["type"], waiting["subject"]) == ("dev.backoff-ctrl.create.waiting", "team/pods/second")
        data = waiting["data"]
        assert (data["reason"], data["quota"], data["resource"], data["asked"]) == ("quota", "q", "pods", "1")
        assert data["waited_seconds"] >= 0.05
        assert created["type"] == "dev.backoff-ctrl.create.created"
        assert (created["data"]["id"], created["data"]["status"]) == (data["id"], 201)
        assert created["id"] != waiting["id"]
        assert hooked.seen[0].headers["content-type"] == "application/cloudevents+json; charset=utf-8"


def test_the_signature_is_that_of_standard_webhooks(crowd: Crowd) -> None:
    """Over id, time and body; without a secret there is none."""
    with (
        hook() as signed,
        hook() as plain,
        notifying(crowd, Receiver("s", signed.url, SECRET, longer_than=0), Receiver("p", plain.url, longer_than=0)),
    ):
        crowd.wait_with("second")
        signed.told(1)
        plain.told(1)
    headers, body = signed.seen[0].headers, json.dumps(signed.seen[0].body, ensure_ascii=False)
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
    mac = base64.b64encode(hmac.new(SECRET.encode(), text, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{mac}"
    assert headers["webhook-id"] == signed.seen[0].body["id"]
    assert "webhook-signature" not in plain.seen[0].headers


def test_each_receiver_has_filters_and_patience_of_its_own(crowd: Crowd) -> None:
    """One that asks for longer waits, or for another namespace, is told nothing."""
    with (
        hook() as soon,
        hook() as late,
        notifying(
            crowd,
            Receiver("soon", soon.url, longer_than=0),
            Receiver("late", late.url, longer_than=3600),
            Receiver("other", late.url, namespaces=("other",), longer_than=0),
        ) as notifier,
    ):
        crowd.wait_with("second")
        soon.told(1)
        crowd.make_room("first")
        crowd.threads[0].join(PATIENCE)
        notifier.close(5)
        assert (len(soon.seen), late.seen) == (1, [])  # its creation is not among the usual events


def test_what_is_declined_or_times_out_is_told_with_its_reason(crowd: Crowd) -> None:
    """A time-out that waited long enough, and a create that never fits at once."""
    with hook() as hooked, notifying(crowd, Receiver("r", hooked.url, events=("timed-out",), longer_than=0.1)):
        crowd.wait_with("second", timeout=0.3)
        assert hooked.told(1)[0]["type"].endswith(".timed-out")


def quick(url: str, **more: Any) -> Delivery:
    """A delivery that tries again at once."""
    return Delivery(Receiver("r", url), wait=tenacity.wait_none(), **more)


def until(holds: Callable[[], bool]) -> None:
    """Ask again and again."""
    pause = threading.Event()
    while not holds():
        pause.wait(0.01)


def test_what_fails_for_the_moment_is_tried_again_with_the_same_id() -> None:
    """A receiver can tell a repetition."""
    with hook() as hooked:
        hooked.statuses = [503, 429]
        delivery = quick(hooked.url)
        delivery.put({"id": "1"})
        hooked.told(3)
        delivery.close(30)
        assert delivery.counts == {"sent": 1, "failed": 0, "dropped": 0}
        assert {each.body["id"] for each in hooked.seen} == {"1"}


def test_what_is_refused_for_good_or_led_elsewhere_is_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """The next event is; the log says it once."""
    with hook() as hooked:
        hooked.statuses = [400, 302, 404, 200]
        delivery = quick(hooked.url)
        for number in range(4):
            delivery.put({"id": str(number)})
        until(lambda: sum(delivery.counts.values()) == 4)
        assert delivery.counts == {"sent": 1, "failed": 3, "dropped": 0}
        assert [each.body["id"] for each in hooked.seen] == ["0", "1", "2", "3"]
    assert caplog.text.count("receiver r can't be notified") == 1
    delivery.close(0)


def test_nobody_is_told_in_place_of_the_receiver() -> None:
    """A redirect is not followed: what is signed and told goes to the address that was given, or nowhere."""
    with hook() as elsewhere:

        class Leads(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(302)
                self.send_header("Location", elsewhere.url)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Leads) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            delivery = quick(f"http://127.0.0.1:{server.server_port}/")
            delivery.put({"id": "1"})
            until(lambda: delivery.counts.total() == 1)
            server.shutdown()
            thread.join(PATIENCE)
        delivery.close(0)
        assert (delivery.counts["failed"], elsewhere.seen) == (1, [])


def test_a_receiver_that_is_gone_fills_its_queue_and_the_rest_is_dropped_and_counted() -> None:
    """Whoever puts never waits; closing ends the tries."""
    delivery = Delivery(Receiver("r", "http://127.0.0.1:1/"), wait=tenacity.wait_fixed(3600), queue_max=3)
    for number in range(5):
        delivery.put({"id": str(number)})
    assert delivery.counts["dropped"] == 2
    delivery.close(0)
    until(lambda: delivery.counts.total() == 5)
    assert (delivery.counts["sent"], delivery.counts.total()) == (0, 5)  # failed if it was under way, else dropped
    delivery.put({"id": "late"})
    assert delivery.counts.total() == 6


def test_the_metrics_count_them_by_receiver(crowd: Crowd) -> None:
    """Sent, failed, dropped."""
    with hook() as hooked, notifying(crowd, Receiver("ops", hooked.url, longer_than=0)) as notifier:
        crowd.wait_with("second")
        hooked.told(1)
        until(lambda: any(value for *_, value in notifier.figures()))
        text = ask(crowd.url, "/metrics").body.decode()
    assert 'backoff_ctrl_notifications_total{receiver="ops",outcome="sent"} 1\n' in text
    assert 'backoff_ctrl_notifications_total{receiver="ops",outcome="dropped"} 0\n' in text


PROGRAM = """
import logging, sys
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
from kubernetes import client
from backoff_ctrl import GatedApiClient
with GatedApiClient(client.Configuration(host="http://127.0.0.1:1")) as gated:
    print([type(each).__name__ for each in gated.gate.ledger.subscribers.every])
    print(sorted(name for name in sys.modules if name.startswith("backoff_ctrl.k8s.gate.events.webhooks")) != [])
"""


@pytest.mark.long
def test_the_environment_names_the_file_and_nothing_is_loaded_without_it(tmp_path: Path) -> None:
    """A file that can't be used is one line of the log, and stops nothing."""
    file = tmp_path / "receivers.yaml"
    file.write_text("receivers: [{name: a, url: 'http://127.0.0.1:1/'}]")

    def program(**variables: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, **variables}, capture_output=True, text=True, check=True, timeout=PATIENCE,
        )  # fmt: skip
        return done.stdout.splitlines()

    assert program() == ["['HostedWatch']", "False"]
    assert program(BACKOFF_CTRL_NOTIFY=str(file)) == ["['Notifier', 'HostedWatch']", "True"]
    wrong, *rest = program(BACKOFF_CTRL_NOTIFY=str(tmp_path / "none"))
    assert wrong.startswith(f"ERROR notifications are off: {tmp_path}/none can't be read")
    assert rest[0] == "['HostedWatch']"
