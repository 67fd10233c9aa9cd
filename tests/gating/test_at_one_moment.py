"""Two things at one moment, and the second must not be missed: a create that begins, waits or ends, and its end."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client

from backoff_ctrl.engine import ObservedQuota, Selector
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.gangs import GangAsked, gang_of
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.life import life
from backoff_ctrl.k8s.gate.observing.hosted import HostedWatch
from backoff_ctrl.k8s.gate.runtime.host import RUNTIME, RuntimeAlarms
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import Answer, GateClosed, OutcomeUnknown
from backoff_ctrl.k8s.status.counters import Counters, NamespaceCounts
from tests.kit.gated_creates import fill, pod
from tests.kit.transports import AsyncTransport, Transport, creation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

ONE = 10**9
LONG = 45.0


def quota_of(ledger: Ledger, pods: int, used: int) -> None:
    seen = ObservedQuota({"pods": pods * ONE}, {"pods": pods * ONE}, {"pods": used * ONE}, Selector())
    ledger.observe_quota("team", "q", seen)
    ledger.watching("team")


def two_pods() -> GangAsked:
    return gang_of("team", [(pod(), 2)])


def ends(act: Callable[[], object]) -> bool:
    """Do something in a thread; say whether it ends."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(LONG)
    return not thread.is_alive()


class Stopping(Subscriber):
    """Cancels each create as soon as it hears of it, as an operator may."""

    def begun(self, create: Any) -> None:
        """Cancel it."""
        create.cancel(GateClosed("cancelled by an operator"))


# -- stopped before it waits ---------


def test_a_create_that_is_cancelled_just_before_it_follows_another_one_ends() -> None:
    """Nothing else would end it: it waited as long as the create with its key did."""
    gate, first_waits = Gate(), threading.Event()
    gate.ledger.halt("team", halted=True)
    first = Create(gate, creation(key="k", on_wait=lambda _: first_waits.set()))
    with ThreadPoolExecutor(2) as pool:
        pool.submit(gate.run, first, Transport())
        try:
            assert first_waits.wait(LONG)
            gate.ledger.subscribe(Stopping())
            second = Create(gate, creation(key="k"))
            pool.submit(gate.run, second, Transport()).result(LONG)
        finally:
            gate.close()
    assert isinstance(second.error, GateClosed)
    assert str(second.error) == "cancelled by an operator"


async def test_a_gang_that_is_cancelled_before_it_joins_the_line_ends() -> None:
    """``on_wait`` is given it before: it waited for room, and a place in line was left behind."""
    gate = AsyncGate()
    quota_of(gate.ledger, pods=2, used=2)
    with pytest.raises(GateClosed, match="operator"):
        async with (
            asyncio.timeout(LONG),
            gate.gang(two_pods(), on_wait=lambda wait: wait.cancel(GateClosed("cancelled by an operator"))),
        ):
            pytest.fail("it was admitted")
    assert gate.counts.waiting == 0
    assert gate.ledger.snapshot().namespaces["team"].waiting == 0


def test_closing_a_client_cancels_what_its_pool_has_not_begun(sandbox: BackgroundSandbox, core: Any) -> None:
    """It joined the line after the end of its client, and was sent whenever there was room, by whoever made that."""
    fill(sandbox, core)
    api = GatedApiClient(client.Configuration(host=sandbox.url), gate=core.api_client.gate)
    busy, go, cancelled = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        busy.set()
        go.wait(LONG)

    api.pool.apply_async(block)
    assert busy.wait(LONG)
    untyped: Any = client.CoreV1Api(api)
    pending = untyped.create_namespaced_pod("team", pod(), async_req=True)

    def close() -> None:
        api.gate.cancel_own("the client was closed")
        cancelled.set()
        api.close()

    with ThreadPoolExecutor(1) as closing:
        closed = closing.submit(close)
        assert cancelled.wait(LONG)
        go.set()
        closed.result(LONG)
    assert pending.ready()
    with pytest.raises(GateClosed, match="the client was closed"):
        pending.get(LONG)


def test_a_create_without_a_line_is_cancelled_before_it_is_sent_too() -> None:
    """The log says that it was cancelled, so it must not be stored."""
    gate = Gate(mode="off")
    gate.ledger.subscribe(Stopping())

    with pytest.raises(GateClosed, match="operator"):
        gate.create(creation(), Transport())


