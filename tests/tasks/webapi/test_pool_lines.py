"""Any history of a pool, beside a naive one: who has a token at each moment is exactly who should have one."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.k8s.lab.replay.virtual_time import run_virtual
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskMetadata
from backoff_ctrl.k8s.tasks.services.webapi.pools import PoolLimits, Pools

if TYPE_CHECKING:
    from collections.abc import Iterable

AGE_STEP = 30.0
LIMITS = st.builds(PoolLimits, st.integers(0, 6), st.none() | st.integers(0, 4), st.none() | st.integers(0, 3))
NAMES = st.sampled_from(["a", "b", "c"])


class Ask(NamedTuple):
    namespace: str
    project: str
    priority: int


class Adopt(NamedTuple):
    namespace: str
    project: str


class Release(NamedTuple):
    which: int


class Wait(NamedTuple):
    seconds: float


STEPS = st.one_of(
    st.builds(Ask, NAMES, NAMES | st.just(""), st.sampled_from([0, 0, 1, 3])),
    st.builds(Ask, NAMES, NAMES | st.just(""), st.sampled_from([0, 0, 1, 3])),
    st.builds(Adopt, NAMES, NAMES),
    st.builds(Release, st.integers(0, 40)),
    st.builds(Release, st.integers(0, 40)),
    st.builds(Wait, st.sampled_from([1.0, 20.0, 70.0])),
    LIMITS,
)


@dataclass
class Naive:
    """A pool as one would write it in an afternoon: lists that are gone over from the front, again and again."""

    limits: PoolLimits
    having: dict[str, TaskMetadata] = field(default_factory=dict)
    line: list[tuple[float, int, TaskMetadata]] = field(default_factory=list)
    count: int = 0

    def ask(self, task: TaskMetadata, now: float) -> None:
        self.count += 1
        self.line.append((now - task.priority * AGE_STEP, self.count, task))
        self.line.sort(key=lambda each: each[:2])

    def release(self, uid: str) -> None:
        self.having.pop(uid, None)
        self.line = [each for each in self.line if each[2].uid != uid]

    def room_for(self, task: TaskMetadata) -> bool:
        limits, having = self.limits, self.having.values()
        same_project = sum(each.project == task.project for each in having)
        same_namespace = sum(each.namespace == task.namespace for each in having)
        return (
            len(self.having) < limits.total
            and (limits.project is None or same_project < limits.project)
            and (limits.namespace is None or same_namespace < limits.namespace)
        )

    def ceilings(self) -> dict[str, tuple[int, int]]:
        """Return what is used and allowed, by resource: of all who have or want a token."""
        found = {"tokens": (len(self.having), self.limits.total)}
        for task in (*self.having.values(), *(each[2] for each in self.line)):
            project = f"tokens.project/{task.project}" if task.project else "tokens.project"
            if self.limits.project is not None:
                found[project] = (sum(a.project == task.project for a in self.having.values()), self.limits.project)
            if self.limits.namespace is not None:
                used = sum(a.namespace == task.namespace for a in self.having.values())
                found[f"tokens.namespace/{task.namespace}"] = used, self.limits.namespace
        return found

    def grant(self) -> None:
        for each in list(self.line):
            if self.room_for(each[2]):
                self.line.remove(each)
                self.having[each[2].uid] = each[2]


def ceilings(pools: Pools) -> dict[str, tuple[int, int]]:
    found = pools.ledger.look(lambda engine, now: engine.namespace("pool.any", now))
    assert found is not None
    return {name: (each.used // NANO, each.limited // NANO) for name, each in found.quotas["pool"].items()}


async def played(limits: PoolLimits, steps: Iterable[object]) -> None:
    loop = asyncio.get_running_loop()
    pools, naive, told = Pools(), Naive(limits), Counter[str]()
    tasks: list[TaskMetadata] = []
    at_once: set[str] = set()
    pools.limit("any", "default", limits)
    for number, step in enumerate(steps):
        match step:
            case Ask(namespace, project, priority):
                task = TaskMetadata(namespace, "t", f"u{number}", 0, f"t{number}", project=project, priority=priority)
                tasks.append(task)
                for _ in range(2):
                    pools.ask("any", "default", (task.uid, 0), task, naive.limits, partial(told.update, [task.uid]))
                if pools.has((task.uid, 0)):
                    at_once.add(task.uid)
                naive.ask(task, loop.time())
            case Adopt(namespace, project):
                task = TaskMetadata(namespace, "t", f"u{number}", 0, f"t{number}", project=project)
                tasks.append(task)
                for _ in range(2):
                    pools.adopt("any", "default", (task.uid, 0), task)
                naive.having[task.uid] = task
                at_once.add(task.uid)
            case Release(which):
                for _ in range(2 if tasks else 0):
                    pools.release((tasks[which % len(tasks)].uid, 0))
                if tasks:
                    naive.release(tasks[which % len(tasks)].uid)
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case PoolLimits():
                naive.limits = step
                pools.limit("any", "default", step)
        naive.grant()
        having = {task.uid for task in tasks if pools.has((task.uid, 0))}
        assert having == naive.having.keys(), step
        places = [wait.place for _, _, task in naive.line if (wait := pools.wait((task.uid, 0))) is not None]
        assert places == [*range(1, len(naive.line) + 1)]
        assert ceilings(pools) == naive.ceilings()
        await asyncio.sleep(0)
        assert all(told[uid] == (uid not in at_once) for uid in having)
    await pools.aclose()


@given(LIMITS, st.lists(STEPS, max_size=60))
def test_exactly_those_have_a_token_whom_a_naive_pool_would_give_one(limits: PoolLimits, steps: list[object]) -> None:
    """No limit is passed, nobody waits who fits, and the order is by priority with aging, then by arrival."""
    run_virtual(played(limits, steps))
