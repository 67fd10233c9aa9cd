"""What is told of creates that wait: those that wait for long, once they got in, and those that never will."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from backoff_ctrl.engine.explaining import Explanation
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.answers.answer import Answer, status_answer
from backoff_ctrl.k8s.gate.aio import AsyncGate, Creation
from backoff_ctrl.k8s.gate.stories import AGAIN, Happening, Listener, Story, waiting_note
from backoff_ctrl.k8s.replay.virtual_time import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from backoff_ctrl.engine.explaining import WaitReason


@dataclass
class Stage:
    """A namespace of so many pods, on virtual time, whose gate tells its stories."""

    limit: int = 1
    used: int = 0
    asked: int = 1
    status: int = 201
    delay: float = 0.01
    heard: list[tuple[float, Happening, str]] = field(default_factory=list)
    policy: Policy = field(default_factory=lambda: Policy(base=1, cap=4))

    def __post_init__(self) -> None:
        self.gate = AsyncGate(policy=self.policy, rng=random.Random(7))
        self.gate.desk.on_story = Listener(self.hear)

    def hear(self, story: Story) -> None:
        now = asyncio.get_running_loop().time()
        self.heard.append((round(now, 1), story.happening, story.note()))

    async def send(self, body: dict[str, Any]) -> Answer:
        """Answer as a quota does."""
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

    def told(self, happening: Happening) -> list[str]:
        return [note for _, each, note in self.heard if each is happening]


def play(stage: Stage, run: Callable[[], Coroutine[Any, Any, Any]]) -> Stage:
    async def main() -> None:
        await run()
        await stage.gate.aclose()

    run_virtual(main())
    return stage


def test_a_short_wait_is_no_story() -> None:
    """Less than a second is how a full quota works."""
    stage = Stage(used=1, policy=Policy(base=0.2, cap=0.2))

    async def run() -> None:
        task = stage.create()
        await asyncio.sleep(0.5)
        stage.used = 0
        await task

    assert play(stage, run).heard == []


def test_a_longer_wait_is_told_and_so_is_its_end() -> None:
    """Once it has waited a second; then how long it has waited in all."""
    stage = Stage(used=1)

    async def run() -> None:
        task = stage.create()
        await asyncio.sleep(10)
        stage.used = 0
        await task

    play(stage, run)
    (began, first, note), (ended, last, end) = stage.heard
    assert (first, last) == (Happening.WAITS, Happening.ADMITTED)
    assert 1 <= began <= 4
    assert note == "pods web-* waits: it asks pods=1, quota q has 0 of 1 left; place 1 in line"
    assert 10 <= ended <= 15
    assert end == f"pods web-* was created after waiting {ended:.1f} s for pods of quota q"


def test_a_quota_that_is_learned_late_is_told_soon() -> None:
    """Nobody had been refused yet when the waiters were first looked at: that answer stands for no later look."""
    stage = Stage(used=1, delay=1.5)

    async def run() -> None:
        await asyncio.gather(*(stage.create(timeout=6) for _ in range(60)), return_exceptions=True)

    assert len(play(stage, run).told(Happening.WAITS)) == 60
    assert max(at for at, _, _ in stage.heard) <= 5


def test_a_namespace_of_many_kinds_does_not_silence_another() -> None:
    """Each has its own share of questions."""
    stage = Stage(used=1)

    def body(memory: int) -> dict[str, Any]:
        resources = {"requests": {"memory": str(memory)}}
        spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
        return {"kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}

    async def run() -> None:
        crowd = [
            asyncio.ensure_future(
                stage.gate.create(Creation("http://s", "me", "crowd", "pods", body(1 + n), timeout=15), stage)
            )
            for n in range(300)
        ]
        await asyncio.sleep(1.7)
        lone = stage.create(timeout=10)
        await asyncio.gather(lone, *crowd, return_exceptions=True)

    play(stage, run)
    assert [round(at - 1.7) for at, _, note in stage.heard if "pods web-" in note] == [1]


def test_what_is_over_leaves_nothing_behind() -> None:
    """Not even the alarm that would have told of it again, minutes later."""
    stage = Stage(used=1)

    async def run() -> None:
        await asyncio.gather(*(stage.create(timeout=5) for _ in range(20)), return_exceptions=True)
        assert len(stage.told(Happening.WAITS)) == 20
        loop: Any = asyncio.get_running_loop()
        assert [alarm for alarm in loop._scheduled if not alarm.cancelled() and alarm.when() > loop.time() + 60] == []

    play(stage, run)


def test_each_waiter_knows_its_place() -> None:
    """All ask the same, and each has its own note; the first may be gone to ask the server when others are told."""
    stage = Stage(used=1)

    async def run() -> None:
        tasks = [stage.create(f"web{number}") for number in range(5)]
        await asyncio.sleep(20)
        stage.used, stage.limit = 0, 5
        await asyncio.gather(*tasks)

    notes = play(stage, run).told(Happening.WAITS)
    places = {int(note[len("pods web")]): int(note.split()[-3]) for note in notes}
    assert sorted(places) == [0, 1, 2, 3, 4]
    assert all(place in {number, number + 1} and place for number, place in places.items())
    assert len(stage.told(Happening.ADMITTED)) == 5


def test_what_waits_for_long_is_told_again() -> None:
    """Every five minutes: a series of events ends after six, and the server forgets events after an hour."""
    stage = Stage(used=1)

    async def run() -> None:
        task = stage.create(timeout=2 * AGAIN + 50)
        await asyncio.gather(task, return_exceptions=True)

    times = [at for at, _, _ in play(stage, run).heard]
    assert len(times) == 3
    assert all(AGAIN <= later - at < 360 for at, later in itertools.pairwise(times))


@pytest.mark.parametrize("end", ["timed out", "cancelled", "refused"])
def test_a_wait_that_ends_otherwise_is_no_admission(end: str) -> None:
    """Only a create that was answered with success has got in; and nothing is told of it any more."""
    stage = Stage(used=1)

    async def run() -> None:
        task = stage.create(timeout=10 if end == "timed out" else None)
        await asyncio.sleep(8)
        if end == "cancelled":
            task.cancel()
        if end == "refused":
            stage.used, stage.status = 0, 403
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(3 * AGAIN)

    play(stage, run)
    assert [happening for _, happening, _ in stage.heard] == [Happening.WAITS]


def test_a_refusal_for_good_is_told() -> None:
    """With the engine's own sentence; that the create had waited is no condition."""
    stage = Stage(limit=1, asked=2)

    async def run() -> None:
        answers = await asyncio.gather(stage.create(), return_exceptions=True)
        assert len(answers) == 1

    notes = play(stage, run).told(Happening.NEVER_FITS)
    assert notes == ["pods web-* was not created: it asks pods=2, but quota q allows 1 in all"]


