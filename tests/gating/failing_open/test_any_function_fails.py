"""Fails open: whichever function of ours fails on its way, a create is stored once, or ends with the server's word."""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ServerDisconnectedError
from kubernetes.client import ApiException
from urllib3.exceptions import ProtocolError

from backoff_ctrl.k8s.gate.runtime.host import RUNTIME
from backoff_ctrl.k8s.kube.charges.footprint import REMEMBERED
from tests.gating.failing_open.faults import CallSite, InjectedError, Tracer
from tests.gating.failing_open.in_memory import Server, async_req, in_asyncio, options, threads
from tests.kit.official import aio
from tests.kit.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS: dict[str, Callable[[Server], Any]] = {"threads": threads, "async_req": async_req, "asyncio": in_asyncio}

BELOW = ("engine.", "k8s.kube.charges.", "k8s.kube.answers.")
"""Rooms that do not know the way: it is enough that their functions fail behind one of them."""
CALLED_BY_THE_CLIENT = "the client calls it, so that nothing of ours can catch its very first instruction"
A_GUARD = "it is a guard itself, so that nothing of ours can catch its very first instruction"
CALLED_BY_THE_LOOP = "the loop calls it, so that nothing of ours can catch its very first instruction"
CALLED_BY_THE_POOL = "the client's pool calls it, so that nothing of ours can catch its very first instruction"
A_DRIVER = "it only resumes the guard, which is `life`"
A_THREADS_FIRST = "the thread begins with it; the next alarm starts another thread"
MAY_FAIL = {
    ("k8s.gate.clients.threads", "Since37.call_api"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "Since37._call_with_legacy_options"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "Since37._response"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "Since37._conclude"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "Since37.response_deserialize"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "Since37.deserialize"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "Until36.request"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "Until36.call_api"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "Until36._response"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "Until36._conclude"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "_Replayed.request"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.gating", "GatedClient.update_params_for_auth"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "PendingCreate.get"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.threads", "PendingCreate.wait"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.aio_client", "AioSince37.call_api"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.aio_client", "AioSince37.response_deserialize"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.aio_client", "AioUntil36.request"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.gating", "GatedClient._marked_after"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.aio_client", "_Replayed.request"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.aio_client", "MadeResponse.read"): CALLED_BY_THE_CLIENT,
    ("k8s.gate.clients.gating", "Gating.prepared"): A_GUARD,
    ("k8s.gate.clients.gating", "Gating.respond"): A_GUARD,
    ("k8s.gate.locked_engine", "LockedEngine.attempt"): A_GUARD,
    ("k8s.gate.locked_engine", "LockedEngine._ring"): A_GUARD,
    ("k8s.gate.life", "life"): A_GUARD,
    ("k8s.gate.threads", "Gate.run"): A_DRIVER,
    ("k8s.gate.threads", "drive"): A_DRIVER,
    ("k8s.gate.aio", "AsyncGate.run"): A_DRIVER,
    ("k8s.gate.aio", "AsyncGate._drive"): A_DRIVER,
    ("k8s.gate.aio", "_resumed"): A_DRIVER,
    ("k8s.gate.threads", "Posted.step"): CALLED_BY_THE_POOL,
    ("k8s.gate.locked_engine", "LockedEngine._advance"): CALLED_BY_THE_LOOP,
    ("k8s.gate.runtime.host", "weakly.<locals>.ring"): CALLED_BY_THE_LOOP,
    ("k8s.gate.runtime.host", "Alarm.begin"): CALLED_BY_THE_LOOP,
    ("k8s.gate.runtime.host", "Alarm.ring"): CALLED_BY_THE_LOOP,
    ("k8s.gate.runtime.host", "LoopAlarms._ring"): CALLED_BY_THE_LOOP,
    ("k8s.gate.runtime.host", "Runtime._host"): A_THREADS_FIRST,
}
"""What may fail all the same, and why."""


