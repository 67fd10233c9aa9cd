"""Gangs that keep their room, on random days: the exact server, its events in any order, and one sum as the naive twin.

The sum: all pods that live, and all members that gangs still want, fit the quota at every moment. So no freed slot goes
to anybody else while its gang wants it, and the server never refuses what the engine let in.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backoff_ctrl.engine import (
    Created,
    Demand,
    Gang,
    GivenBack,
    Grant,
    Look,
    Parts,
    Refusal,
    Rejected,
    Request,
    Reservation,
)
from backoff_ctrl.engine.gangs.members import FALL_MAX, LOST_MAX
from tests.kit.engine_machine import seen_of
from tests.kit.engine_twin import Amounts, TwinQuota, TwinRefusal, TwinServer
from tests.kit.examples import examples
from tests.kit.timeline import NS, Timeline

pytestmark = pytest.mark.no_cover

LATE = 0.9
"""Seconds by which a change of a pod is told at the most."""
QUOTA_LATE = 0.04
"""And one of the quota: single creates are held for a little longer than that."""
TICK = 1e-6
"""Times are floats."""
SPANS = (0.0005, 0.003, 0.02, 0.06, 0.15, 0.6, 3.0, 12.0)


@dataclass
class Pod:
    """A pod at the server; ``part`` of ``job``, or of none."""

    amounts: Amounts
    job: Job | None = None
    part: int = 0
    alive: bool = True


@dataclass(eq=False)
class Job:
    """What makes pods: at most ``wanted`` of each part at a time. ``gang`` keeps their room once it is admitted."""

    demands: list[Demand]
    wanted: list[int]
    gang: Gang | None = None
    pods: dict[str, Pod] = field(default_factory=dict)

    def living(self, part: int) -> int:
        """Count the pods of a part that live."""
        return sum(pod.alive and pod.part == part for pod in self.pods.values())

    def missing(self, part: int) -> int:
        """Count the pods that are wanted and do not live."""
        return max(0, self.wanted[part] - self.living(part))


class Day:
    """A server, its controllers, two watches that tell of it, and the engine."""

    def __init__(self, dice: random.Random) -> None:
        """Start with an empty quota."""
        self.dice = dice
        self.server = TwinServer()
        hard = {"cpu": dice.randint(4, 12), "pods": dice.randint(4, 10)}
        self.server.quotas[NS] = {"compute": TwinQuota(hard, {"cpu": 0, "pods": 0})}
        self.count = 0
        self.pods: dict[str, Pod] = {}
        self.falling: list[tuple[float, str]] = []  # pods that have ended, and are still charged
        self.jobs: list[Job] = []
        self.waiting: dict[Request, Job | None] = {}
        self.quota_news: list[tuple[float, TwinQuota]] = []
        self.pod_news: list[tuple[float, str]] = []
        self.lost_at: float | None = None
        self.blind = False
        """The watch of the quota is lost; it can be read."""
        self.hasty = dice.random() < 0.5
        """Pods may end before anybody knew them; then their charges are told before them, as etcd stored them."""
        self.begin(0.0)

    @property
    def quota(self) -> TwinQuota:
        """The quota at the server."""
        return self.server.quotas[NS]["compute"]

    def begin(self, now: float) -> None:
        """Start an engine."""
        self.line = Timeline(seed=self.dice.randrange(100))
        self.line.now = now
        self.quota_news.clear()
        self.pod_news.clear()
        self.lost_at = None
        self.blind = False
        if self.dice.random() < 0.5:
            self.line.controller.ends_told(NS, now, told=True)
        self.line.controller.observe_quota(NS, "compute", seen_of(self.quota), now)
        self.line.watching()

    # -- what comes out

    def advance(self, span: float = 0.0) -> None:
        """Let time pass, and do what the engine says, at once."""
        done = len(self.line.log)
        end = self.line.now + span
        while True:
            self.line.advance()
            while done < len(self.line.log):
                effect = self.line.log[done][1]
                done += 1
                assert not isinstance(effect, GivenBack)
                if isinstance(effect, Look):
                    assert self.blind
                    self.line.controller.observe_quota(NS, "compute", seen_of(self.quota), self.line.now, self.line.now)
                    self.line.controller.gangs_of(NS).looked(self.line.now, readable=True)
                elif isinstance(effect, Refusal):
                    assert effect.reason == "never-fits"
                    self.waiting.pop(effect.request)
                elif isinstance(effect, Grant):
                    job = self.waiting.pop(effect.request, None)
                    if job is not None:
                        job.gang = effect.gang
                        self.jobs.append(job)
                else:
                    demand = effect.request.demand
                    uid = self.create(Pod(dict(demand.amounts)))
                    outcome = Created(stored=uid) if isinstance(uid, str) else Rejected(*uid)
                    if isinstance(uid, str):
                        self.waiting.pop(effect.request)
                    else:
                        assert self.falling or self.blind, "refused by our doing: none has just ended"
                        self.line.now += 0.001
                    self.line.controller.settle(effect, outcome, self.line.now)
            self.check()
            at = self.line.controller.next_deadline()
            if (at is None or at > end) and self.line.now >= end:
                break
            self.line.now = max(self.line.now, end if at is None else min(at, end))

    def check(self) -> None:
        """Add up what lives and what is still wanted."""
        for resource, hard in self.quota.hard.items():
            lives = sum(pod.amounts.get(resource, 0) for pod in self.pods.values() if pod.alive)
            wanted = sum(
                job.missing(part) * demand.amounts.get(resource, 0)
                for job in self.jobs
                for part, demand in enumerate(job.demands)
            )
            assert lives + wanted <= hard, f"{resource}: {lives} live + {wanted} wanted > {hard} at {self.line.now}"

    # -- the server and its controllers

    def create(self, pod: Pod) -> str | TwinRefusal:
        """Create a pod, and return its uid."""
        if (refusal := self.server.create(NS, pod.amounts)) is not None:
            return refusal
        self.count += 1
        uid = f"u{self.count}"
        self.pods[uid] = pod
        self.changed()
        self.pod_news.append((self.line.now, uid))
        return uid

    def changed(self) -> None:
        """Tell of the quota, in time."""
        if self.blind:
            return
        self.quota_news.append((self.line.now, copy.deepcopy(self.quota)))

    def make_a_pod(self) -> None:
        """A Job's controller makes a pod that is missing. It may be refused only for those that have just ended."""
        missing = [(job, part) for job in self.jobs for part in range(len(job.demands)) if job.missing(part)]
        if missing:
            job, part = self.dice.choice(missing)
            pod = Pod(dict(job.demands[part].amounts), job, part)
            uid = self.create(pod)
            if isinstance(uid, str):
                job.pods[uid] = pod
            else:
                assert self.falling

    def end_a_pod(self) -> None:
        """A pod ends; the quota charges it for a while."""
        unknown = () if self.hasty else {uid for _, uid in self.pod_news}
        if alive := [uid for uid, pod in self.pods.items() if pod.alive and uid not in unknown]:
            uid = self.dice.choice(alive)
            self.pods[uid].alive = False
            self.falling.append((self.line.now, uid))
            self.pod_news.append((self.line.now, uid))

    def recount(self) -> None:
        """The quota controller notices an end."""
        if self.falling:
            self.release(self.falling.pop(self.dice.randrange(len(self.falling)))[1])

    def release(self, uid: str) -> None:
        """Charge a pod no more that has ended."""
        pod = self.pods.pop(uid)
        if pod.job is not None:
            pod.job.pods.pop(uid, None)
        self.server.release(NS, pod.amounts)
        self.changed()

    # -- the watches

    def tell_quota(self) -> None:
        """Tell the next state of the quota."""
        if self.quota_news:
            _, state = self.quota_news.pop(0)
            self.line.controller.observe_quota(NS, "compute", seen_of(state), self.line.now)
            self.advance()

    def tell_all_of_the_quota(self) -> None:
        """Let no charge be unknown."""
        while self.quota_news:
            self.tell_quota()

    def tell_pod(self) -> None:
        """Tell the next change of a pod, unless that watch is lost."""
        if self.pod_news and self.lost_at is None:
            self.told(self.pod_news.pop(0)[1])

    def told(self, uid: str) -> None:
        """Tell what has become of a pod: twice now and then."""
        if self.hasty:
            self.tell_all_of_the_quota()
        pod = self.pods.get(uid)
        for _ in range(self.dice.choice((1, 1, 1, 2))):
            if pod is None or not pod.alive:
                self.line.controller.ended(NS, uid, self.line.now)
            elif pod.job is not None and pod.job.gang is not None:
                self.line.controller.gangs_of(pod.job.gang.namespace).appeared(
                    pod.job.gang, uid, Demand(pod.amounts), self.line.now
                )
            self.advance()

    def lose_the_pods(self) -> None:
        """The watch of pods is cut; or it is there again, and has listed."""
        if self.lost_at is None:
            self.lost_at = self.line.now
            self.line.controller.gangs_of(NS).follow_members(self.line.now, told=False)
        else:
            self.lost_at = None
            gone = [uid for _, uid in self.pod_news if uid not in self.pods or not self.pods[uid].alive]
            there = [uid for uid, pod in self.pods.items() if pod.alive]
            self.pod_news.clear()
            for uid in [*gone, *there]:
                self.told(uid)
            self.line.controller.gangs_of(NS).follow_members(self.line.now, told=True)
        self.advance()

    def lose_the_quota(self) -> None:
        """The watch of the quota is cut; or it is there again, and has listed: what came between is not told."""
        if not self.blind and any(job is None for job in self.waiting.values()):
            return  # single creates probe for room that nobody can see, also that of a gang
        self.blind = not self.blind
        if self.blind:
            self.quota_news.clear()
            self.line.controller.watch_lost(self.line.now, NS)
        else:
            self.line.controller.observe_quota(NS, "compute", seen_of(self.quota), self.line.now)
            self.line.controller.watching(self.line.now, NS)
        self.advance()

    # -- who asks

    def submit(self) -> None:
        """A single create joins."""
        if self.blind:
            return
        self.count += 1
        demand = Demand({"cpu": self.dice.randint(0, 3), "pods": 1})
        request = Request(f"r{self.count}", NS, demand, self.dice.choice((0, 0, 3)))
        self.waiting[request] = None
        self.line.controller.submit(request, self.line.now)
        self.advance()

    def submit_job(self) -> None:
        """A Job joins."""
        cpus = self.dice.sample(range(1, 4), self.dice.randint(1, 2))
        demands = [Demand({"cpu": cpu, "pods": 1}) for cpu in cpus]
        wanted = [self.dice.randint(1, 3) for _ in cpus]
        self.reserve(Job(demands, wanted))

    def reserve(self, job: Job) -> None:
        """Let a Job wait."""
        request = self.request(job.demands, job.wanted)
        self.waiting[request] = job
        self.line.controller.of(request.namespace).reserve(request, self.line.now)
        self.advance()

    def request(self, demands: list[Demand], wanted: list[int]) -> Reservation:
        """Describe a gang."""
        self.count += 1
        parts = Parts((demand, count) for demand, count in zip(demands, wanted, strict=True))
        return Reservation(f"g{self.count}", NS, parts, self.dice.choice((0, 0, 3)), keeps=True)

    def resize(self) -> None:
        """A Job wants fewer, as its rest shrinks. Its controller has seen that, and what it made was told."""
        if self.jobs:
            self.tell_all_of_the_quota()
            job = self.dice.choice(self.jobs)
            job.wanted = [self.dice.randint(0, count) for count in job.wanted]
            assert job.gang is not None
            self.line.controller.gangs_of(job.gang.namespace).resize(job.gang, job.wanted, self.line.now)
            self.advance()

    def give_back(self) -> None:
        """A Job is deleted: its pods live on for a while. What was made for it was told."""
        self.tell_all_of_the_quota()
        if self.jobs:
            job = self.jobs.pop(self.dice.randrange(len(self.jobs)))
            assert job.gang is not None
            self.line.controller.gangs_of(job.gang.namespace).give_back(job.gang, self.line.now)
            self.advance()

    def absorb(self) -> None:
        """A Job has grown: what it asked for beside is part of it."""
        equal = [(a, b) for a in self.jobs for b in self.jobs if a is not b and self.keys(b) <= self.keys(a)]
        if equal:
            job, other = self.dice.choice(equal)
            assert job.gang is not None
            assert other.gang is not None
            self.line.controller.gangs_of(job.gang.namespace).absorb(job.gang, other.gang, self.line.now)
            self.jobs.remove(other)
            keys = [demand.key for demand in job.demands]
            to = [keys.index(demand.key) for demand in other.demands]
            for part, number in enumerate(to):
                job.wanted[number] += other.wanted[part]
            for pod in other.pods.values():
                pod.job, pod.part = job, to[pod.part]
            job.pods |= other.pods
            self.advance()

    @staticmethod
    def keys(job: Job) -> set[str]:
        """Return what its parts are known by."""
        return {demand.key for demand in job.demands}

    def restart(self) -> None:
        """Another process takes over: what lives asks again, and adopts its pods; who waits joins again."""
        self.begin(self.line.now)
        waiting, self.waiting = self.waiting, {}
        for job in self.jobs:
            wanted = [max(1, count) for count in job.wanted]
            request = self.request(job.demands, wanted)
            self.line.controller.of(request.namespace).reserve(request, self.line.now, standing=True)
            grants = self.line.controller.advance(self.line.now)
            job.gang = next(e.gang for e in grants if isinstance(e, Grant) and e.request is request)
            self.line.controller.gangs_of(job.gang.namespace).resize(job.gang, job.wanted, self.line.now)
            for uid, pod in job.pods.items():
                if pod.alive:
                    self.line.controller.gangs_of(job.gang.namespace).adopt(
                        job.gang, uid, Demand(pod.amounts), self.line.now
                    )
            self.advance()
        for job_in_line in waiting.values():
            if job_in_line is None:
                self.submit()
            else:
                self.reserve(job_in_line)

    # -- time

    def pass_time(self, span: float) -> None:
        """Let time pass; what would be too late is told."""
        end = self.line.now + span
        while self.line.now < end:
            self.tell_what_is_due()
            due = [at + QUOTA_LATE for at, _ in self.quota_news[:1]]
            due += [at + LATE for at, _ in self.pod_news[:1] if self.lost_at is None]
            alarm = self.line.controller.next_deadline()
            self.advance(max(TICK, min(end, *due, end if alarm is None else alarm) - self.line.now))

    def tell_what_is_due(self) -> None:
        """Tell what has happened too long ago, of either watch first."""
        now = self.line.now
        if self.lost_at is not None and now >= self.lost_at + LOST_MAX - 15:
            self.lose_the_pods()
        while self.falling and self.falling[0][0] + FALL_MAX - 15 <= now:
            self.recount()
        while self.quota_news and self.quota_news[0][0] + QUOTA_LATE <= now + TICK:
            self.tell_quota()
        while self.lost_at is None and self.pod_news and self.pod_news[0][0] + LATE <= now + TICK:
            self.tell_pod()

    def step(self) -> None:
        """Do one thing."""
        things = [
            (self.submit, 3), (self.submit_job, 2), (self.make_a_pod, 10), (self.end_a_pod, 5), (self.recount, 5),
            (self.tell_quota, 10), (self.tell_pod, 10), (self.lose_the_pods, 0.5), (self.lose_the_quota, 0.5),
            (self.resize, 0.7), (self.give_back, 0.4), (self.absorb, 1), (self.restart, 0.3),
            (lambda: self.pass_time(self.dice.choice(SPANS)), 6),
        ]  # fmt: skip
        self.dice.choices([do for do, _ in things], [weight for _, weight in things])[0]()
        self.check()

    def night(self) -> None:
        """All is told: what is free is known exactly. Then all ends, and everybody gets in."""
        self.settle()
        (shown,) = self.line.seen().quotas.values()
        for resource, ceiling in shown.items():
            wanted = sum(
                job.missing(part) * demand.amounts.get(resource, 0)
                for job in self.jobs
                for part, demand in enumerate(job.demands)
            )
            assert ceiling.headroom == ceiling.limited - self.quota.used[resource] - wanted, resource
            assert ceiling.reserved == wanted, "more is kept than is wanted"
        assert not any(gang.lacks for gang in self.line.seen().gangs)
        for _ in range(100):
            while self.jobs:
                self.give_back()
            while any(pod.alive for pod in self.pods.values()):
                self.tell_pod()
                self.end_a_pod()
            self.settle()
            if not (self.waiting or self.pods or self.jobs):
                break
        assert not self.waiting
        (shown,) = self.line.seen().quotas.values()
        assert all(ceiling.reserved == 0 and ceiling.headroom == ceiling.limited for ceiling in shown.values())

    def settle(self) -> None:
        """Let everything be told, and time pass."""
        while self.falling:
            self.recount()
        if self.lost_at is not None:
            self.lose_the_pods()
        if self.blind:
            self.lose_the_quota()
        self.pass_time(2 * LOST_MAX)
        while self.quota_news or self.pod_news:
            self.pass_time(2 * LATE)
        self.pass_time(1)


def play(dice: random.Random, steps: int) -> None:
    """Play a day."""
    day = Day(dice)
    for _ in range(steps):
        day.step()
    day.night()


@settings(max_examples=examples(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(dice=st.randoms(use_true_random=False), steps=st.integers(5, 80))
def test_any_day(dice: random.Random, steps: int) -> None:
    """Found by hypothesis."""
    play(dice, steps)


@pytest.mark.parametrize("block", range(2))
def test_many_random_days_keep_every_room(block: int) -> None:
    """The same ones in every run."""
    for seed in range(block * 100, block * 100 + examples(100)):
        play(random.Random(seed), 30 + seed % 90)