def test_a_watch_that_is_stopped_in_the_moment_in_which_it_begins_ends(at_work: Callable[[], int]) -> None:
    """The client that started it was closed at once: it went on as long as the program."""
    before, stopped = at_work(), threading.Event()
    watch = HostedWatch(Gate().ledger, client.Configuration(host="http://127.0.0.1:1"))

    def stop(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code.co_name == "spawn":
            sys.setprofile(None)
            watch.stop()
            stopped.set()

    RUNTIME.post(sys.setprofile, stop)
    watch.follow("team")
    assert stopped.wait(LONG)

    assert min(at_work() for _ in range(20)) <= before


def test_a_create_that_follows_another_one_just_as_that_ends_hangs_nobody() -> None:
    """It passed the one that had ended over, and so did that one those who followed: they waited for ever."""
    gate, first_sends, follows, late_follows = Gate(), threading.Event(), threading.Event(), threading.Event()

    class Slow(Transport):
        def send(self, body: dict[str, Any]) -> Answer:
            first_sends.set()
            assert follows.wait(LONG)
            sys.setprofile(hold_up)
            return super().send(body)

    def hold_up(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_qualname == "Line.end":  # it has its answer, and nobody was told yet
            sys.setprofile(None)
            late = pool.submit(gate.create, creation(key="k", on_wait=lambda _: late_follows.set()), Transport())
            answers.append(late)
            while not late_follows.wait(0.01) and not late.done():
                pass

    answers: list[Any] = []
    with ThreadPoolExecutor(3) as pool:
        try:
            answers.append(pool.submit(gate.create, creation(key="k"), Slow()))
            assert first_sends.wait(LONG)
            on_wait = lambda _: follows.set()  # noqa: E731
            answers.append(pool.submit(gate.create, creation(key="k", on_wait=on_wait), Transport()))
            assert follows.wait(LONG)
            assert [answers[number].result(LONG).status for number in range(2)] == [201, 201]
            assert answers[2].result(LONG).status == 201
        finally:
            gate.close()


def test_a_create_whose_end_was_never_noted_holds_up_nobody_with_its_key() -> None:
    """A Ctrl-C may come between the answer and its note: who follows is told by the next one, which leads."""
    gate = Gate()
    line, (lost, follower, late) = gate.ledger.line, (Create(gate, creation(key="k")) for _ in range(3))
    assert line.follow(lost, "body", None) is None
    turn = line.follow(follower, "body", None)
    assert turn is not None
    assert turn.pending
    lost.answer = Answer(201, {}, b"{}")

    assert line.follow(late, "body", None) is not None, "the follower leads by now"
    assert turn.value is lost.answer
    gate.close()


# -- the next step begins before the last one has ended ---------


def test_a_create_goes_on_in_one_thread_of_a_pool_while_another_is_about_to_leave_it() -> None:
    """The pool of a client may have several threads (``pool_threads``): the create ended without an answer."""
    gate, ended = Gate(), threading.Event()
    steps: list[Callable[[], object]] = []
    gate.ledger.halt("team", halted=True)
    create = Create(gate, creation())

    def hold_up(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code.co_name == "listen":
            sys.setprofile(None)
            gate.ledger.halt("team", halted=False)  # from here on the other thread takes the next step
            ended.wait(LONG)

    def held_up(step: Callable[[], object]) -> None:
        sys.setprofile(hold_up)
        step()

    with ThreadPoolExecutor(2) as pool:

        def post(step: Callable[[], object]) -> None:
            steps.append(step)
            if len(steps) == 1:
                pool.submit(held_up, step)
            else:
                pool.submit(step)

        gate.run_on(post, create, Transport(), ended.set)
        assert ended.wait(LONG)

    assert create.result().status == 201


# -- cancelled by others ---------


@pytest.mark.long
async def test_a_call_that_somebody_else_cancels_has_an_unknown_outcome() -> None:
    """A refresh of credentials that several share, say. It was taken for its caller's end, again and again."""

    async def cancelled() -> None:
        shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        shared.cancel()
        await shared

    gate = AsyncGate()
    async with asyncio.timeout(LONG):
        with pytest.raises(OutcomeUnknown):
            await gate.create(creation(), AsyncTransport(before=cancelled))
        await gate.drain()


# -- finalizers ---------


def test_a_gang_whose_block_a_finalizer_ends_is_given_back(collecting: None) -> None:
    """The thread in which garbage is collected may hold the ledger's lock: it waited for itself."""
    gate = Gate()
    ledger = gate.ledger
    quota_of(ledger, pods=2, used=0)

    def held() -> Iterator[None]:
        with gate.gang(two_pods()):
            yield

    def drop_it() -> None:
        dropped: list[Any] = [held()]
        dropped.append(dropped)
        next(dropped[0])
        assert ledger.snapshot().namespaces["team"].gangs
        del dropped
        ledger.look(lambda *_: gc.collect())

    assert ends(drop_it)
    assert not ledger.snapshot().namespaces["team"].gangs


def leave_waiting(ledger: Ledger) -> None:
    """Let a create of a halted namespace wait on a loop, and close that loop."""

    async def wait() -> None:
        waits, gate = asyncio.Event(), AsyncGate(ledger=ledger)
        ledger.halt("team", halted=True)
        task = asyncio.create_task(gate.create(creation(on_wait=lambda _: waits.set()), AsyncTransport()))
        await waits.wait()
        task.set_name("left behind")

    run_and_close(wait())


def run_and_close(first: Coroutine[Any, Any, None]) -> None:
    """Run this on a loop of its own, and close that with whatever it has begun."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.run_until_complete(first)
    loop.close()


def test_what_a_closed_loop_leaves_behind_costs_no_engine(collecting: None) -> None:
    """No loop runs of whose clock the time could be read, which was an error of ours: all that was known was lost."""
    ledger = AsyncGate().ledger
    leave_waiting(ledger)
    ledger.halt("other", halted=True)
    ledger.halt("team", halted=False)
    gc.collect()

    assert ledger.counts.waiting == 0
    assert ledger.under_way() == []
    assert ledger.is_halted("other")
    assert ledger.counts.failed_open == 0


@pytest.fixture
def collecting() -> Iterator[None]:
    """Let garbage be collected only where the test does it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_create_whose_loop_was_closed_is_told_of_once(collecting: None) -> None:
    """It ends when its turn comes to nobody, and once more when it is collected: it was counted twice."""
    ledger, told = Ledger(RuntimeAlarms()), Ended()
    ledger.subscribe(told)
    leave_waiting(ledger)
    ledger.halt("team", halted=False)
    gc.collect()

    assert told.errors == ["GateClosed"]


def test_a_create_may_end_in_a_finalizer_while_its_thread_looks_at_the_counters(collecting: None) -> None:
    """The thread waited for itself, and all others for it."""
    gate = Gate()
    counters = Counters(gate.ledger.now, gate.ledger.explain)
    gate.ledger.subscribe(counters)

    class Collecting(NamespaceCounts):
        __slots__ = ()

        def __copy__(self) -> NamespaceCounts:
            gc.collect()
            return super().__copy__()

    counters.namespaces["team"] = Collecting()

    def look() -> None:
        left: list[Any] = [life(Create(gate, creation()), gate, lists_quotas=False)]
        left.append(left)
        next(left[0])  # it is being sent
        del left
        counters.of("team")

    assert ends(look)


class Ended(Subscriber):
    """Collects how creates ended, and keeps none of them."""

    def __init__(self) -> None:
        """None has."""
        self.errors: list[str] = []

    def ended(self, create: Any) -> None:
        """Note it."""
        self.errors.append(type(create.error).__name__)


def test_closing_a_gate_waits_for_no_answer_of_a_loop_that_was_closed() -> None:
    """Nothing will come there: it waited for 40 s."""
    gate = AsyncGate()

    async def send() -> None:
        sent = asyncio.Event()

        async def answer_never() -> None:
            sent.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(gate.create(creation(), AsyncTransport(before=answer_never)))
        await sent.wait()
        task.set_name("left behind")

    run_and_close(send())
    began = time.monotonic()

    asyncio.run(gate.aclose())

    assert time.monotonic() - began < 35.0


# -- subscribers ---------


def test_no_subscriber_is_lost_among_many(quick_switches: None) -> None:
    """One of two that subscribed at once heard nothing: the watch of quotas, perhaps."""
    ledger = Gate().ledger

    def subscribe(_: int) -> list[Callable[[], None]]:
        return [ledger.subscribe(Stopping()) for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        ends = [end for found in pool.map(subscribe, range(8)) for end in found]
        assert len(ledger.subscribers.every) == 8 * 50
        list(pool.map(lambda end: end(), ends))
    assert ledger.subscribers.every == ()


def test_two_threads_tell_what_was_decided() -> None:
    """The one found nothing left to tell: an error of ours, for whoever had brought news."""
    told, ledger = Decided(), Gate().ledger
    ledger.subscribe(told)

    def hold_up(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ == "popleft" and frame.f_code.co_name == "_deliver":
            sys.setprofile(None)
            pool.submit(ledger.hint_release, "team").result(LONG)  # it tells both

    with ThreadPoolExecutor(1) as pool:
        sys.setprofile(hold_up)
        try:
            ledger.hint_release("team")
        finally:
            sys.setprofile(None)
    assert len(told.times) == 2


class Decided(Subscriber):
    """Collects how long decisions took."""

    def __init__(self) -> None:
        """None was told."""
        self.times: list[float] = []

    def decided(self, seconds: float) -> None:
        """Note it."""
        self.times.append(seconds)


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Switch between threads as often as Python can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)
