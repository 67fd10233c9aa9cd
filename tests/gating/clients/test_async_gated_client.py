"""``AsyncGatedApiClient`` and ``AsyncGate``: gated creates on asyncio, and what cancellation does to them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client as sync_client

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.answers.answer import GateClosed
from backoff_ctrl.k8s.gate.aio import AsyncGate, Gate
from backoff_ctrl.k8s.gated.aio_client import AsyncGatedApiClient, AsyncWaitTimeout, waiting
from backoff_ctrl.k8s.gated.client import GatedApiClient
from tests.official import AIO_SINCE_37, token
from tests.official import AioDynamicClient as DynamicClient
from tests.official import aio as client
from tests.scripted_server import Seen, failure, scripted_server

ApiException: Any = client.ApiException

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from backoff_ctrl.k8s.sandbox import BackgroundSandbox


def pod(name: str | None = None) -> Any:
    metadata = {"generateName": "p-"} if name is None else {"name": name}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def core_of(api: Any) -> Any:
    """The generated methods of a client of either kind, untyped because the tests pass plain dictionaries."""
    kind = sync_client if isinstance(api, GatedApiClient) else client
    return kind.CoreV1Api(api)


async def unread(core: Any, body: Any) -> Any:
    """Create a pod; return the raw response."""
    if AIO_SINCE_37:
        return await core.create_namespaced_pod_without_preload_content("team", body)
    return await core.create_namespaced_pod("team", body, _preload_content=False)


class Met(asyncio.Event):
    """An ``on_wait`` callback as an event: set when the create waits in line."""

    def __call__(self, explanation: object) -> None:
        self.set()


@pytest.fixture
async def api(sandbox: BackgroundSandbox) -> AsyncIterator[AsyncGatedApiClient]:
    """A gated aio client with its own gate, which learns from refusals and watches nothing."""
    async with AsyncGatedApiClient(client.Configuration(host=sandbox.url), gate=AsyncGate()) as made:
        yield made


async def fill(sandbox: BackgroundSandbox, api: AsyncGatedApiClient) -> str:
    sandbox.create_quota("team", "q", {"pods": "1"})
    made = await core_of(api).create_namespaced_pod("team", pod())
    return str(made.metadata.name)


async def test_a_create_waits_for_the_delete_that_makes_room(
    sandbox: BackgroundSandbox, api: AsyncGatedApiClient
) -> None:
    """Then it returns the typed object as usual."""
    core, met = core_of(api), Met()
    name = await fill(sandbox, api)
    with waiting(on_wait=met):
        second = asyncio.ensure_future(core.create_namespaced_pod("team", pod("second")))
    await met.wait()

    await core.delete_namespaced_pod(name, "team", grace_period_seconds=0)

    made = await asyncio.wait_for(second, 45)
    assert made.metadata.name == "second"


async def test_a_time_limit_raises_what_both_kinds_of_callers_catch(
    sandbox: BackgroundSandbox, api: AsyncGatedApiClient
) -> None:
    """It is the aio client's ApiException, which is not the sync client's, and a TimeoutError."""
    await fill(sandbox, api)

    with pytest.raises(AsyncWaitTimeout) as caught, waiting(timeout=0.2):
        await core_of(api).create_namespaced_pod("team", pod())

    assert isinstance(caught.value, ApiException)
    assert isinstance(caught.value, TimeoutError)
    assert not isinstance(caught.value, sync_client.ApiException)
    assert "exceeded quota" in str(caught.value.body)
    assert caught.value.quota_rejection.quota == "q"


async def test_cancelled_in_line_a_create_leaves_it(sandbox: BackgroundSandbox, api: AsyncGatedApiClient) -> None:
    """Nothing more is sent, and the line is empty."""
    await fill(sandbox, api)
    met = Met()
    with waiting(on_wait=met):
        task = asyncio.ensure_future(core_of(api).create_namespaced_pod("team", pod()))
    await met.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    namespace = api.gate.ledger.snapshot().namespaces["team"]
    assert (namespace.waiting, namespace.outstanding, api.gate.counts.waiting) == (0, 0, 0)


async def test_cancelled_after_it_was_sent_a_create_goes_on_and_keeps_its_hold() -> None:
    """The server may store it: only the answer ends the hold."""
    arrived, go_on = threading.Event(), threading.Event()

    def answer(seen: Seen) -> Any:
        arrived.set()
        assert go_on.wait(45)
        return 201, seen.body

    with scripted_server(answer) as server:
        async with AsyncGatedApiClient(client.Configuration(host=server.url), gate=AsyncGate()) as api:
            task = asyncio.ensure_future(core_of(api).create_namespaced_pod("team", pod("ghost")))
            await asyncio.to_thread(arrived.wait, 45)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            outstanding = api.gate.ledger.snapshot().namespaces["team"].outstanding
            go_on.set()
            await api.gate.drain()

    assert outstanding == 1
    assert api.gate.ledger.snapshot().namespaces["team"].outstanding == 0
    assert api.gate.counts.admitted == 1


async def test_closing_cancels_what_waits(sandbox: BackgroundSandbox, api: AsyncGatedApiClient) -> None:
    """The error says so."""
    await fill(sandbox, api)
    met = Met()
    with waiting(on_wait=met):
        task = asyncio.ensure_future(core_of(api).create_namespaced_pod("team", pod()))
    await met.wait()

    await api.close()

    with pytest.raises(GateClosed, match="the client was closed"):
        await task


async def test_sync_and_async_clients_share_one_ledger(sandbox: BackgroundSandbox) -> None:
    """Room that one of them has given away is not given away again by the other."""
    async with AsyncGatedApiClient(client.Configuration(host=sandbox.url)) as one:
        with GatedApiClient(sync_client.Configuration(host=sandbox.url)) as two:
            assert one.gate.ledger is two.gate.ledger


async def test_an_async_client_on_a_gate_for_threads_is_woken_in_its_loop(sandbox: BackgroundSandbox) -> None:
    """A sync client's delete, in a thread, makes room for an aio create."""
    gate = Gate(policy=Policy(base=0.05, cap=0.1))
    configuration = client.Configuration(host=sandbox.url)
    async with AsyncGatedApiClient(configuration, gate=gate) as api:
        name, met = await fill(sandbox, api), Met()
        with waiting(on_wait=met):
            task = asyncio.ensure_future(core_of(api).create_namespaced_pod("team", pod("woken")))
        await met.wait()
        with GatedApiClient(sync_client.Configuration(host=sandbox.url), gate=gate) as other:
            core = core_of(other)
            await asyncio.to_thread(core.delete_namespaced_pod, name, "team", grace_period_seconds=0)

        assert (await asyncio.wait_for(task, 45)).metadata.name == "woken"


