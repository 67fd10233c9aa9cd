"""Days of a namespace in virtual time: single creates, Jobs whose gangs keep their room, strangers, and the engine.

The server and its recounts are those of ``quota_server``. A ``World`` plays one day by ``Rules``, and counts by the
truth what the engine must not do, and what it should not:

- **gave away**: it let in a create or a gang that takes the room of a member which a gang still wants;
- **over**: it let in what does not fit, where no member is wanted;
- **idle**: somebody waits who would fit.

Charges of strangers of which the quota's watch has not told yet are no fault of the engine, nor is what it lets in
while that watch is cut, nor a probe. Where strangers are about or recounts lie no engine can do without faults, so the
counts of many days are compared (``tests/engine/days``). Two days of one seed and equal rules are the same.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Final

from backoff_ctrl.engine import (
    Created,
    Demand,
    Gang,
    GivenBack,
    Grant,
    Look,
    ObservedQuota,
    Parts,
    Refusal,
    Rejected,
    Request,
    Reservation,
    Ticket,
)
from tests.kit.quota_server import QUOTA, Agenda, Amounts, QuotaServer, StoredPod, Watch
from tests.kit.timeline import NS, Timeline

DAY: Final = 30.0
"""Seconds in which work is submitted."""
EVENING: Final = 5.0
"""Seconds more, in which it goes on."""
JOBS_MAX: Final = 3
"""Jobs at a time that wait or run."""
READ_SENT, READ_TAKES = 0.005, 0.003
"""Seconds until a read of the quota reaches the server, and until its answer is there."""
LIST_TAKES: Final = 0.004
"""Seconds that the list takes with which a watch begins."""
MEMBER_LIVES: Final = (0.02, 0.2, 1.0, 3.0)
RETRY_FIRST, RETRY_MAX = 0.05, 1.0
"""Seconds after which a Job's controller tries a refused pod again: twice as long each time."""


@dataclass(frozen=True)
class Rules:
    """What happens on a day beside creates and Jobs."""

    strangers: bool = True
    """Others create pods in the namespace; who they are the engine does not know."""
    cuts: bool = True
    """Both watches are cut now and then."""
    lies: bool = True
    """The quota controller recounts from a late cache."""
    late_pods: float = 0.05
    """Share of the changes of pods that are told up to 0.85 s late, rather than 0.03 s."""
    shapes: int = 2
    """Different sizes of pods: with few of them, one pod's charge is easily taken for another's."""


@dataclass(eq=False)
class Job:
    """A Job with room for ``wanted`` pods at a time, and ``left`` pods to complete."""

    amounts: Amounts
    wanted: int
    left: int
    gang: Gang | None = None
    living: int = 0
    retry_at: float = 0.0
    retry_after: float = RETRY_FIRST

    @property
    def missing(self) -> int:
        """Count the pods that are wanted and do not live: its controller makes no more than are left to complete."""
        return max(0, min(self.wanted, self.left) - self.living)


@dataclass(frozen=True)
class PodNews:
    """A pod that was stored, or has ended."""

    pod: StoredPod
    ended: bool


@dataclass(frozen=True)
class QuotaNews:
    """A state of the quota, and the server's version then."""

    seen: ObservedQuota
    version: int


