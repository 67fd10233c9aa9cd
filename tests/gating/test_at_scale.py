"""Many creates at once: few in flight where nothing is known, and each stored exactly once, whatever goes wrong."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections import Counter
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.engine import ObservedQuota, Selector
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.answers_seen import LEVEL_HEADER, LEVELS_MAX
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient, waiting
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.creates.naming import CREATE_ID
from backoff_ctrl.k8s.gate.gangs import GangWait, gang_life, gang_of
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import Answer, GateClosed
from tests.kit.official import aio as client
from tests.kit.official import only_since_37
from tests.kit.patience import PATIENCE
from tests.kit.transports import Transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

CREATES = 1000
DELAY = 0.3
ROOT = Path(__file__).parents[2]


def pod(number: int) -> Any:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": f"p{number}-"}, "spec": spec}


@pytest.mark.long
@pytest.mark.parametrize("room", [pytest.param("4", id="full"), pytest.param("5000", id="roomy"), None])
async def test_a_thousand_creates_into_an_unknown_namespace_keep_at_most_16_in_flight(
    sandbox: BackgroundSandbox, room: str | None
) -> None:
    """Answers take 300 ms, so that the server would see a thousand in flight if all were sent at once."""
    if room is not None:
        sandbox.create_quota("team", "q", {"pods": room})
    sandbox.faults.answer_delay_s = DELAY
    async with AsyncGatedApiClient(client.Configuration(host=sandbox.url), gate=AsyncGate()) as api:
        core: Any = client.CoreV1Api(api)
        counts = sandbox.counters.of("team")
        tasks = [asyncio.ensure_future(core.create_namespaced_pod("team", pod(n))) for n in range(CREATES)]
        if room == "4":
            await until_in(tasks, lambda: counts.created == 4)
            await asyncio.wait(tasks, timeout=2)  # meanwhile nothing else is created, and few are sent
        else:
            await until_in(tasks, lambda: counts.created > 50 and counts.max_in_flight > 8)
    ends = await asyncio.gather(*tasks, return_exceptions=True)

    made = [end for end in ends if not isinstance(end, BaseException)]
    assert len(made) == counts.created
    assert all(isinstance(end, GateClosed) for end in ends if isinstance(end, BaseException))
    if room == "4":
        assert (len(made), counts.refused <= 8, counts.max_in_flight <= 16) == (4, True, True)
    else:
        assert len(made) > 50
        assert 8 < counts.max_in_flight <= 16  # it grows: 1, 2, 4, ... 16
    namespace = api.gate.ledger.snapshot().namespaces["team"]
    assert (namespace.outstanding, namespace.waiting) == (0, 0)


async def until_in(tasks: list[asyncio.Task[Any]], enough: Callable[[], bool]) -> None:
    """Wait until so many creates have succeeded."""
    async with asyncio.timeout(PATIENCE):
        for made in asyncio.as_completed(tasks):
            await made
            if enough():
                return


@pytest.mark.long
async def test_every_create_is_made_exactly_once_under_all_faults(sandbox: BackgroundSandbox) -> None:
    """Lost answers, resets after storing, quota conflicts and overload: of 150 creates 150 exist, none twice."""
    sandbox.create_quota("team", "q", {"pods": "1000"})
    faults = sandbox.faults
    faults.reset_share = faults.unknown_outcome_share = faults.quota_conflict_share = 0.1
    faults.quota_timeout_share = 0.05
    gate = AsyncGate(policy=Policy(base=0.01, cap=0.1, brake_base=0.01))
    async with AsyncGatedApiClient(client.Configuration(host=sandbox.url), gate=gate) as api:
        core: Any = client.CoreV1Api(api)
        made = await asyncio.gather(*[core.create_namespaced_pod("team", pod(n)) for n in range(150)])
        there = (await core.list_namespaced_pod("team")).items

    assert len({each.metadata.uid for each in made}) == 150
    assert {each.metadata.uid for each in there} == {each.metadata.uid for each in made}
    assert all(CREATE_ID in each.metadata.annotations for each in there)
    assert gate.counts.refused.total() > 10  # faults did occur


async def test_overload_is_waited_out_as_the_server_asks(sandbox: BackgroundSandbox) -> None:
    """A 429 in plain text with Retry-After: no create fails, and few are sent while it lasts."""
    sandbox.faults.overload_share, sandbox.faults.retry_after_s = 1.0, 0
    gate = AsyncGate(policy=Policy(base=0.05, cap=0.2, retry_after_window=0.05))
    async with AsyncGatedApiClient(client.Configuration(host=sandbox.url), gate=gate) as api:
        core: Any = client.CoreV1Api(api)
        refused = asyncio.Semaphore(0)
        with waiting(on_wait=lambda why: refused.release() if why.reason == "overload" else None):
            tasks = [asyncio.ensure_future(core.create_namespaced_pod("team", pod(n))) for n in range(40)]
        for _ in range(5):
            await refused.acquire()
        sandbox.faults.clear()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

    assert sandbox.counters.creates.max_in_flight <= 16
    assert sandbox.counters.creates.created == 40


@pytest.mark.long
@pytest.mark.scheduled
@only_since_37  # the bounds are for the way of that client
@pytest.mark.parametrize(("way", "most"), [("threads", 3500), ("async_req", 2900), ("asyncio", 2900)])
def test_a_waiting_create_takes_little_memory(way: str, most: int) -> None:
    """The gate's own part in bytes, beside the client's copy of the body; `make bench` prints both."""
    command = [sys.executable, str(ROOT / "benchmarks" / "waiting_creates.py"), way, "400"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
    assert 330 < json.loads(done.stdout)["gate"] < most


def at_once(step: Callable[[], object]) -> None:
    """Take a step where it is posted."""
    step()


@contextmanager
def crowd(number: int) -> Iterator[Gate]:
    """Give a gate with so many creates that wait, each of a shape of its own: each is looked at by itself.

    They are ended with it: left to the collector, each would leave the line in the middle of another test's count.
    """
    gate = Gate(policy=Policy(scan_max=100_000))  # a scan of the line looks at all of them
    ledger = gate.ledger
    pods = {"pods": 10**9}
    ledger.observe_quota("team", "q", ObservedQuota(pods, pods, pods, Selector()))
    ledger.watching("team")
    for each in range(number):
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": f"{each + 1}m"}}}
        body = {"metadata": {"name": f"p{each}"}, "spec": {"containers": [container]}}
        gate.run_on(at_once, Create(gate, Creation("s", "me", "team", "pods", body)), Transport(), list)
    assert gate.counts.waiting == number
    try:
        yield gate
    finally:
        gate.close()


def steps_of(act: Callable[[], object]) -> Counter[str]:
    """Count the calls that something takes, by function."""
    steps: Counter[str] = Counter()

    def count(frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            steps[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            steps[called.__qualname__] += 1

    gc.collect()
    gc.disable()  # what others left behind isn't ours
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return steps


@pytest.mark.long
@pytest.mark.parametrize("act", [Gate.waiting, Gate.close])
def test_looking_at_and_closing_take_as_many_steps_per_waiting_create_however_many_wait(
    act: Callable[[Gate], object],
) -> None:
    """A Ctrl-C pays for both."""

    def steps(number: int) -> float:
        with crowd(number) as gate:
            return steps_of(partial(act, gate)).total() / number

    few, many = steps(250), steps(2000)

    assert 0 < many < 1.1 * few


def test_closing_takes_all_out_of_the_line_in_one_step() -> None:
    """The line is not scanned: nobody is let in because another has left."""
    with crowd(200) as gate:
        steps = steps_of(gate.close)

        assert gate.counts.waiting == 0
        assert gate.counts.sent == 0
        assert gate.waiting() == []
    assert (steps["Line._stop"], sum(number for step, number in steps.items() if step.endswith(".scan"))) == (1, 0)


def test_a_gang_finds_who_reads_the_quotas_however_many_creates_wait() -> None:
    """All who wait were gone through, with the lock held."""

    def joined(number: int) -> Counter[str]:
        with crowd(number) as gate:
            wait = GangWait(gate, gang_of("other", [({"spec": {"containers": [{"name": "c"}]}}, 2)]))
            with closing(gang_life(wait, gate, may_read=True)) as living:
                return steps_of(lambda: next(living))

    few, many = joined(20), joined(2000)

    assert few["Line._find_reader"] == 1
    assert many.total() < 1.1 * few.total()


def test_priority_levels_are_learned_however_many_credentials_came_before() -> None:
    """Tokens are renewed every hour, each with an overload window of its own: the oldest ones are forgotten."""
    gate = Gate()
    ledger = gate.ledger

    def create(credential: int, level: str) -> Creation:
        asked = Creation("http://s", f"token-{credential}", "team", "pods", pod(credential))
        asking = Create(gate, asked)
        asking.word = Answer(201, {LEVEL_HEADER: level}, b"{}")
        ledger.answers.saw(asking)
        return asked

    for credential in range(LEVELS_MAX):
        create(credential, "old")
    known, new = create(1, "new"), create(LEVELS_MAX, "new")

    assert [ledger.answers.flow(asked).rpartition("|")[2] for asked in (known, new)] == ["new", "new"]
    assert ledger.answers.flow(create(0, "new")).endswith("new")
    assert ledger.answers.flow(Creation("http://s", "token-2", "team", "pods", pod(2))).endswith("|")  # the oldest