@pytest.mark.skipif(DynamicClient is None, reason="this package has no dynamic client")
async def test_the_async_dynamic_client_works(api: AsyncGatedApiClient) -> None:
    """It reads the raw response."""
    dynamic = await DynamicClient(api)
    pods = await dynamic.resources.get(api_version="v1", kind="Pod")

    made = await pods.create(body=pod("dyn"), namespace="team")

    assert made.metadata.name == "dyn"


async def test_an_answer_that_was_looked_up_reads_like_one_that_was_sent(sandbox: BackgroundSandbox) -> None:
    """The typed method, the raw method and the DynamicClient can all read it."""
    configuration = client.Configuration(host=sandbox.url)
    async with AsyncGatedApiClient(configuration, gate=AsyncGate()) as api:
        core = core_of(api)
        with waiting(key="k"):
            first = await core.create_namespaced_pod("team", pod())
            typed = await core.create_namespaced_pod("team", pod())
            raw = await unread(core, pod())
            loose = typed
            if DynamicClient is not None:
                dynamic = await (await DynamicClient(api)).resources.get(api_version="v1", kind="Pod")
                loose = await dynamic.create(body=pod(), namespace="team")

    assert {first.metadata.uid, typed.metadata.uid, loose.metadata.uid} == {first.metadata.uid}
    assert (await raw.json())["metadata"]["uid"] == first.metadata.uid
    assert raw.status == 201


async def test_each_send_takes_a_fresh_token() -> None:
    """The aio configuration is asked again, and its hook awaited."""
    answers = [
        failure(
            403,
            "Forbidden",
            'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
        )
    ]

    def answer(seen: Seen) -> Any:
        if seen.method == "GET":
            return failure(404, "NotFound", "not found")
        return answers.pop() if answers else (201, seen.body)

    with scripted_server(answer) as server:
        configuration = client.Configuration(host=server.url, api_key=token("Bearer one"))
        async with AsyncGatedApiClient(configuration, gate=AsyncGate(policy=Policy(base=0.05, cap=0.1))) as api:
            with waiting(on_wait=lambda _: configuration.api_key.update(token("Bearer two"))):
                await core_of(api).create_namespaced_pod("team", pod("x"))

    sent = [each.headers["authorization"] for each in server.of("POST")]
    assert sent[-1] == "Bearer two"


async def test_errors_carry_what_the_gate_knows(sandbox: BackgroundSandbox, api: AsyncGatedApiClient) -> None:
    """The client's own exception has a note."""
    sandbox.create_quota("team", "q", {"requests.cpu": "1"})

    with pytest.raises(ApiException) as caught:
        await core_of(api).create_namespaced_pod("team", pod())

    assert caught.value.status == 403
    assert caught.value.__notes__[0].startswith("backoff-ctrl: must-specify, after 1 send in ")
    assert caught.value.quota_rejection is None


async def test_a_forbidden_look_up_makes_a_conflict_on_our_own_name_a_success() -> None:
    """There is no ``get`` permission: a lost answer, then a 409 on a name that only we could draw."""
    posts: list[Seen] = []

    def answer(seen: Seen) -> Any:
        if seen.method == "GET":
            return failure(
                403, "Forbidden", 'pods "p" is forbidden: User "u" cannot get resource "pods" in API group ""'
            )
        posts.append(seen)
        if len(posts) == 1:
            return failure(504, "Timeout", "Timeout: request did not complete within requested timeout")
        return failure(409, "AlreadyExists", 'pods "p" already exists')

    with scripted_server(answer) as server:
        async with AsyncGatedApiClient(client.Configuration(host=server.url), gate=AsyncGate()) as api:
            made = await core_of(api).create_namespaced_pod("team", pod())

    names = {seen.body["metadata"]["name"] for seen in posts}
    assert names == {made.metadata.name}
    assert len(posts) == 2
