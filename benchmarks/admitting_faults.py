"""``python -m benchmarks.admitting_faults --minutes 30 --seed 1``: Jobs that wait, while everything around them fails.

A real control plane, two replicas of ``backoff-ctrl operator``, and two namespaces with Jobs of all shapes whose pods
end, fail and are deleted. Meanwhile, at random: the leader is killed, ended politely or stopped for longer than its
lease; its connections are cut; the Lease is deleted; the API server restarts. In ``calm`` nothing else takes room, so
that the Job controller must never be refused. In ``wild`` quotas are edited and deleted, foreign pods take room, and
users suspend, resume and release Jobs.

Exits with 1 if a promise was broken: a Job let in twice or forgotten, room kept for what is gone, a refusal in
``calm``, a Job touched that does not ask for it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiohttp

from backoff_ctrl.k8s.workloads.admitting.kinds import (
    ADMITTED,
    JOB,
    MIN_PARALLELISM,
    STAY_SUSPENDED,
    WAIT,
    noted_at,
    subject_of,
)
from tests.cluster.admitting.jobs_at_work import BATCH, Jobs, job
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import wanted
from tests.cluster.objects import made, of_core, of_group
from tests.cluster.operating.replicas import LEADS, Replica, begin
from tests.cluster.talking import MERGE, Api
from tests.monitoring.prometheus.relay import Relay

JSON = dict[str, Any]

CPU: Final = 10
LIVING: Final = 25
"""Jobs of a namespace that have not ended, at most."""
POD_SECONDS: Final = (0.3, 4.0)
FAILS: Final = 0.08
LEASE: Final = "backoff-ctrl-operator"
DRAIN: Final = 240.0
"""Seconds until all Jobs must have ended once nothing fails any more: a Job controller may pause for a minute."""
SPELL: Final = 60.0
"""Seconds between two lines of progress."""


@dataclass(slots=True)
class Seen:
    """What is known of one Job."""

    name: str
    asks: bool
    admitted: set[str] = field(default_factory=set)
    """When and with what, as its annotation ``admitted`` says: one for each time that it was let in."""
    again: int = 0
    """How often its user asked for it to be let in again."""
    ended: bool = False
    gone: bool = False
    body: JSON = field(default_factory=dict)


def is_held(body: JSON) -> bool:
    return STAY_SUSPENDED in body["metadata"].get("annotations", {})


class Room:
    """One namespace: its Jobs, its pods, and who works on them."""

    def __init__(self, api: Api, namespace: str, chosen: random.Random, *, wild: bool) -> None:
        self.jobs = Jobs(api, namespace)
        self.wild = wild
        self.seen: dict[str, Seen] = {}  # by uid
        self.pods: dict[str, JSON] = {}  # living ones, by uid
        self.broken: list[str] = []
        self.refused: dict[str, tuple[dict[str, int], JSON]] = {}
        """Events of refused creates by uid, and how many pods what had been let in by then had, or would still get."""
        self._succeeded: defaultdict[str, set[str]] = defaultdict(set)
        self.done: Counter[str] = Counter()
        self._api = api
        self._chosen = chosen
        self._number = 0
        self._ending: set[str] = set()

    # -- what happens ---------

    async def follow(
        self, path: str, take: Callable[[str, JSON], None], list_taken: Callable[[set[str]], None]
    ) -> None:
        """List and watch without end, through restarts of the server."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, AssertionError, ValueError):
                found = made(await self._api.get(path))
                for body in found["items"]:
                    take("ADDED", body)
                list_taken({body["metadata"]["uid"] for body in found["items"]})
                async with self._api.watch(path, {"resourceVersion": found["metadata"]["resourceVersion"]}) as events:
                    async for event in events:
                        if event["type"] == "ERROR":
                            break
                        take(event["type"], event["object"])
            await asyncio.sleep(0.2)

    def job_seen(self, change: str, body: JSON) -> None:
        metadata = body["metadata"]
        asks = metadata.get("labels", {}).get(WAIT) == "true"
        seen = self.seen.setdefault(metadata["uid"], Seen(metadata["name"], asks))
        seen.body, seen.gone = body, change == "DELETED"
        seen.ended = seen.ended or JOB.has_ended(body)
        notes = metadata.get("annotations", {})
        if ADMITTED in notes:
            noted = noted_at(body, ADMITTED)
            seen.admitted.add(f"{noted.get('at')} {noted.get('gang') or noted.get('by')}")
        if len(seen.admitted) > 1 + seen.again:
            self.broken.append(f"{seen.name} was let in {len(seen.admitted)} times: {sorted(seen.admitted)}")
        if not asks and any(note.startswith("backoff-ctrl.dev/") for note in notes):
            self.broken.append(f"{seen.name} does not ask, and was touched: {notes}")

    def jobs_listed(self, uids: set[str]) -> None:
        for uid, seen in self.seen.items():
            seen.gone = seen.gone or uid not in uids

    def pod_seen(self, change: str, pod: JSON) -> None:
        uid = pod["metadata"]["uid"]
        if pod["status"].get("phase") == "Succeeded":
            self._succeeded[_owner(pod)].add(uid)
        if change == "DELETED" or pod["status"].get("phase") in {"Succeeded", "Failed"}:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = pod

    def pods_listed(self, uids: set[str]) -> None:
        for uid in self.pods.keys() - uids:
            del self.pods[uid]

    async def end_pods(self) -> None:
        """Let each pod run for its time, then succeed or fail."""
        while True:
            for uid, pod in list(self.pods.items()):
                if uid not in self._ending and pod["metadata"].get("ownerReferences"):
                    self._ending.add(uid)
                    asyncio.get_running_loop().create_task(self._end(uid, pod))
            await asyncio.sleep(0.1)

    async def _end(self, uid: str, pod: JSON) -> None:
        await asyncio.sleep(self._chosen.uniform(*POD_SECONDS))
        phase = "Failed" if self._chosen.random() < FAILS else "Succeeded"
        while uid in self.pods:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):  # the server is away: again
                path = of_core(self.jobs.namespace, "pods", pod["metadata"]["name"], "status")
                reply = await self._api.patch(path, {"status": {"phase": phase}}, MERGE)
                if reply.status in {200, 404}:
                    self.done[f"pods {phase.lower()}"] += 1
                    return
            await asyncio.sleep(0.3)

    # -- what people do ---------

    @property
    def living(self) -> list[Seen]:
        return [each for each in self.seen.values() if not each.gone and not each.ended]

    async def act(self) -> None:
        """Do one thing that people do; what the server does not answer is given up."""
        choices: list[tuple[float, Callable[[], Awaitable[None]]]] = [(8, self.create), (1, self.delete)]
        if self.wild:
            choices += [
                (1, self.edit_quota),
                (0.3, self.renew_quota),
                (1, self.take_room),
                (1, self.suspend_or_resume),
                (0.7, self.ask_again),
            ]
        (chosen,) = self._chosen.choices([what for _, what in choices], [weight for weight, _ in choices])
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, AssertionError):
            await chosen()

    async def create(self) -> None:
        if len(self.living) >= LIVING:
            return
        self._number += 1
        name = f"j{self._number}"
        wide = self._chosen.randint(1, 4)
        shapes: list[JSON] = [
            {},
            {},
            {"parallelism": wide, "completions": wide * self._chosen.randint(1, 4)},
            {"parallelism": wide, "completions": 2 * wide, "backoffLimit": 1},
            {"parallelism": 6, "completions": 12, "annotations": {MIN_PARALLELISM: "2"}},
            {"parallelism": CPU + 1, "completions": CPU + 1},  # never fits
        ]
        body = job(name, **self._chosen.choice(shapes))
        if self.wild and self._chosen.random() < 0.1:
            body = job(name, asks=False, suspend=self._chosen.random() < 0.5)
        await self.jobs.create(body)
        self.done["Jobs created"] += 1

    async def delete(self) -> None:
        if living := self.living:
            name = self._chosen.choice(living).name
            path = of_group(BATCH, self.jobs.namespace, "jobs", name)
            await self._api.delete(path, {"propagationPolicy": "Background"})
            self.done["Jobs deleted"] += 1

    async def edit_quota(self) -> None:
        hard = {"requests.cpu": str(self._chosen.choice((3, 6, CPU, CPU + 4))), "pods": "100"}
        path = of_core(self.jobs.namespace, "resourcequotas", "q")
        made(await self._api.patch(path, {"spec": {"hard": hard}}, MERGE))
        self.done["quota edited"] += 1

    async def renew_quota(self) -> None:
        await self._api.delete(of_core(self.jobs.namespace, "resourcequotas", "q"))
        await asyncio.sleep(self._chosen.uniform(0, 1))
        await self.jobs.limit(CPU)
        self.done["quota deleted and created"] += 1

    async def take_room(self) -> None:
        """A pod that nobody gates, for a while."""
        container = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "2"}}}
        body = {"metadata": {"generateName": "foreign-"}, "spec": {"containers": [container]}}
        reply = await self._api.post(of_core(self.jobs.namespace, "pods"), body)
        if reply.status == 201:
            self.done["foreign pods"] += 1
            await asyncio.sleep(self._chosen.uniform(0, 2))
            await self.drop(reply.json)

    async def drop(self, pod: JSON) -> None:
        path = of_core(self.jobs.namespace, "pods", pod["metadata"]["name"])
        await self._api.delete(path, params={"gracePeriodSeconds": "0"})

    async def suspend_or_resume(self) -> None:
        if not (living := [each for each in self.living if each.asks]):
            return
        seen = self._chosen.choice(living)
        suspend = not seen.body["spec"].get("suspend")
        kept = {"metadata": {"annotations": {STAY_SUSPENDED: "true"}}} if suspend else {}
        await self.jobs.patch(seen.name, {**kept, "spec": {"suspend": suspend}})
        self.done["Jobs suspended or resumed"] += 1

    async def ask_again(self) -> None:
        """Take the annotations away from one that its user keeps suspended: it waits again, as a new one."""
        held = [each for each in self.living if each.body["spec"].get("suspend") and is_held(each.body)]
        if held:
            seen = self._chosen.choice(held)
            seen.again += bool(subject_of(JOB, seen.body).admitted)
            await self.jobs.patch(seen.name, {"metadata": {"annotations": dict.fromkeys((STAY_SUSPENDED, ADMITTED))}})
            self.done["Jobs asked for again"] += 1

    # -- the end ---------

    async def settle(self) -> None:
        """Undo what keeps Jobs from ending: the quota, foreign pods, what users hold, what never fits."""
        await self.jobs.limit(CPU)
        for pod in list(self.pods.values()):
            if not pod["metadata"].get("ownerReferences"):
                await self.drop(pod)
        for seen in self.living:
            held = seen.body["spec"].get("suspend") and (is_held(seen.body) or not seen.asks)
            if held or seen.body["spec"].get("parallelism", 1) > CPU:
                await self._api.delete(
                    of_group(BATCH, self.jobs.namespace, "jobs", seen.name), {"propagationPolicy": "Background"}
                )

    async def check_drained(self) -> None:
        began = time.monotonic()
        while self.living and time.monotonic() < began + DRAIN:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        for seen in self.living:
            notes = json.dumps(seen.body["metadata"].get("annotations", {}))
            self.broken.append(
                f"{seen.name} was forgotten: suspend {seen.body['spec'].get('suspend')}, {notes}, "
                f"status {seen.body['status']}"
            )

    async def check_whole(self) -> None:
        """No room is kept for what is gone: a Job that takes the whole quota begins at once."""
        await self.jobs.create(job("whole", parallelism=CPU, completions=CPU))
        began = time.monotonic()
        while time.monotonic() < began + 30:
            if any(each.name == "whole" and each.admitted for each in self.seen.values()):
                self.done["ms until the whole quota was given"] = round(1000 * (time.monotonic() - began))
                return
            await asyncio.sleep(0.02)
        self.broken.append("a Job that takes the whole quota does not begin: room is kept for what is gone")

    def event_seen(self, change: str, event: JSON) -> None:
        """Note what was let in when a create was refused.

        If all of that fits, the quota still counted what had ended: the time that the quota controller takes, which
        stands still while the API server is away.
        """
        if change == "DELETED" or event["reason"] != "FailedCreate" or "exceeded quota" not in event["message"]:
            return
        if event["metadata"]["uid"] not in self.refused:
            self.refused[event["metadata"]["uid"]] = self.let_in(), event

    def let_in(self) -> dict[str, int]:
        """Return how many pods each Job that was let in has, or will still get; by name, with living pods of others."""
        has = Counter(map(_owner, self.pods.values()))
        found = {}
        for uid, seen in self.seen.items():
            spec = seen.body["spec"]
            wanted = 0
            if not (seen.ended or seen.gone or spec.get("suspend")):
                wanted = min(spec.get("parallelism", 1), spec.get("completions", 1) - len(self._succeeded[uid]))
            if most := max(wanted, has.pop(uid, 0)):
                found[seen.name] = most
        return found | ({"others": has.total()} if has else {})

    async def check_refusals(self) -> None:
        self.done["creates refused"] = len(self.refused)
        beyond = [(found, event) for found, event in self.refused.values() if sum(found.values()) > CPU]
        self.done["of them while the quota still counted what had ended"] = len(self.refused) - len(beyond)
        if not self.wild:
            for found, event in beyond:
                name, at = event["involvedObject"]["name"], event["firstTimestamp"]
                self.broken.append(f"{name} was refused at {at}, when {found} were let in: {event['message']}")


