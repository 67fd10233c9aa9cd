"""What holds for the clients for threads and for asyncio alike: errors, raw answers, credentials, closing."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate, Gate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient, AsyncWaitTimeout
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient, WaitTimeout, waiting
from backoff_ctrl.k8s.kube.answers.answer import GateClosed
from tests.kit.gated_creates import pod
from tests.kit.official import AIO_SINCE_37, AioDynamicClient, aio, token
from tests.kit.scripted_server import Seen, failure, scripted_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox


class Threads:
    """The client for threads, each of whose calls is made in a thread, with the options of the caller's block."""

    exception: Any = client.ApiException
    others: Any = aio.ApiException
    time_out: Any = WaitTimeout
    configuration: Any = client.Configuration

    def __init__(self, configuration: Any, policy: Policy | None = None) -> None:
        self.api: Any = GatedApiClient(configuration, gate=Gate(policy=policy))
        self.core: Any = client.CoreV1Api(self.api)

    async def create(self, body: Any) -> Any:
        return await asyncio.to_thread(self.core.create_namespaced_pod, "team", body)

    async def raw(self, body: Any) -> tuple[int, Any]:
        """Create a pod; return the status and the object of the raw response."""
        made = await asyncio.to_thread(self.core.create_namespaced_pod, "team", body, _preload_content=False)
        return made.status, json.loads(made.read())

    async def dynamic(self, body: Any) -> Any:
        """Create a pod through the DynamicClient."""

        def create() -> Any:
            pods = DynamicClient(self.api).resources.get(api_version="v1", kind="Pod")
            return pods.create(body=body, namespace="team")

        return await asyncio.to_thread(create)

    async def close(self) -> None:
        await asyncio.to_thread(self.api.close)


class Loop:
    """The client for asyncio."""

    exception: Any = aio.ApiException
    others: Any = client.ApiException
    time_out: Any = AsyncWaitTimeout
    configuration: Any = aio.Configuration

    def __init__(self, configuration: Any, policy: Policy | None = None) -> None:
        self.api: Any = AsyncGatedApiClient(configuration, gate=AsyncGate(policy=policy))
        self.core: Any = aio.CoreV1Api(self.api)

    async def create(self, body: Any) -> Any:
        return await self.core.create_namespaced_pod("team", body)

    async def raw(self, body: Any) -> tuple[int, Any]:
        """Create a pod; return the status and the object of the raw response."""
        if AIO_SINCE_37:
            made = await self.core.create_namespaced_pod_without_preload_content("team", body)
        else:
            made = await self.core.create_namespaced_pod("team", body, _preload_content=False)
        return made.status, await made.json()

    async def dynamic(self, body: Any) -> Any:
        """Create a pod through the DynamicClient, or by its typed method where this package has none."""
        if AioDynamicClient is None:
            return await self.create(body)
        pods = await (await AioDynamicClient(self.api)).resources.get(api_version="v1", kind="Pod")
        return await pods.create(body=body, namespace="team")

    async def close(self) -> None:
        await self.api.close()


@pytest.fixture(params=[Threads, Loop])
def kind(request: pytest.FixtureRequest) -> type[Threads | Loop]:
    """One of the two."""
    made: type[Threads | Loop] = request.param
    return made


@pytest.fixture
async def gated(kind: type[Threads | Loop], sandbox: BackgroundSandbox) -> AsyncIterator[Threads | Loop]:
    """A client of that kind with its own gate, which learns from refusals and watches nothing."""
    made = kind(kind.configuration(host=sandbox.url))
    yield made
    await made.close()


async def test_a_time_limit_raises_what_all_callers_catch(sandbox: BackgroundSandbox, gated: Threads | Loop) -> None:
    """An ApiException of that client, and of no other, with the last answer; and a TimeoutError."""
    sandbox.create_quota("team", "q", {"pods": "0"})

    with pytest.raises(gated.time_out) as caught, waiting(timeout=0.2):
        await gated.create(pod())

    error: Any = caught.value
    assert [isinstance(error, kind) for kind in (gated.exception, TimeoutError, gated.others)] == [True, True, False]
    assert error.status == 403
    assert error.reason.startswith(
        "gave up waiting for pods team/p-* after 0.2 s, the timeout it was given "
        "(paused: asks pods=1, 0 left in quota q; place 1 in line); the API server's last answer was 403: "
    )
    assert "exceeded quota: q" in str(error.body)
    assert error.quota_rejection.quota == "q"
    assert error.__notes__ == [note for note in error.__notes__ if note.startswith("backoff-ctrl: quota")]


