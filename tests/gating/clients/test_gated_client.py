"""``GatedApiClient`` in existing code: how a create waits, its options, and what passes ungated."""

from __future__ import annotations

import json
import logging
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client
from kubernetes.client import ApiException

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.answers.answer import GateClosed
from backoff_ctrl.k8s.answers.rejections import Lane
from backoff_ctrl.k8s.gate.aio import Gate
from backoff_ctrl.k8s.gated.client import GatedApiClient, WaitTimeout, waiting
from tests.gated_creates import Met, core_of, fill, pod

if TYPE_CHECKING:
    from backoff_ctrl.k8s.sandbox import BackgroundSandbox


# -- async_req ---------


def test_a_waiting_asynchronous_create_leaves_the_pool_to_the_delete_that_makes_room(
    sandbox: BackgroundSandbox, core: Any
) -> None:
    """The client's pool has one thread: a create that waited in it would block the delete, and wait for ever."""
    name = fill(sandbox, core)
    met = Met()
    with waiting(on_wait=met):
        pending = core.create_namespaced_pod("team", pod("second"), async_req=True)
    assert met.wait(45)

    core.delete_namespaced_pod(name, "team", grace_period_seconds=0, async_req=True).get(45)

    assert pending.get(45).metadata.name == "second"
    assert pending.successful()


def test_many_waiting_asynchronous_creates_need_no_threads(sandbox: BackgroundSandbox, core: Any) -> None:
    """Two hundred creates need the pool's one thread and the timers' thread."""
    fill(sandbox, core)
    before = threading.active_count()
    pending = [core.create_namespaced_pod("team", pod(), async_req=True) for _ in range(200)]

    core.list_namespaced_pod("team", async_req=True).get(45)

    assert threading.active_count() <= before + 4  # multiprocessing's pool adds three threads
    assert not any(each.ready() for each in pending)