def _owner(pod: JSON) -> str:
    return next((str(each["uid"]) for each in pod["metadata"].get("ownerReferences") or ()), "")


class Replicas:
    """Two operators, which reach the server through a relay."""

    def __init__(self, bed: Bed, relay: Relay, folder: Path, namespaces: list[str]) -> None:
        config = bed.server.kubeconfig("tester").read_text()
        self._config = folder / "kubeconfig"
        self._config.write_text(config.replace(bed.server.url, relay.url.replace("http://", "https://")))
        self._namespaces = namespaces
        self._folder = folder
        self._running: dict[int, Replica] = {}  # by port
        self._number = 0

    async def start(self) -> None:
        self._number += 1
        with (self._folder / f"operator-{self._number}.log").open("wb") as log:
            started = await begin(self._config, self._namespaces, out=log)
        self._running[started.port] = started

    async def leader(self) -> int | None:
        for port, replica in self._running.items():
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                if LEADS in (await replica.get("/metrics"))[1]:
                    return port
        return None

    async def await_leader(self, within: float) -> float:
        began = time.monotonic()
        while time.monotonic() < began + within:
            if await self.leader() is not None:
                return time.monotonic() - began
            await asyncio.sleep(0.1)
        return within

    async def end(self, port: int, number: signal.Signals) -> None:
        await self._running.pop(port).end(number)

    async def pause(self, port: int, seconds: float) -> None:
        process = self._running[port].process
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def faults(self) -> list[str]:
        """Return what the replicas have said of errors of their own."""
        logs = [path.read_text() for path in self._folder.glob("operator-*.log")]
        return [line for text in logs for line in text.splitlines() if "Traceback" in line or "internal error" in line]

    async def close(self) -> None:
        for port in list(self._running):
            await self.end(port, signal.SIGKILL)