class World:
    """One day. After ``run``, ``counts`` and ``idle`` say what the engine did."""

    def __init__(self, seed: int, rules: Rules) -> None:
        """Start with an empty quota that is watched."""
        self.rules = rules
        self.dice = dice = random.Random(seed)
        self.line = Timeline(seed=1)
        self.controller = self.line.controller
        self.agenda = Agenda()
        hard = {"cpu": dice.randint(8, 16), "pods": dice.randint(6, 12), "mem": dice.randint(10, 30)}
        self.server = QuotaServer(self.agenda, dice, hard, self, lies=rules.lies)
        self.shapes = [{"cpu": dice.randint(1, 3), "pods": 1, "mem": dice.randint(1, 4)} for _ in range(rules.shapes)]
        self.quota_watch = Watch(self.agenda, self.tell_quota)
        self.pod_watch = Watch(self.agenda, self.tell_pod)
        self.jobs: list[Job] = []
        self.job_of: dict[str, Job] = {}
        self.waiting: dict[Request | Reservation, Job | None] = {}
        self.flying: dict[Ticket, Amounts] = {}
        self.untold: list[tuple[int, Amounts]] = []
        """Strangers' charges that the quota's watch has not told yet, by the server's version."""
        self.number = 0
        self.counts: Counter[str] = Counter()
        self.idle = 0.0
        """Seconds in which somebody waited who would have fitted."""
        self._idle_since: float | None = None
        self._begin()

    def _begin(self) -> None:
        self.controller.ends_told(NS, 0.0, told=True)
        self.controller.observe_quota(NS, QUOTA, self.seen(), 0.0)
        self.line.watching(NS)
        self.agenda.at(0.01, self.submit)
        self.agenda.at(0.05, self.submit_job)
        self.agenda.at(0.02, self.make_members)
        if self.rules.strangers:
            self.agenda.at(0.3, self.stranger_creates)
        if self.rules.cuts:
            self.agenda.at(self.dice.uniform(1, 6), self.cut_quota)
            self.agenda.at(self.dice.uniform(1, 6), self.cut_pods)
        self.agenda.at(0.05, self.server.recount)

    def run(self) -> World:
        """Play the day, stopping at each alarm of the engine; return itself."""
        while (then := min(self.agenda.next(), self._alarm())) <= DAY + EVENING:
            if then < self.agenda.next():
                self.agenda.now = max(self.agenda.now, then)
                self.counts["alarms"] += 1
                self.go()
            else:
                self.agenda.step()
        return self

    def _alarm(self) -> float:
        alarm = self.controller.next_deadline()
        return float("inf") if alarm is None else alarm

    @property
    def now(self) -> float:
        """The time."""
        return self.agenda.now

    # -- the watches

    def seen(self, recounted: frozenset[str] = frozenset()) -> ObservedQuota:
        """Return the quota as it is at the server."""
        hard = dict(self.server.hard)
        return ObservedQuota(hard, hard, dict(self.server.used), recounted=recounted)

    def quota_changed(self, recounted: frozenset[str]) -> None:
        """Let the quota's watch tell of its state: 0.5 to 6 ms later, and 40 ms at the most."""
        if self.quota_watch.up:
            delay = self.dice.uniform(0.0005, 0.006) if self.dice.random() > 0.03 else self.dice.uniform(0, 0.04)
            self.quota_watch.add(QuotaNews(self.seen(recounted), self.server.version), delay)

    def tell_quota(self, news: QuotaNews) -> None:
        """Tell the engine a state of the quota."""
        self._has_told(news.version)
        self.controller.observe_quota(NS, QUOTA, news.seen, self.now)
        self.go()

    def _has_told(self, version: int) -> None:
        self.untold = [each for each in self.untold if each[0] > version]

    def pod_changed(self, pod: StoredPod, *, ended: bool) -> None:
        """Let the pods' watch tell of a pod: 1 to 30 ms later, and 0.85 s at the most."""
        on_time = self.dice.random() > self.rules.late_pods
        delay = self.dice.uniform(0.001, 0.03) if on_time else self.dice.uniform(0, 0.85)
        self.pod_watch.add(PodNews(pod, ended), delay)

    def tell_pod(self, news: PodNews) -> None:
        """Tell the engine of a pod: that it has ended, or that it is a gang's and lives."""
        uid = news.pod.uid
        job = self.job_of.get(uid)
        if news.ended:
            self.controller.ended(NS, uid, self.now)
        elif news.pod.alive and job is not None and job.gang is not None:
            self.controller.gangs_of(NS).appeared(job.gang, uid, Demand(news.pod.amounts), self.now)
        self.go()

    def cut_quota(self) -> None:
        """Cut the quota's watch, or begin to list with which it is there again."""
        if self.quota_watch.up:
            self.counts["cuts"] += 1
            self.quota_watch.cut()
            self.quota_watch.news.clear()  # the list has the newest state alone
            self.controller.watch_lost(self.now, NS)
            self.agenda.later(self.dice.choice((0.05, 0.3, 2.0)), self.cut_quota)
        else:
            listed = QuotaNews(self.seen(), self.server.version)
            self.agenda.later(LIST_TAKES, lambda: self.resume_quota(listed))
            self.agenda.later(self.dice.uniform(4, 12), self.cut_quota)
        self.go()

    def resume_quota(self, listed: QuotaNews) -> None:
        """Tell the list with which the quota's watch is there again, and then what has changed since."""
        self.quota_watch.resume()
        self._has_told(listed.version)
        self.controller.observe_quota(NS, QUOTA, listed.seen, self.now)
        self.controller.watching(self.now, NS)
        self.go()
        if self.server.version > listed.version:
            self.quota_changed(frozenset())

    def cut_pods(self) -> None:
        """Cut the pods' watch, or have it back: it tells at once what was missed."""
        if self.pod_watch.up:
            self.counts["cuts"] += 1
            self.pod_watch.cut()
            self._follow_pods(told=False)
            self.agenda.later(self.dice.choice((0.05, 0.5, 3.0)), self.cut_pods)
        else:
            for news in self.pod_watch.resume():
                self.tell_pod(news)
            self._follow_pods(told=True)
            self.agenda.later(self.dice.uniform(4, 12), self.cut_pods)
        self.go()

    def _follow_pods(self, *, told: bool) -> None:
        self.controller.gangs_of(NS).follow_members(self.now, told=told)
        self.controller.ends_told(NS, self.now, told=told)

    # -- who asks

    def _new_id(self, kind: str) -> str:
        self.number += 1
        return f"{kind}{self.number}"

    def submit(self) -> None:
        """A single create joins the line: three a second."""
        if self.now < DAY:
            self.agenda.later(self.dice.expovariate(3.0), self.submit)
        request = Request(self._new_id("r"), NS, Demand(self.dice.choice(self.shapes)))
        self.waiting[request] = None
        self.controller.submit(request, self.now)
        self.go()

    def submit_job(self) -> None:
        """A Job joins the line."""
        if self.now < DAY:
            self.agenda.later(self.dice.uniform(1.0, 4.0), self.submit_job)
        if len(self.jobs) + sum(job is not None for job in self.waiting.values()) >= JOBS_MAX:
            return
        job = Job(self.dice.choice(self.shapes), self.dice.randint(1, 3), self.dice.randint(3, 10))
        parts = Parts([(Demand(job.amounts), job.wanted)])
        request = Reservation(self._new_id("g"), NS, parts, keeps=True)
        self.waiting[request] = job
        self.controller.of(NS).reserve(request, self.now)
        self.go()

    def make_members(self) -> None:
        """The Jobs' controller makes pods that are missing: some of them soon, some at its next turn."""
        self.agenda.later(self.dice.choice((0.003, 0.01, 0.05)), self.make_members)
        for job in self.jobs:
            if job.missing and self.now >= job.retry_at and self.dice.random() >= 0.5:
                self.make_member(job)
                self.look_for_idle()

    def make_member(self, job: Job) -> None:
        """Create one pod of a Job."""
        if self.server.charge(job.amounts) is not None:
            self.counts["member refused"] += 1
            job.retry_at = self.now + job.retry_after
            job.retry_after = min(RETRY_MAX, job.retry_after * 2)
            return
        uid = self._new_id("u")
        self.job_of[uid] = job
        job.living += 1
        job.retry_after = RETRY_FIRST
        pod = self.server.store(uid, job.amounts, ours=True)
        lives = self.dice.choice(MEMBER_LIVES) * self.dice.uniform(0.3, 1.5)
        self.agenda.later(lives, lambda: self.end_member(pod, job))

    def end_member(self, pod: StoredPod, job: Job) -> None:
        """A Job's pod completes. Where fewer are left than it wants, it wants fewer a moment later."""
        self.server.end(pod)
        job.living -= 1
        job.left -= 1
        if job in self.jobs and job.left < job.wanted:
            self.agenda.later(self.dice.uniform(0.001, 0.1), lambda: self.shrink(job))
        self.look_for_idle()

    def shrink(self, job: Job) -> None:
        """A Job wants no more pods at a time than are left; it is over when none is."""
        if job not in self.jobs:
            return
        assert job.gang is not None
        job.wanted = max(0, min(job.wanted, job.left))
        if job.wanted:
            self.controller.gangs_of(NS).resize(job.gang, [job.wanted], self.now)
        else:
            self.jobs.remove(job)
            self.controller.gangs_of(NS).give_back(job.gang, self.now)
        self.go()

    def stranger_creates(self) -> None:
        """Another client creates a pod, if the server lets it: three in two seconds."""
        if self.now < DAY:
            self.agenda.later(self.dice.expovariate(1.5), self.stranger_creates)
        amounts = self.dice.choice(self.shapes)
        if self.server.charge(amounts) is None:
            self.untold.append((self.server.version, amounts))
            self.counts["strangers"] += 1
            pod = self.server.store(self._new_id("u"), amounts, ours=False)
            self.agenda.later(self.dice.expovariate(0.7), lambda: self.server.end(pod))
        self.look_for_idle()

    # -- what the engine wants

    def go(self) -> None:
        """Let the engine act, and do what it says."""
        self.line.now = self.now
        before = self.told_and_wanted()
        effects = self.line.advance()
        self.line.log.clear()
        for effect in effects:
            match effect:
                case Look():
                    self.agenda.later(READ_SENT, self.read_quota)
                case Grant():
                    job = self.waiting.pop(effect.request)
                    assert job is not None
                    job.gang = effect.gang
                    self.jobs.append(job)
                    self.counts["granted"] += 1
                    before = self.judge(before, gang=True)
                case Ticket():
                    self.send(effect)
                    before = self.judge(before, probe=effect.probe)
                case Refusal():
                    self.waiting.pop(effect.request)
                    self.counts["never fits"] += 1
                case GivenBack():
                    self.counts["given back"] += 1
        self.look_for_idle()

    def read_quota(self) -> None:
        """Read the quota: what the answer says is of this moment."""
        sent, seen = self.now, self.seen()

        def answer() -> None:
            if not self.quota_watch.up:
                self.controller.observe_quota(NS, QUOTA, seen, self.now, sent)
            self.controller.gangs_of(NS).looked(self.now, readable=True)
            self.go()

        self.agenda.later(READ_TAKES, answer)

    def send(self, ticket: Ticket) -> None:
        """Send a create, which arrives 0.5 to 4 ms later."""
        self.flying[ticket] = dict(ticket.request.demand.amounts)
        self.counts["sent"] += 1
        self.counts["probes"] += ticket.probe
        self.agenda.later(self.dice.uniform(0.0005, 0.004), lambda: self.arrive(ticket))

    def arrive(self, ticket: Ticket) -> None:
        """Let the server decide a create. Its 201 mostly comes after its charge was told: 36 ms later at the most."""
        refusal = self.server.charge(self.flying[ticket])
        if refusal is not None:
            self.counts["refused"] += 1
            self.agenda.later(self.dice.uniform(0.001, 0.004), lambda: self.answer(ticket, refusal))
            return
        pod = self.server.store(self._new_id("u"), self.flying.pop(ticket), ours=True)
        self.agenda.later(0.02 + self.dice.expovariate(1.0), lambda: self.server.end(pod))
        delay = self.dice.uniform(0.001, 0.006) if self.dice.random() > 0.02 else self.dice.uniform(0, 0.036)
        self.agenda.later(delay, lambda: self.answer(ticket, Created(stored=pod.uid)))

    def answer(self, ticket: Ticket, outcome: Created | Rejected) -> None:
        """Tell the engine what became of a create."""
        if isinstance(outcome, Created):
            self.waiting.pop(ticket.request)
            self.counts["created"] += 1
        else:
            del self.flying[ticket]
        self.controller.settle(ticket, outcome, self.now)
        self.go()

    # -- the truth

    def wanted(self) -> Amounts:
        """Add up what is on its way to the server, and the members that gangs still want."""
        total = dict.fromkeys(self.server.hard, 0)
        wanted = [(amounts, 1) for amounts in self.flying.values()] + [(job.amounts, job.missing) for job in self.jobs]
        for amounts, count in wanted:
            for each, amount in amounts.items():
                total[each] += count * amount
        return total

    def told_and_wanted(self) -> Amounts:
        """Add up what lives and what is wanted, without strangers' charges that are not told yet."""
        total, wanted = self.server.living(), self.wanted()
        for each in total:
            total[each] += wanted[each] - sum(amounts[each] for _, amounts in self.untold)
        return total

    def judge(self, before: Amounts, *, gang: bool = False, probe: bool = False) -> Amounts:
        """Count a create or a gang that was let in and does not fit; return what lives and is wanted now."""
        now = self.told_and_wanted()
        if not probe and any(now[each] > hard >= before[each] for each, hard in self.server.hard.items()):
            wanted = gang or any(job.missing for job in self.jobs)
            blind = "" if self.quota_watch.up else ", blind"
            self.counts[("gave away" if wanted else "over") + blind] += 1
        return now

    def look_for_idle(self) -> None:
        """Note whether somebody who waits would fit by the truth. Nobody can tell while the watch is cut."""
        fits = self.quota_watch.up and self.now <= DAY and self._somebody_fits()
        if fits and self._idle_since is None:
            self._idle_since = self.now
        elif not fits and self._idle_since is not None:
            self.idle += self.now - self._idle_since
            self._idle_since = None

    def _somebody_fits(self) -> bool:
        wanted = self.wanted()
        free = {each: hard - self.server.used[each] - wanted[each] for each, hard in self.server.hard.items()}
        return any(
            request.state == "waiting" and all(amount <= free[each] for each, amount in request.demand.amounts.items())
            for request in self.waiting
        )