async def test_closing_cancels_what_waits(
    sandbox: BackgroundSandbox, gated: Threads | Loop, caplog: pytest.LogCaptureFixture
) -> None:
    """In whatever thread or task; the error says so, and the log names it."""
    sandbox.create_quota("team", "q", {"pods": "0"})
    met, loop = asyncio.Event(), asyncio.get_running_loop()
    with waiting(on_wait=lambda _: loop.call_soon_threadsafe(met.set)):
        task = asyncio.ensure_future(gated.create(pod("lonely")))
    await met.wait()

    with caplog.at_level(logging.WARNING):
        await gated.close()

    with pytest.raises(
        GateClosed, match=r"^the client was closed: pods team/lonely was cancelled before it was created"
    ):
        await task
    assert (
        "the client was closed: cancelling 1 unfinished create:\n  pods team/lonely: waiting in line, " in caplog.text
    )


async def test_an_answer_that_was_looked_up_reads_like_one_that_was_sent(gated: Threads | Loop) -> None:
    """The typed method, the raw method and the DynamicClient can all read both."""
    answers = []
    for key in ("k", "k", "l", "m"):
        with waiting(key=key):
            typed = await gated.create(pod())
            answers.append({typed.metadata.uid, (await gated.dynamic(pod())).metadata.uid})
            status, raw = await gated.raw(pod())
            answers[-1].add(raw["metadata"]["uid"])
            assert (status, len(answers[-1])) == (201, 1)
    assert answers[0] == answers[1]
    assert (await gated.raw(pod("raw")))[1]["metadata"]["name"] == "raw"
    assert (await gated.dynamic(pod("dyn"))).metadata.name == "dyn"


async def test_errors_carry_what_the_gate_knows(sandbox: BackgroundSandbox, gated: Threads | Loop) -> None:
    """The client's own exception has a note; the DynamicClient drops it, and has it in its context."""
    sandbox.create_quota("team", "q", {"requests.cpu": "1"})

    for create in (gated.create, gated.raw)[: 2 if isinstance(gated, Threads) else 1]:  # the other reads none itself
        with pytest.raises(gated.exception) as caught:
            await create(pod())
        assert caught.value.status == 403
        assert caught.value.__notes__[0].startswith("backoff-ctrl: must-specify, after 1 send in ")
        assert caught.value.quota_rejection is None
    if isinstance(gated, Threads):  # that of kubernetes_asyncio returns the answer of an error
        with pytest.raises(Exception, match="must specify") as wrapped:
            await gated.dynamic(pod())
        told: Any = wrapped.value if hasattr(wrapped.value, "__notes__") else wrapped.value.__context__
        assert "must-specify" in told.__notes__[0]


def quota_once(*answers: Any) -> Callable[[Seen], Any]:
    """Answer the first creates so, and store the others; the token may change in between."""
    left = list(answers)

    def answer(seen: Seen) -> Any:
        if seen.method == "GET":
            return failure(404, "NotFound", "not found")
        return left.pop(0) if left else (201, seen.body)

    return answer


FULL = failure(
    403, "Forbidden", 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
)


async def test_each_send_takes_a_fresh_token(kind: type[Threads | Loop]) -> None:
    """A token that was put into the header before a long wait may have expired after it."""
    with scripted_server(quota_once(FULL)) as server:
        configuration = kind.configuration(host=server.url, api_key=token("Bearer token-1"))
        gated = kind(configuration, Policy(base=0.2, cap=0.2))  # the token is asked for again after 50 ms
        with waiting(on_wait=lambda _: configuration.api_key.update(token("Bearer token-2"))):
            await gated.create(pod("x"))
        await gated.close()

    sent = [each.headers["authorization"] for each in server.of("POST")]
    assert [sent[0], sent[-1]] == ["Bearer token-1", "Bearer token-2"]