class Faults:
    """What fails, one thing at a time."""

    def __init__(self, bed: Bed, api: Api, relay: Relay, replicas: Replicas, home: str, chosen: random.Random) -> None:
        self._bed = bed
        self._api = api
        self._relay = relay
        self._replicas = replicas
        self._lease = f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/{LEASE}"
        self._chosen = chosen
        self.done: Counter[str] = Counter()
        self.takeovers: list[float] = []
        self.trail: list[str] = []
        """What failed, and when."""

    async def one(self) -> None:
        leader = await self._replicas.leader()
        choices = [(2.0, self.cut), (1.0, self.delete_lease), (0.5, self.restart_server)]
        if leader is not None:
            choices += [
                (3, lambda: self.kill(leader, signal.SIGKILL)),
                (1, lambda: self.kill(leader, signal.SIGTERM)),
                (1, lambda: self.stop(leader)),
            ]
        (fault,) = self._chosen.choices([what for _, what in choices], [weight for weight, _ in choices])
        before, began = self.done.copy(), datetime.now(UTC)
        await fault()
        for what in self.done - before:
            self.trail.append(f"{began:%H:%M:%S} to {datetime.now(UTC):%H:%M:%S}: {what}")

    async def kill(self, leader: int, number: signal.Signals) -> None:
        await self._replicas.end(leader, number)
        self.takeovers.append(await self._replicas.await_leader(60))
        self.done[f"leader ended by {number.name}"] += 1
        await self._replicas.start()

    async def stop(self, leader: int) -> None:
        await self._replicas.pause(leader, self._chosen.uniform(5, 25))
        self.done["leader stopped for a while"] += 1

    async def cut(self) -> None:
        self._relay.cut()
        await asyncio.sleep(self._chosen.choice((0, 0.5, 3, 20)))
        self._relay.mend()
        self.done["connections cut"] += 1

    async def delete_lease(self) -> None:
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            await self._api.delete(self._lease)
            self.done["Lease deleted"] += 1

    async def restart_server(self) -> None:
        await asyncio.to_thread(self._bed.stop, "kube-apiserver", grace=0 if self._chosen.random() < 0.5 else 10)
        await asyncio.sleep(self._chosen.choice((0, 3)))
        await asyncio.to_thread(self._bed.start, "kube-apiserver")
        await asyncio.to_thread(self._bed.renew_controllers)
        self.done["API server restarted"] += 1