def test_nobody_listens_and_nothing_is_told() -> None:
    """The default: no alarm is set for it either."""
    stage = Stage(used=1)
    stage.gate.desk.on_story = None

    async def run() -> None:
        task = stage.create()
        await asyncio.sleep(10)
        stage.used = 0
        await task

    assert play(stage, run).heard == []


def test_a_listener_that_fails_harms_no_create(caplog: pytest.LogCaptureFixture) -> None:
    """It is said once."""
    stage = Stage(used=1)

    def fail(story: Story) -> None:
        raise RuntimeError("not today")

    stage.gate.desk.on_story = Listener(fail)

    async def run() -> None:
        tasks = [stage.create() for _ in range(3)]
        await asyncio.sleep(10)
        stage.used, stage.limit = 0, 3
        assert [answer.status for answer in await asyncio.gather(*tasks)] == [201] * 3

    play(stage, run)
    assert len([message for message in caplog.messages if "reporting on waiting creates failed" in message]) == 1
    assert stage.gate.counts.failed_open == 0


def test_ten_thousand_waiters_ask_the_engine_a_handful_of_times() -> None:
    """An answer costs O(waiters): those that ask the same share it, and all are told all the same."""
    stage, asked = Stage(used=1), 0
    count = 10_000
    told: list[Story] = []
    stage.gate.desk.on_story = Listener(told.append)
    explain = stage.gate.desk.explain

    def counted(request: Any) -> Any:
        nonlocal asked
        asked += 1
        return explain(request)

    stage.gate.desk.explain = counted  # type: ignore[method-assign]  # the real one, with a tally

    async def run() -> None:
        tasks = [stage.create(timeout=20) for _ in range(count)]
        await asyncio.sleep(0)
        for task in tasks:
            assert not task.done()
        await asyncio.gather(*tasks, return_exceptions=True)

    play(stage, run)
    assert len(told) == count
    assert asked <= 200


@pytest.mark.parametrize(
    ("reason", "resource", "left", "note"),
    [
        ("quota", "pods", 10**9, "it asks pods=3, quota q has 1 of 9 left"),
        ("quota", "pods", -(10**9), "it asks pods=3, quota q has 0 of 9 left"),
        ("paused", "pods", 0, "it asks pods=3, quota q has 0 of 9 left, which stops everything"),
        ("kept-for-another", "pods", 0, "it asks pods=3, quota q has 0 of 9 left, kept for one that has waited longer"),
        ("never-fits", "pods", 0, "it asks pods=3, quota q has 0 of 9 left, and can never hold it"),
        ("quota", "requests.memory", 0, "it asks requests.memory=3, quota q has 0 of 9 left"),
    ],
)
def test_a_note_says_what_is_in_the_way(reason: WaitReason, resource: str, left: int, note: str) -> None:
    """Amounts as Kubernetes writes them; what is overdrawn has nothing left."""
    why = Explanation(reason, "q", resource, 3 * 10**9, left, 9 * 10**9, 2, 1.0, None, None)
    assert waiting_note("pods p", why) == f"pods p waits: {note}; place 2 in line"