@dataclass
class End:
    """How a create ended."""

    name: str | None
    error: BaseException | None
    failed_open: int


def run(way: str, server: Server, tracer: Tracer) -> End | None:
    """Create a pod through a way, traced; None: it hangs."""
    ends: list[End] = []

    RUNTIME.close()  # its thread is traced from its beginning
    REMEMBERED.clear()  # each create reads its pod, whether or not an equal one was read before

    def work() -> None:
        gate, create, close = WAYS[way](server)
        name = error = None
        with options(server.first), tracer.tracing():
            try:
                name = create()
            except BaseException as failure:  # noqa: BLE001 - the test judges it
                error = failure
        ends.append(End(name, error, gate.counts.failed_open))
        close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return ends[0] if ends else None


@pytest.mark.long
@pytest.mark.parametrize("first", ["refused", "lost", "invalid", "keyed"])
@pytest.mark.parametrize("way", WAYS)
def test_a_create_survives_the_failure_of_any_function(way: str, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function of ours that runs fails once: at its first call, at that after the first POST, or after its answer.

    The pod is stored, once, and returned; or the caller gets the server's refusal. The error is counted.
    """
    context = ssl.create_default_context()
    monkeypatch.setattr(ssl, "create_default_context", lambda *_, **__: context)  # takes 40 ms each time
    healthy = Tracer(Server(first))
    assert run(way, healthy.server, healthy) is not None
    places = [place for place in healthy.seen if concerns(place, way, first)]
    assert len(places) > MANY[first]

    wrong = [(place, said) for place in places if (said := what_is_wrong(way, first, place))]
    assert not wrong, "\n".join(map(repr, wrong))


TRIES = 100
"""More of a call that did not happen, until it does: some happen only if a thread is late, one in many creates."""
MANY = {"refused": 60, "lost": 60, "invalid": 15, "keyed": 60}
"""So many functions run at least: the test would prove nothing if it found none."""


def concerns(place: CallSite, way: str, first: str) -> bool:
    """Say whether to let this call fail. What happens before the server's answer is no different if it is a refusal."""
    if (place.module, place.function) in MAY_FAIL:
        return False
    below = place.module.startswith(BELOW) and way != "threads"
    return not below and (place.stage == "answered" or first != "invalid")


def once(way: str, first: str, place: CallSite) -> tuple[Tracer, End | None]:
    """Create a pod, and let that call fail if it happens."""
    tracer = Tracer(Server(first), place)
    return tracer, run(way, tracer.server, tracer)


def what_is_wrong(way: str, first: str, place: CallSite) -> str:
    """Let a call fail; return what the create does that it must not do."""
    tracer, end = once(way, first, place)
    for _ in range(TRIES):
        if not tracer.fired and end is not None:
            tracer, end = once(way, first, place)
    stored = list(tracer.server.stored)
    if end is None:
        return "hangs"
    if first == "keyed" and isinstance(end.error, InjectedError):
        wrong = "a key" if tracer.server.posts or stored else ""  # without the gate it could be stored a second time
    elif place.stage == "unseen" and isinstance(end.error, ProtocolError | ServerDisconnectedError):
        wrong = "" if tracer.server.posts == 1 else "sent twice"  # sent as without the gate: a lost answer is an error
    elif end.error is None:
        wrong = "" if stored == [end.name] else f"returns {end.name}, stored are {stored}"
    else:
        refused = isinstance(end.error, ApiException | aio.ApiException) and end.error.status in (403, 422)
        wrong = "" if refused and not stored else f"raises {end.error!r}, stored are {stored}"
    # Nobody waits for the runtime; the log lines and the callback about waiting say themselves that they failed.
    alone = place.module.startswith(("k8s.gate.runtime.", "k8s.gate.notices")) or place.function == "_call_back"
    return wrong or ("" if alone or (tracer.fired and end.failed_open) else f"fired: {tracer.fired}, {end}")