@asynccontextmanager
async def working(rooms: list[Room]) -> AsyncIterator[None]:
    tasks = []
    for room in rooms:
        namespace = room.jobs.namespace
        tasks += [
            asyncio.create_task(room.follow(of_group(BATCH, namespace, "jobs"), room.job_seen, room.jobs_listed)),
            asyncio.create_task(room.follow(of_core(namespace, "pods"), room.pod_seen, room.pods_listed)),
            asyncio.create_task(room.follow(of_core(namespace, "events"), room.event_seen, lambda _: None)),
            asyncio.create_task(room.end_pods()),
        ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run(bed: Bed, minutes: float, seed: int, pause: float) -> list[str]:
    """Return the promises that were broken."""
    chosen = random.Random(seed)
    names = [f"{kind}-{secrets.token_hex(3)}" for kind in ("calm", "wild")]
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(bed.server))
        rooms = [Room(api, name, chosen, wild=name.startswith("wild")) for name in names]
        for room in rooms:
            made(await api.post("/api/v1/namespaces", {"metadata": {"name": room.jobs.namespace}}))
            await room.jobs.limit(CPU)
        folder = Path(tempfile.mkdtemp(prefix="admitting-faults-"))
        relay = stack.enter_context(Relay(bed.server.url))
        replicas = Replicas(bed, relay, folder, names)
        stack.push_async_callback(replicas.close)
        for _ in range(2):
            await replicas.start()
        await replicas.await_leader(60)
        faults = Faults(bed, api, relay, replicas, names[0], chosen)
        await stack.enter_async_context(working(rooms))
        await _days(rooms, faults, minutes, chosen, pause)
        for room in rooms:
            await room.settle()
        print(f"nothing fails any more after {minutes:g} minutes; the logs are in {folder}", flush=True)
        await replicas.await_leader(60)
        await asyncio.gather(*(room.check_drained() for room in rooms))
        for room in rooms:
            await room.check_whole()
            await room.check_refusals()
        _table(rooms, faults)
        if any(room.broken for room in rooms):
            print("what failed:", *faults.trail, sep="\n  ")
        return [f"{room.jobs.namespace}: {each}" for room in rooms for each in room.broken] + replicas.faults()


