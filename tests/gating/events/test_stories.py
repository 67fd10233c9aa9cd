"""The stories about waiting creates: that one waits for long, that it was created in the end, or that it never fits."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pytest

from backoff_ctrl.engine.look.explaining import Explanation
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.aio import AsyncGate, Creation
from backoff_ctrl.k8s.gate.events.correlator import Reason, Report
from backoff_ctrl.k8s.gate.events.sender import AGAIN, Reporter, waiting_note
from backoff_ctrl.k8s.kube.answers.answer import Answer, status_answer
from tests.kit.virtual_tests import in_virtual_time

if TYPE_CHECKING:
    from backoff_ctrl.engine.look.explaining import WaitReason


@dataclass
class Stage:
    """A namespace whose quota allows ``limit`` pods, in virtual time, and a gate whose stories are recorded."""

    limit: int = 1
    used: int = 0
    asked: int = 1
    status: int = 201
    delay: float = 0.01
    heard: list[tuple[float, Reason, str]] = field(default_factory=list)
    policy: Policy = field(default_factory=lambda: Policy(base=1, cap=4))

    def __post_init__(self) -> None:
        self.gate = AsyncGate(policy=self.policy, rng=random.Random(7))
        self.silence = self.gate.ledger.subscribe(Reporter(self.gate.ledger, self.pass_on))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.gate.aclose()

    def pass_on(self, story: Report) -> None:
        self.hear(story)

    def hear(self, story: Report) -> None:
        now = asyncio.get_running_loop().time()
        self.heard.append((round(now, 1), story.reason, story.note()))

    async def send(self, body: dict[str, Any]) -> Answer:
        """Answer like an API server with this quota."""
        await asyncio.sleep(self.delay)
        if self.used + self.asked > self.limit:
            amounts = f"requested: pods={self.asked}, used: pods={self.used}, limited: pods={self.limit}"
            text = f'pods "{body["metadata"]["name"]}" is forbidden: exceeded quota: q, {amounts}'
            return status_answer(403, "Forbidden", text, {"name": body["metadata"]["name"], "kind": "pods"})
        if self.status != 201:
            return status_answer(self.status, "Forbidden", "admission webhook denied the request", {})
        self.used += 1
        return Answer(201, {}, json.dumps({**body, "kind": "Pod"}).encode())

    async def look_up(self, name: str) -> Answer:
        return status_answer(404, "NotFound", f'pods "{name}" not found', {"name": name, "kind": "pods"})

    def create(self, name: str = "web", **fields: Any) -> asyncio.Task[Answer]:
        body = {
            "kind": "Pod",
            "metadata": {"generateName": f"{name}-"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        return asyncio.ensure_future(self.gate.create(Creation("http://s", "me", "team", "pods", body, **fields), self))

    def told(self, happening: Reason) -> list[str]:
        return [note for _, each, note in self.heard if each is happening]


@in_virtual_time
async def test_a_short_wait_is_no_story() -> None:
    """Waiting for less than a second is normal while a quota is full."""
    async with Stage(used=1, policy=Policy(base=0.2, cap=0.2)) as stage:
        task = stage.create()
        await asyncio.sleep(0.5)
        stage.used = 0
        await task

    assert stage.heard == []


@in_virtual_time
async def test_a_longer_wait_is_reported_and_so_is_its_end() -> None:
    """The first story comes after a second of waiting; the last one gives the whole waiting time."""
    async with Stage(used=1) as stage:
        task = stage.create()
        await asyncio.sleep(10)
        stage.used = 0
        await task

    (began, first, note), (ended, last, end) = stage.heard
    assert (first, last) == (Reason.WAITS, Reason.ADMITTED)
    assert 1 <= began <= 4
    assert note == (
        "pods web-* is waiting: it requests pods=1, but quota q has 0 of 1 left. "
        "It will be created when there is room (place 1 in line)."
    )
    assert 10 <= ended <= 15
    assert end == f"pods web-* was created after waiting {ended:.1f} s for pods in quota q"


@in_virtual_time
async def test_a_quota_that_is_learned_late_is_reported_soon() -> None:
    """At the first look at the waiting requests none had been refused yet; later looks do not reuse that result."""
    async with Stage(used=1, delay=1.5) as stage:
        await asyncio.gather(*(stage.create(timeout=6) for _ in range(60)), return_exceptions=True)

    assert len(stage.told(Reason.WAITS)) == 60
    assert max(at for at, _, _ in stage.heard) <= 5


@in_virtual_time
async def test_a_namespace_with_many_shapes_does_not_silence_another() -> None:
    """How often the engine may be asked is limited per namespace."""
    stage = Stage(used=1)

    def body(memory: int) -> dict[str, Any]:
        resources = {"requests": {"memory": str(memory)}}
        spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
        return {"kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}

    async with stage:
        crowd = [
            asyncio.ensure_future(
                stage.gate.create(Creation("http://s", "me", "crowd", "pods", body(1 + n), timeout=15), stage)
            )
            for n in range(300)
        ]
        await asyncio.sleep(1.7)
        lone = stage.create(timeout=10)
        await asyncio.gather(lone, *crowd, return_exceptions=True)

    assert [round(at - 1.7) for at, _, note in stage.heard if "pods web-" in note] == [1]


@in_virtual_time
async def test_a_wait_that_is_over_leaves_nothing_behind() -> None:
    """Not even the timer that would have reported the wait again minutes later."""
    async with Stage(used=1) as stage:
        await asyncio.gather(*(stage.create(timeout=5) for _ in range(20)), return_exceptions=True)
        assert len(stage.told(Reason.WAITS)) == 20
        loop: Any = asyncio.get_running_loop()
        assert [alarm for alarm in loop._scheduled if not alarm.cancelled() and alarm.when() > loop.time() + 60] == []


@in_virtual_time
async def test_each_note_gives_the_place_in_line() -> None:
    """Also among equal requests. The first may be out as a probe while the notes of the others are written."""
    async with Stage(used=1) as stage:
        tasks = [stage.create(f"web{number}") for number in range(5)]
        await asyncio.sleep(20)
        stage.used, stage.limit = 0, 5
        await asyncio.gather(*tasks)

    notes = stage.told(Reason.WAITS)
    places = {int(note[len("pods web")]): int(note.split()[-3]) for note in notes}  # "... (place 1 in line)."
    assert sorted(places) == [0, 1, 2, 3, 4]
    assert all(place in {number, number + 1} and place for number, place in places.items())
    assert len(stage.told(Reason.ADMITTED)) == 5


@in_virtual_time
async def test_a_long_wait_is_reported_again() -> None:
    """Every five minutes: a series of events ends after six, and the server deletes events after an hour."""
    async with Stage(used=1) as stage:
        task = stage.create(timeout=2 * AGAIN + 50)
        await asyncio.gather(task, return_exceptions=True)

    times = [at for at, _, _ in stage.heard]
    assert len(times) == 3
    assert all(AGAIN <= later - at < 360 for at, later in itertools.pairwise(times))


@pytest.mark.parametrize("end", ["timed out", "cancelled", "refused"])
@in_virtual_time
async def test_a_wait_that_ends_otherwise_is_no_admission(end: str) -> None:
    """``Admitted`` needs a successful answer. After any other end there are no more stories about the create."""
    async with Stage(used=1) as stage:
        task = stage.create(timeout=10 if end == "timed out" else None)
        await asyncio.sleep(8)
        if end == "cancelled":
            task.cancel()
        if end == "refused":
            stage.used, stage.status = 0, 403
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(3 * AGAIN)

    assert [happening for _, happening, _ in stage.heard] == [Reason.WAITS]


@in_virtual_time
async def test_a_final_refusal_is_reported() -> None:
    """With the engine's own sentence, and also if the create never waited."""
    async with Stage(limit=1, asked=2) as stage:
        answers = await asyncio.gather(stage.create(), return_exceptions=True)
        assert len(answers) == 1

    notes = stage.told(Reason.NEVER_FITS)
    assert notes == [
        "pods web-* was not created: it asks pods=2, but quota q allows 1 in all. Lower the request or raise the quota."
    ]


