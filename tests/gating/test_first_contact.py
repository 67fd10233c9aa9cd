"""The first create in a namespace: which create lists the quotas, and which wait for the list."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client

from backoff_ctrl.engine import ObservedQuota
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate import together
from backoff_ctrl.k8s.gate.aio import AsyncGate
from backoff_ctrl.k8s.gate.clients.aio_client import AsyncGatedApiClient, AsyncWaitTimeout
from backoff_ctrl.k8s.gate.clients.client import GatedApiClient, WaitTimeout, waiting
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.gate.together import FirstList
from backoff_ctrl.k8s.gate.unfinished import Turn
from backoff_ctrl.k8s.kube.answers.answer import Answer, GateClosed
from backoff_ctrl.k8s.kube.charges.quotas import quotas_of
from tests.kit.gated_creates import pod
from tests.kit.official import aio
from tests.kit.patience import PATIENCE
from tests.kit.transports import AsyncTransport, Transport, creation

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.lab.sandbox import BackgroundSandbox

QUIET = 60.0
POD: Any = pod()
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "name", "spec", "hard", "status", "used", "scopes"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


def first_step(lists: FirstList, namespace: str, now: float, turn: Turn | None = None) -> str:
    """What a create does first there."""
    return "go" if lists.is_listed(namespace, now) else lists.ask(namespace, turn or Turn(), now, watched=False)


def test_the_first_create_lists_the_quotas_and_the_others_wait() -> None:
    """A thousand creates into a new namespace cost one list, and go on in their order."""
    lists = FirstList(QUIET)
    turns = [Turn() for _ in range(1000)]
    assert first_step(lists, "team", 0.0) == "read"
    assert {first_step(lists, "team", 0.0, turn) for turn in turns} == {"wait"}
    assert first_step(lists, "other", 0.0) == "read"
    assert lists.waiting("team") == turns
    lists.done("team", 0.1)
    assert first_step(lists, "team", 0.2) == "go"


def test_a_quiet_namespace_is_listed_again() -> None:
    """Each create keeps the list valid; after a long pause it is forgotten."""
    lists = FirstList(QUIET)
    first_step(lists, "team", 0.0)
    lists.done("team", 1.0)
    assert first_step(lists, "team", 1.0 + QUIET - 0.1) == "go"
    assert first_step(lists, "team", 1.0 + 2 * QUIET - 0.2) == "go"
    assert first_step(lists, "team", 1.0 + 3 * QUIET) == "read"


def test_namespaces_that_come_and_go_leave_no_trace() -> None:
    """A CI that makes a namespace for each run does not fill the memory. Namespaces that are being listed stay."""
    lists = FirstList(QUIET)
    first_step(lists, "slow", 0.0)
    for number in range(2 * together.NAMESPACES_MAX):
        now = float(number)
        first_step(lists, f"run-{number}", now)
        lists.done(f"run-{number}", now)
    assert len(lists) <= together.NAMESPACES_MAX + 1
    assert first_step(lists, "slow", 1.0) == "wait"
    assert first_step(lists, "slow", 1e6) == "read", "whoever began that list was lost"


def test_a_list_reported_done_twice_does_no_harm() -> None:
    """This happens when a create is cancelled while its list is answered."""
    lists = FirstList(QUIET)
    turn = Turn()
    first_step(lists, "team", 0.0)
    first_step(lists, "team", 0.0, turn)
    assert lists.waiting("team") == [turn]
    for _ in range(2):
        lists.done("team", 1.0)
        assert lists.waiting("team") == []


def test_a_create_interrupted_while_listing_lets_the_others_go_on() -> None:
    """Ctrl-C ends the create that lists; one that waits for it goes on without the list instead of waiting for ever."""
    gate = Gate()
    gate.ledger.line.list_quotas_first(QUIET)
    others_wait = threading.Event()
    listed = threading.Event()

    class Interrupted(Transport):
        def list_quotas(self) -> Answer:
            listed.set()
            assert others_wait.wait(PATIENCE)
            raise KeyboardInterrupt

    transport = Interrupted()

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            gate.create(creation(), transport)

    reader = threading.Thread(target=first)
    reader.start()
    assert listed.wait(PATIENCE)
    threading.Timer(0.1, others_wait.set).start()
    assert gate.create(creation(), transport).status == 201
    reader.join(PATIENCE)


class Listing(AsyncTransport):
    """A transport whose list is answered only after ``meanwhile`` was called, with quotas as they were before."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.lists = 0
        self._meanwhile = meanwhile

    async def list_quotas(self) -> Answer:
        self.lists += 1
        self._meanwhile()
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "8"}}}
        status = {"hard": {"pods": "8"}, "used": {"pods": "0"}}
        return Answer(200, {}, json.dumps({"items": [quota | {"status": status}]}).encode())


FULL = ObservedQuota({"pods": 8 * 10**9}, {"pods": 8 * 10**9}, {"pods": 8 * 10**9})


async def test_a_list_never_undoes_what_a_watch_told_while_it_was_read() -> None:
    """By the list there is room, by the watch, which is newer, there is none: the create waits."""
    gate = AsyncGate()
    gate.ledger.line.list_quotas_first(QUIET)

    def fill_and_watch() -> None:
        gate.ledger.observe_quota("team", "q", FULL)
        gate.ledger.watching("team")

    transport = Listing(fill_and_watch)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(gate.create(creation(), transport), 0.2)
    assert (transport.lists, transport.sent) == (1, [])
    await gate.aclose()