def test_closing_a_client_cancels_its_waiting_creates_and_names_them(
    sandbox: BackgroundSandbox, core: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """``close`` joins the pool and is the atexit hook: it must not wait for ever."""
    fill(sandbox, core)
    met = Met()
    with waiting(on_wait=met):
        pending = core.create_namespaced_pod("team", pod("lonely"), async_req=True)
    assert met.wait(45)

    with caplog.at_level(logging.WARNING):
        core.api_client.close()

    with pytest.raises(
        GateClosed, match=r"^the client was closed: pods team/lonely was cancelled before it was created"
    ):
        pending.get(0)
    assert (
        "the client was closed: cancelling 1 unfinished create:\n  pods team/lonely: waiting in line, " in caplog.text
    )
    assert "asks pods=1, 0 left in quota q; place 1 in line)" in caplog.text


def test_closing_a_client_ends_creates_that_wait_in_other_threads(sandbox: BackgroundSandbox, core: Any) -> None:
    """A blocking create in a worker thread gets ``GateClosed``, too."""
    fill(sandbox, core)
    met, ends = Met(), []

    def work() -> None:
        with waiting(on_wait=met), pytest.raises(GateClosed) as caught:
            core.create_namespaced_pod("team", pod())
        ends.append(caught.value)

    thread = threading.Thread(target=work)
    thread.start()
    assert met.wait(45)
    core.api_client.close()
    thread.join(45)

    assert len(ends) == 1


# -- options ---------


def test_a_time_limit_raises_what_both_kinds_of_callers_catch(sandbox: BackgroundSandbox, core: Any) -> None:
    """It is an ApiException with the last answer, and a TimeoutError."""
    fill(sandbox, core)

    with pytest.raises(WaitTimeout) as caught, waiting(timeout=0.2):
        core.create_namespaced_pod("team", pod())

    assert isinstance(caught.value, ApiException)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.status == 403
    assert caught.value.reason.startswith(
        "gave up waiting for pods team/p-* after 0.2 s, the timeout it was given "
        "(quota: asks pods=1, 0 left in quota q; place 1 in line); the API server's last answer was 403: "
    )
    assert "exceeded quota: q" in str(caught.value.body)
    assert caught.value.quota_rejection.quota == "q"  # type: ignore[attr-defined]
    assert caught.value.__notes__ == [note for note in caught.value.__notes__ if note.startswith("backoff-ctrl: quota")]


def test_options_are_read_in_the_callers_thread_not_in_the_pool(sandbox: BackgroundSandbox, core: Any) -> None:
    """The pool's thread has another context; the create keeps the caller's time limit."""
    fill(sandbox, core)
    with waiting(timeout=0.2):
        pending = core.create_namespaced_pod("team", pod(), async_req=True)

    with pytest.raises(WaitTimeout):
        pending.get(45)


def test_a_higher_priority_goes_first(sandbox: BackgroundSandbox, core: Any) -> None:
    """Of two waiting creates, the later one with the higher priority gets the room."""
    name = fill(sandbox, core)
    pending = {}
    for title, priority in (("low", 0), ("high", 5)):
        met = Met()
        with waiting(priority=priority, on_wait=met):
            pending[title] = core.create_namespaced_pod("team", pod(title), async_req=True)
        assert met.wait(45)

    core.delete_namespaced_pod(name, "team", grace_period_seconds=0)

    assert pending["high"].get(45).metadata.name == "high"
    assert not pending["low"].ready()


def test_the_same_key_gives_the_same_object(sandbox: BackgroundSandbox, core: Any) -> None:
    """A create repeated by another process finds the first one's object, whether the quota is full or not."""
    sandbox.create_quota("team", "q", {"pods": "1"})
    with waiting(key="order-17"):
        first = core.create_namespaced_pod("team", pod())
    with GatedApiClient(client.Configuration(host=sandbox.url), gate=Gate()) as another, waiting(key="order-17"):
        again = core_of(another).create_namespaced_pod("team", pod())

    assert again.metadata.uid == first.metadata.uid
    assert len(core.list_namespaced_pod("team").items) == 1


@pytest.mark.parametrize("wrong", [{"timeout": -1}, {"priority": 1.5}, {"priority": True}])
def test_wrong_options_are_refused_at_once(wrong: Any) -> None:
    """The error does not come after an hour in line."""
    with pytest.raises((ValueError, TypeError), match="must be"), waiting(**wrong):
        pass


# -- one ledger, and what passes ungated ---------


def test_clients_of_one_server_share_one_ledger(sandbox: BackgroundSandbox) -> None:
    """``CoreV1Api(GatedApiClient())`` beside ``BatchV1Api(GatedApiClient())`` must not give away room twice."""
    configuration = client.Configuration(host=sandbox.url)
    with GatedApiClient(configuration) as one, GatedApiClient(configuration) as two:
        assert one.gate.ledger is two.gate.ledger
    with GatedApiClient(client.Configuration(host="http://elsewhere")) as other:
        assert other.gate.ledger is not one.gate.ledger


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # fork beside threads: Python 3.12 warns
def test_a_forked_child_has_a_ledger_of_its_own(sandbox: BackgroundSandbox) -> None:
    """The parent's lock may be held at the time of the fork, and the child has none of its waiters."""
    gate = Gate()
    gate.counts.passed = 1
    held, forked = threading.Event(), threading.Event()

    def decide(*_: object) -> None:
        held.set()
        forked.wait(45)

    thread = threading.Thread(target=gate.ledger.look, args=(decide,))
    thread.start()
    held.wait(45)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        free = gate.ledger.engine.lock.acquire(timeout=20) and not gate.ledger.is_watched("team")
        os.write(writing, b"free" if free and not gate.counts.passed else b"held")
        os._exit(0)
    forked.set()
    thread.join(45)
    os.waitpid(child, 0)

    assert os.read(reading, 4) == b"free"
    assert gate.counts.passed == 1


def test_dry_runs_patches_and_subresources_pass_ungated(sandbox: BackgroundSandbox, core: Any) -> None:
    """They are not charged, or not like a create, so they do not wait."""
    fill(sandbox, core)
    sent = core.api_client.gate.counts.sent

    with pytest.raises(ApiException, match="exceeded quota"):
        core.create_namespaced_pod("team", pod(), dry_run="All")
    core.patch_namespace("team", {"metadata": {"labels": {"a": "b"}}})

    assert core.api_client.gate.counts.sent == sent


def test_an_ungated_refusal_teaches(sandbox: BackgroundSandbox) -> None:
    """After a refused dry run the gate knows the quota: the next create waits without being sent."""
    with GatedApiClient(client.Configuration(host=sandbox.url)) as plain:
        fill(sandbox, core_of(plain))
    patient = Gate(policy=Policy(base=60, cap=60))
    with GatedApiClient(client.Configuration(host=sandbox.url), gate=patient) as api:
        core = core_of(api)
        with pytest.raises(ApiException):
            core.create_namespaced_pod("team", pod(), dry_run="All")
        seen = sandbox.counters.creates.seen

        with pytest.raises(WaitTimeout), waiting(timeout=0.2):
            core.create_namespaced_pod("team", pod())

    assert sandbox.counters.creates.seen == seen


def test_a_failed_create_leaves_no_hold(sandbox: BackgroundSandbox, core: Any) -> None:
    """The ledger is as before."""
    sandbox.create_quota("team", "q", {"pods": "10"})
    for body in (pod("Not A Name"), {**pod(), "spec": {"containers": []}}):
        with pytest.raises(ApiException):
            core.create_namespaced_pod("team", body)

    namespace = core.api_client.gate.ledger.snapshot().namespaces["team"]
    assert (namespace.outstanding, namespace.waiting, namespace.unproven) == (0, 0, 0)


def test_the_callers_object_is_not_touched(core: Any) -> None:
    """The name and the annotation are added to a copy."""
    body = pod()
    before = json.dumps(body)
    core.create_namespaced_pod("team", body)

    assert json.dumps(body) == before


def test_every_refusal_is_counted_by_its_lane(sandbox: BackgroundSandbox, core: Any) -> None:
    """The counters show what was sent, admitted, and refused by lane."""
    fill(sandbox, core)
    with pytest.raises(WaitTimeout), waiting(timeout=0.05):
        core.create_namespaced_pod("team", pod())

    counts = core.api_client.gate.counts
    assert (counts.sent, counts.admitted, counts.refused, counts.waiting) == (2, 1, {Lane.QUOTA: 1}, 0)


def test_overload_windows_are_apart_by_credential_and_priority_level(sandbox: BackgroundSandbox) -> None:
    """The API server sheds load per priority level: one user's 429 must not slow another's creates."""
    gate = Gate()
    for token in ("Bearer one", "Bearer two"):
        configuration = client.Configuration(host=sandbox.url, api_key={"authorization": token})
        with GatedApiClient(configuration, gate=gate) as api:
            core = core_of(api)
            core.create_namespaced_pod("team", pod())
            core.create_namespaced_pod("team", pod())

    flows = [name.split("|") for name in gate.ledger.snapshot().flows]
    assert {server for server, _, _ in flows} == {sandbox.url}
    assert len({credential for _, credential, _ in flows}) == 2
    assert {bool(level) for _, _, level in flows} == {False, True}  # unknown at first, then known from the answer
    assert "one" not in str(flows)
