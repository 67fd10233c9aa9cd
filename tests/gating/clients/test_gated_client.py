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
from urllib3.exceptions import MaxRetryError

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import Gate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient, WaitTimeout, waiting
from backoff_ctrl.k8s.kube.answers.answer import GateClosed
from backoff_ctrl.k8s.kube.answers.rejections import Lane
from tests.kit.gated_creates import Met, core_of, fill, pod
from tests.kit.official import HAS_REQUEST_AUTH, aio, token
from tests.kit.patience import PATIENCE
from tests.kit.scripted_server import Seen, failure, scripted_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox
    from tests.kit.scripted_server import Reply


# -- async_req ---------


def test_a_waiting_asynchronous_create_leaves_the_pool_to_the_delete_that_makes_room(
    sandbox: BackgroundSandbox, core: Any
) -> None:
    """The client's pool has one thread: a create that waited in it would block the delete, and wait for ever."""
    name = fill(sandbox, core)
    met = Met()
    with waiting(on_wait=met):
        pending = core.create_namespaced_pod("team", pod("second"), async_req=True)
    assert met.wait(PATIENCE)

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
    assert met.wait(PATIENCE)

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


# -- options ---------


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
        assert met.wait(PATIENCE)

    core.delete_namespaced_pod(name, "team", grace_period_seconds=0)

    assert pending["high"].get(45).metadata.name == "high"
    assert not pending["low"].ready()


# -- one ledger, and what passes ungated ---------


async def test_clients_of_one_server_share_one_ledger(sandbox: BackgroundSandbox) -> None:
    """Of either kind: room that one of them has given away must not be given away again."""
    configuration = client.Configuration(host=sandbox.url)
    with GatedApiClient(configuration) as one, GatedApiClient(configuration) as two:
        assert one.gate.ledger is two.gate.ledger
        async with AsyncGatedApiClient(aio.Configuration(host=sandbox.url)) as three:
            assert three.gate.ledger is one.gate.ledger
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
        forked.wait(PATIENCE)

    thread = threading.Thread(target=gate.ledger.look, args=(decide,))
    thread.start()
    held.wait(PATIENCE)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        free = gate.ledger.engine.lock.acquire(timeout=20) and not gate.ledger.is_watched("team")
        os.write(writing, b"free" if free and not gate.counts.passed else b"held")
        os._exit(0)
    forked.set()
    thread.join(PATIENCE)
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
    for bearer in ("Bearer one", "Bearer two"):
        configuration = client.Configuration(host=sandbox.url, api_key={"authorization": bearer})
        with GatedApiClient(configuration, gate=gate) as api:
            core = core_of(api)
            core.create_namespaced_pod("team", pod())
            core.create_namespaced_pod("team", pod())

    flows = [name.split("|") for name in gate.ledger.snapshot().flows]
    assert {server for server, _, _ in flows} == {sandbox.url}
    assert len({credential for _, credential, _ in flows}) == 2
    assert {bool(level) for _, _, level in flows} == {False, True}  # unknown at first, then known from the answer
    assert "one" not in str(flows)


# -- credentials and connections ---------


def answering_once(first: Reply) -> Callable[[Seen], Reply]:
    """Answer the first create so, and store the next: the token may change in between."""
    left = [first]

    def answer(seen: Seen) -> Reply:
        if seen.method == "GET":
            return failure(404, "NotFound", "not found")
        return left.pop() if left else (201, seen.body)

    return answer


@pytest.mark.skipif(not HAS_REQUEST_AUTH, reason="this client has no token of one request")
def test_a_token_of_one_request_is_kept() -> None:
    """The caller gave it: it is not replaced by that of the configuration."""
    mine = {"type": "api_key", "in": "header", "key": "authorization", "value": "Bearer mine"}
    text = 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    with scripted_server(answering_once(failure(403, "Forbidden", text))) as server:
        configuration = client.Configuration(host=server.url, api_key=token("Bearer other"))
        with GatedApiClient(configuration, gate=Gate(policy=Policy(base=0.2, cap=0.2))) as api:
            core_of(api).create_namespaced_pod("team", pod("x"), _request_auth=mine)

    assert [each.headers["authorization"] for each in server.of("POST")] == ["Bearer mine"] * 2


def test_a_refused_token_is_renewed_once_by_the_configurations_hook() -> None:
    """After a 401 the hook runs and the create is sent again; the caller would get a second 401."""
    with scripted_server(answering_once(failure(401, "Unauthorized", "Unauthorized"))) as server:
        configuration = client.Configuration(host=server.url, api_key=token("Bearer old"))
        calls: list[int] = []

        def renew(given: Any) -> None:
            calls.append(1)
            given.api_key.update(token(f"Bearer {len(calls)}"))

        configuration.refresh_api_key_hook = renew  # type: ignore[assignment]  # the client's own says None
        with GatedApiClient(configuration, gate=Gate()) as api:
            core_of(api).create_namespaced_pod("team", pod("x"))

    first, second = (each.headers["authorization"] for each in server.of("POST"))
    assert first != second


def test_a_connection_that_cannot_be_made_raises_the_transports_own_error() -> None:
    """After some tries the caller gets the error that a plain client raises."""
    gate = Gate(policy=Policy(base=0.001, cap=0.01))
    nowhere = client.Configuration(host="http://127.0.0.1:9")
    with GatedApiClient(nowhere, gate=gate) as api, pytest.raises(MaxRetryError):
        core_of(api).create_namespaced_pod("team", pod())