class Raised(Listing):
    """A transport whose namespace's quota allows ``pods``."""

    pods = "0"

    async def list_quotas(self) -> Answer:
        self.lists += 1
        hard = {"hard": {"pods": self.pods}}
        quota = {"metadata": {"name": "q"}, "spec": hard, "status": {**hard, "used": {"pods": "0"}}}
        return Answer(200, {}, json.dumps({"items": [quota]}).encode())


async def test_a_create_is_not_refused_as_too_large_by_a_list_for_an_earlier_one() -> None:
    """Nothing waits, so nothing is watched, and the quota may have been raised: it is listed again, once a create."""
    gate = AsyncGate()
    gate.ledger.line.list_quotas_first(QUIET)
    transport = Raised()
    transport.pods = "500m"
    for lists in (1, 2):  # the second by a list of its own
        assert (await gate.create(creation(), transport)).status == 403
        assert (transport.lists, transport.sent) == (lists, [])
    transport.pods = "8"
    assert (await gate.create(creation(), transport)).status == 201
    assert (await gate.create(creation(), transport)).status == 201
    assert transport.lists == 3
    await gate.aclose()


async def test_nothing_is_listed_where_quotas_are_watched() -> None:
    """Not before the first create there, nor after a quiet time. Once the watch is lost, it is listed again."""
    gate = AsyncGate()
    gate.ledger.line.list_quotas_first(0.0)  # every create comes after a quiet time
    gate.ledger.watching("team")
    transport = Listing()
    for lists in (0, 0, 1):
        await gate.create(creation(), transport)
        assert transport.lists == lists
        if gate.counts.sent == 2:
            gate.ledger.watch_lost("team")
    await gate.aclose()


async def test_a_new_engine_does_not_take_an_old_list_for_news() -> None:
    """After an internal error only what is watched is repeated: a list may be hours old by then."""
    gate = AsyncGate()
    gate.ledger.read("team", await Listing().list_quotas(), gate.ledger.now())
    assert set(gate.ledger.snapshot().namespaces["team"].quotas) == {"q"}

    gate.ledger.engine.act(lambda *_: 1 / 0)  # a bug of ours

    assert gate.ledger.snapshot().namespaces == {}
    await gate.aclose()


# -- through the clients ---------


def gate_that_lists() -> Gate:
    """A gate that lists quotas as the shared one does, and sends no probe for at least half a minute."""
    gate = Gate(policy=Policy(base=60, cap=60))
    gate.ledger.line.list_quotas_first(QUIET)
    return gate


async def test_not_even_the_first_create_is_refused(sandbox: BackgroundSandbox) -> None:
    """Creates of threads and of a loop wait for a full quota that nobody has met before: the server refuses none."""
    sandbox.create_quota("team", "q", {"pods": "0"})

    def create(core: Any) -> None:
        with waiting(timeout=0.3), pytest.raises(WaitTimeout):
            core.create_namespaced_pod("team", POD)

    with GatedApiClient(client.Configuration(host=sandbox.url), gate=gate_that_lists()) as api:
        await asyncio.gather(*(asyncio.to_thread(create, client.CoreV1Api(api)) for _ in range(20)))
    async with AsyncGatedApiClient(aio.Configuration(host=sandbox.url)) as looping:
        with waiting(timeout=0.3), pytest.raises(AsyncWaitTimeout):
            await aio.CoreV1Api(looping).create_namespaced_pod("team", POD)
    counts = sandbox.counters.creates
    assert (counts.refused, counts.created) == (0, 0)


def test_creates_that_fit_by_the_list_are_sent_at_once(sandbox: BackgroundSandbox) -> None:
    """The list shows room: of thirty creates twenty are sent, and ten wait without having been sent."""
    sandbox.create_quota("team", "q", {"pods": "20"})
    gate = gate_that_lists()
    made, late = [], []
    with (
        ThreadPoolExecutor(30) as pool,
        GatedApiClient(client.Configuration(host=sandbox.url), gate=gate) as api,  # closed first: that ends the waits
    ):
        core: Any = client.CoreV1Api(api)
        all_there = threading.Barrier(30)

        def create() -> None:
            all_there.wait(PATIENCE)
            try:
                made.append(core.create_namespaced_pod("team", POD))
            except GateClosed as error:
                late.append(error)

        for _ in range(30):
            pool.submit(create)
        while len(made) < 20 or gate.ledger.snapshot().namespaces["team"].waiting < 10:
            threading.Event().wait(0.01)
    assert (len(made), len(late)) == (20, 10)
    assert sandbox.counters.creates.refused == 0


def test_where_quotas_cannot_be_listed_creates_go_on(sandbox: BackgroundSandbox) -> None:
    """A missing namespace gives 404 to the list and to the create: the caller gets the create's answer."""
    with GatedApiClient(client.Configuration(host=sandbox.url)) as api:
        core: Any = client.CoreV1Api(api)
        with pytest.raises(client.ApiException) as caught:
            core.create_namespaced_pod("nowhere", POD)
    assert caught.value.status == 404


@given(items=JUNK)
def test_a_list_of_anything_does_no_harm(items: object) -> None:
    """Whatever the answer holds, valid quotas are read and nothing is raised."""
    answer = Answer(200, {}, json.dumps({"items": items}).encode())
    assert all(name for name, _ in quotas_of(answer))


@pytest.mark.parametrize("answer", [Answer(403, {}, b'{"items": []}'), Answer(200, {}, b"["), Answer(200, {}, b"[]")])
def test_an_answer_that_is_no_list_yields_no_quotas(answer: Answer) -> None:
    """It may be forbidden, cut off, or something else."""
    assert list(quotas_of(answer)) == []