async def _days(rooms: list[Room], faults: Faults, minutes: float, chosen: random.Random, pause: float) -> None:
    """Let people act and things fail, side by side."""
    end = time.monotonic() + 60 * minutes

    async def people(room: Room) -> None:
        while time.monotonic() < end:
            await room.act()
            await asyncio.sleep(chosen.uniform(0.05, 0.6))

    async def failing() -> None:
        while time.monotonic() < end:
            await asyncio.sleep(min(chosen.uniform(0.5, 1.5) * pause, end - time.monotonic()))
            if time.monotonic() < end:
                await faults.one()

    async def telling() -> None:
        while time.monotonic() < end:
            await asyncio.sleep(SPELL)
            counts = {room.jobs.namespace: (room.done["Jobs created"], len(room.living)) for room in rooms}
            print(
                f"{(end - time.monotonic()) / 60:5.1f} minutes left; Jobs created, living: {counts}; "
                f"faults {faults.done.total()}; broken {sum(len(room.broken) for room in rooms)}",
                flush=True,
            )

    teller = asyncio.create_task(telling())
    await asyncio.gather(*(people(room) for room in rooms), failing())
    teller.cancel()


def _table(rooms: list[Room], faults: Faults) -> None:
    by_name: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(rooms))
    for column, room in enumerate(rooms):
        admitted = [len(each.admitted) for each in room.seen.values()]
        for name, count in {**room.done, "Jobs let in": sum(admitted)}.items():
            by_name[name][column] = count
    print(f"{'':52} {'calm':>8} {'wild':>8}")
    for name, counts in sorted(by_name.items()):
        print(f"{name:52} {counts[0]:8} {counts[1]:8}")
    print("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(faults.done.items())))
    if taken := sorted(faults.takeovers):
        print(f"from a leader's end to the next one: p50 {taken[len(taken) // 2]:.1f} s, most {taken[-1]:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=15, help="seconds from one fault to the next, on average")
    given = parser.parse_args()
    with Bed(wanted(), kcm_qps=500) as bed:
        broken = asyncio.run(run(bed, given.minutes, given.seed, given.pause))
    for each in broken[:40]:
        print(f"BROKEN: {each}")
    print(
        f"seed {given.seed}: {len(broken)} promises were broken" if broken else f"seed {given.seed}: every promise held"
    )
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