@in_virtual_time
async def test_a_listener_that_fails_harms_no_create(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged once."""
    stage = Stage(used=1)

    def fail(story: Report) -> None:
        raise RuntimeError("not today")

    stage.hear = fail  # type: ignore[method-assign]
    async with stage:
        tasks = [stage.create() for _ in range(3)]
        await asyncio.sleep(10)
        stage.used, stage.limit = 0, 3
        assert [answer.status for answer in await asyncio.gather(*tasks)] == [201] * 3

    assert len([message for message in caplog.messages if "reporting on waiting creates failed" in message]) == 1
    assert stage.gate.counts.failed_open == 0


@pytest.mark.long
@in_virtual_time
async def test_ten_thousand_waiters_ask_the_engine_a_handful_of_times() -> None:
    """An explanation costs O(waiters), so equal requests share one; each of them still gets its story."""
    stage, asked = Stage(used=1), 0
    count = 10_000
    told: list[Report] = []
    stage.hear = told.append  # type: ignore[method-assign, assignment]
    explain = stage.gate.ledger.explain

    def counted(request: Any) -> Any:
        nonlocal asked
        asked += 1
        return explain(request)

    stage.gate.ledger.explain = counted  # type: ignore[method-assign]  # the real one, with a tally
    async with stage:
        tasks = [stage.create(timeout=20) for _ in range(count)]
        await asyncio.sleep(0)
        for task in tasks:
            assert not task.done()
        await asyncio.sleep(19)
        assert asked <= 200  # each time-out asks once more
        await asyncio.gather(*tasks, return_exceptions=True)

    assert len(told) == count


@pytest.mark.parametrize(
    ("reason", "resource", "left", "note"),
    [
        ("quota", "pods", 10**9, "pods=3, but quota q has 1 of 9 left. It will be created when there is room"),
        ("quota", "pods", -(10**9), "pods=3, but quota q has 0 of 9 left. It will be created when there is room"),
        (
            "paused", "pods", 0,
            ("pods=3, but quota q has a limit of 9, which pauses creates. "
             "It will be created when the quota is raised and has room"),
        ),
        (
            "kept-for-another", "pods", 10**9,
            ("pods=3, but what is left in quota q (1 of 9) is kept for a request that has waited longer. "
             "It will be created when there is room"),
        ),
        (
            "never-fits", "pods", 0,
            "pods=3, but quota q allows only 9 in total. It can be created only if the quota is raised",
        ),
        (
            "quota", "requests.memory", 0,
            "requests.memory=3, but quota q has 0 of 9 left. It will be created when there is room",
        ),
    ],
)  # fmt: skip
def test_a_note_says_what_is_in_the_way(reason: WaitReason, resource: str, left: int, note: str) -> None:
    """Amounts are formatted like Kubernetes quantities; an overdrawn quota has 0 left."""
    why = Explanation(reason, "q", resource, 3 * 10**9, left, 9 * 10**9, 2, 1.0, None, None)
    assert waiting_note("pods p", why) == f"pods p is waiting: it requests {note} (place 2 in line)."
