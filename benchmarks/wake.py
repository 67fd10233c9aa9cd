"""Measures how soon a waiting create is answered once room is free, and how often it is refused, on a real API server.

Usage: python -m benchmarks.wake [--quick] [--only 500|defaults] [--part idle|refusals|latency|turnover|pods]
Starts its own test beds: one whose controller manager has its defaults (20 calls per second, which limits the releases
of the whole cluster), and one with 500. The gate and a bare watch-and-create loop of the same client take turns, so
that other load on the machine affects both. Prints each figure with its bar and exits with 1 if one is missed.
``--quick``: small numbers without bars, to check that everything works.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from bisect import bisect_right
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import Progress, TaskID

from benchmarks.wake_rooms import LEARNER, Bare, Blind, Gated, Room, room, server_calls
from tests.cluster.control_plane.bed import Bed
from tests.cluster.control_plane.binaries import build, wanted
from tests.cluster.talking import Api

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.cluster.control_plane.servers import Server

HARD: Final = 50
"""The quota of each namespace, in pods."""
PARTS: Final = ("idle", "refusals", "latency", "turnover", "pods")
TITLES: Final = {"defaults": "its defaults (20 calls per second)", "500": "500 calls per second"}
RUN_FOR: Final = 0.2
"""Seconds that a pod runs while refusals are counted."""


@dataclass(frozen=True)
class Sizes:
    """How many creates, turns and seconds of each measurement."""

    admissions: int = 5000
    spells: int = 6
    seconds: float = 10.0
    """Of one spell: six make a minute."""
    rates: tuple[int, ...] = (10, 20)
    turnover: int = 1000
    turnovers: int = 3
    idle: int = 1000
    idle_seconds: float = 20.0


QUICK: Final = Sizes(
    admissions=150, spells=1, seconds=1.0, rates=(10,), turnover=100, turnovers=1, idle=50, idle_seconds=1.0
)


@dataclass(frozen=True)
class Figure:
    """One line of the result. Without a ``bar`` it is only printed."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    at_least: bool = False

    @property
    def kept(self) -> bool:
        """Whether the value meets its bar."""
        return self.bar is None or (self.value >= self.bar if self.at_least else self.value <= self.bar)


class Run:
    """All measurements on one bed."""

    def __init__(self, server: Server, sizes: Sizes, tell: Callable[[str], object]) -> None:
        self._server = server
        self._sizes = sizes
        self._tell = tell
        self._rooms = 0
        self._early = 0  # creates that succeeded before the first release
        self.figures: list[Figure] = []
        self.raw: dict[str, Any] = {}

    async def all(self, parts: Collection[str], *, fast_releases: bool) -> None:
        """Measure these parts. ``fast_releases``: the controller manager does not limit releases."""
        async with AsyncExitStack() as stack:
            self._api = await stack.enter_async_context(Api(self._server))
            self._gated, self._blind = Gated(self._server), Blind(self._server)
            self._bare = Bare(self._server, self._api)
            for each in (self._gated, self._bare, self._blind):
                stack.push_async_callback(each.close)
            await self._quiet()
            if "idle" in parts:  # first: the namespace controller lists what the other parts leave behind
                await self._idle()
            if "refusals" in parts:
                await self._refusals(contended=False)
                await self._refusals(contended=True)
            for rate in self._sizes.rates if "latency" in parts else ():
                await self._latency(rate)
            if "turnover" in parts:
                await self._turnover(judged=fast_releases)
            if "pods" in parts:
                await self._pods_only()
            settle = self._gated.client.gate.ledger.snapshot().settle_time
            self._add("settle time that the gate has learned by the end", 1000 * settle, "ms")

    async def _quiet(self) -> None:
        """Wait until the namespace of the bed's own check is gone: its deletion causes calls."""
        async with asyncio.timeout(60):
            while (await self._api.get("/api/v1/namespaces/bed-is-ready")).status != 404:  # noqa: ASYNC110 - polled
                await asyncio.sleep(0.1)

    def _room(self, hard: int = HARD) -> Any:
        self._rooms += 1
        return room(self._api, f"wake-{self._rooms}", hard)

    # -- refusals ---------

    async def _refusals(self, *, contended: bool) -> None:
        """Create thousands of pods that run briefly, and count what the quota refused."""
        title = "with another client's creates, 20 % of all" if contended else "as the only creator"
        await self._count_refusals(self._gated, self._sizes.admissions, title, None if contended else 1.0, contended)

    async def _count_refusals(
        self, who: Gated, admissions: int, title: str, bar: float | None, contended: bool = False
    ) -> None:
        self._tell(f"refusals {title}")
        async with self._room() as place, asyncio.TaskGroup() as runs:

            async def run(pod: str) -> None:
                await asyncio.sleep(RUN_FOR)
                await place.delete(pod)

            def tell_in(pod: str) -> None:
                runs.create_task(run(pod))
                if contended and next(counted) % 4 == 0:
                    runs.create_task(competitor())

            async def competitor() -> None:
                await run(await self._blind.create(place))

            counted = iter(range(admissions))
            refused, blind, began = who.refused, self._blind.refused, time.perf_counter()
            await who.fill(place, admissions, tell_in)
        refused, seconds = who.refused - refused, time.perf_counter() - began
        per_thousand = 1000 * refused / admissions
        self._add(f"refusals per 1,000 of {admissions:,} admissions, {title}", per_thousand, "", bar)
        self._add(f"admissions per second, {title}", admissions / seconds, "/s")
        if contended:
            others = (self._blind.refused - blind) * 1000 / (admissions / 4)
            self._add("the other client's own refusals per 1,000 admissions", others, "")

    # -- latency ---------

    async def _latency(self, rate: int) -> None:
        """Release pods at a steady rate, and measure the time from each answer to that of the next create."""
        self._tell(f"wake latency, {rate} releases per second")
        found: dict[str, list[float]] = {"gate": [], "bare loop": []}
        shared = dict.fromkeys(found, 0)
        releases = round(rate * self._sizes.seconds)
        refused = self._gated.refused
        async with self._room() as gated, self._room() as bare:
            await self._gated.fill(gated, HARD, gated.pods.append)
            await self._bare.fill(bare, HARD, bare.pods.append)
            for spell in range(self._sizes.spells):
                pairs: list[tuple[Gated | Bare, Room]] = [(self._gated, gated), (self._bare, bare)]
                for who, where in pairs if spell % 2 else reversed(pairs):
                    latencies, twice = await self._spell(who, where, rate, releases)
                    found[who.label] += latencies
                    shared[who.label] += twice
        seconds = self._sizes.seconds * self._sizes.spells
        for label, values in found.items():
            p50, p99 = quantile(values, 0.5), quantile(values, 0.99)
            judged = label == "gate" and rate == 10
            name = f"wake latency at {rate}/s for {seconds:.0f} s, {label}"
            self._add(f"{name}, p50", p50 * 1000, "ms", 15.0 if judged else None)
            self._add(f"{name}, p99", p99 * 1000, "ms", 100.0 if judged else None)
            self._add(f"{name}, releases that shared a create", 100 * shared[label] / len(values), "%")
        ratio = quantile(found["gate"], 0.5) / quantile(found["bare loop"], 0.5)
        self._add(f"wake latency at {rate}/s, p50 gate / p50 bare loop", ratio, "x", 1.3 if rate == 20 else None)
        self._add(f"refusals of the gate at {rate}/s", self._gated.refused - refused, "")
        self.raw[f"latency at {rate}/s"] = found

    async def _spell(self, who: Gated | Bare, where: Room, rate: int, releases: int) -> tuple[list[float], int]:
        """Release this many pods; return what ``paired`` returns."""
        came: list[float] = []
        went: list[tuple[float, float]] = []

        def tell_in(pod: str) -> None:
            came.append(time.perf_counter())
            where.pods.append(pod)

        async with asyncio.TaskGroup() as group:
            filled = group.create_task(who.fill(where, releases, tell_in))
            await asyncio.sleep(0.5)  # until all wait in line
            self._early += len(came)
            began = time.perf_counter()
            for number in range(releases - len(came)):
                await asyncio.sleep(began + number / rate - time.perf_counter())
                group.create_task(self._release(where, went, by_status=bool(number % 2)))
            await filled
        await asyncio.sleep(0.5)  # until the quota is quiet
        return paired(came, sorted(went))

    @staticmethod
    async def _release(where: Room, went: list[tuple[float, float]], *, by_status: bool) -> None:
        sent = time.perf_counter()
        went.append((sent, await where.release(by_status=by_status)))

    async def _pods_only(self) -> None:
        """Measure refusals and latency, in short, for a user that may watch pods but not quotas."""
        title = "where only pods may be watched"
        learner = Gated(self._server, LEARNER)
        try:
            await self._count_refusals(learner, self._sizes.turnover, title, None)
            self._tell(f"wake latency {title}")
            releases = round(10 * self._sizes.seconds * self._sizes.spells / 3)
            refused = learner.refused
            async with self._room() as place:
                await learner.fill(place, HARD, place.pods.append)
                latencies, _ = await self._spell(learner, place, 10, releases)
        finally:
            await learner.close()
        for share in (0.5, 0.99):
            name = f"wake latency of {releases:,} releases at 10/s, {title}, p{100 * share:.0f}"
            self._add(name, quantile(latencies, share) * 1000, "ms")
        self._add(
            f"refusals per 1,000 of these {releases:,} admissions, {title}",
            1000 * (learner.refused - refused) / releases,
            "",
        )
        self.raw[f"latency at 10/s, {title}"] = latencies

    # -- turnover ---------

    async def _turnover(self, *, judged: bool) -> None:
        """Finish each pod as soon as it is created: from the 51st on, every admission needs a release."""
        self._tell("admissions that each need a release")
        rates: dict[str, list[float]] = {"gate": [], "bare loop": []}
        refused: dict[str, int] = {"gate": 0, "bare loop": 0}
        pods = self._sizes.turnover
        for number in range(self._sizes.turnovers):
            pairs: list[Gated | Bare] = [self._gated, self._bare]
            for who in pairs if number % 2 else reversed(pairs):
                before = who.refused
                rates[who.label].append(await self._turn_over(who, pods))
                refused[who.label] += who.refused - before
        for label, found in rates.items():
            self._add(f"admissions that each need a release, {label}", statistics.median(found), "/s")
            per_thousand = 1000 * refused[label] / (pods * self._sizes.turnovers)
            bar = 10.0 if judged and label == "gate" else None
            self._add(f"refusals per 1,000 in that run, {label}", per_thousand, "", bar)
        ratio = statistics.median(rates["gate"]) / statistics.median(rates["bare loop"])
        self._add("admissions that each need a release, gate / bare loop", ratio, "x", 0.85 if judged else None, True)
        self.raw["turnover"] = rates

    async def _turn_over(self, who: Gated | Bare, pods: int) -> float:
        """Return the admissions per second."""
        async with self._room() as place, asyncio.TaskGroup() as runs:
            began = time.perf_counter()
            await who.fill(place, pods, lambda pod: runs.create_task(place.finish(pod)))
            return pods / (time.perf_counter() - began)

    # -- idle ---------

    async def _idle(self) -> None:
        """Measure CPU and calls while many creates wait and nothing changes."""
        self._tell("many waiting, nothing changes")
        waiting = self._sizes.idle
        async with self._room(1) as place, asyncio.TaskGroup() as group:
            filled = group.create_task(self._gated.fill(place, 1 + waiting, place.pods.append))
            await asyncio.sleep(3.0)
            await self._unasked()
            before, sent = await server_calls(self._api), self._gated.client.gate.counts.sent
            began, busy = time.perf_counter(), time.process_time()
            await asyncio.sleep(self._sizes.idle_seconds)
            share = (time.process_time() - busy) / (time.perf_counter() - began)
            calls = await server_calls(self._api)
            sent = self._gated.client.gate.counts.sent - sent
            filled.cancel()
        seen = (calls - before).total()  # of all clients
        self.raw["calls while nothing changed"] = {" ".join(call): number for call, number in (calls - before).items()}
        self._add(f"{waiting:,} waiting, nothing changes: share of a core", 100 * share, "%", 1.0)
        self._add(f"{waiting:,} waiting, nothing changes: calls", max(seen, sent), "", 0.0)

    async def _unasked(self) -> None:
        """Wait until the server has had no calls for a second: then the creates only wait."""
        async with asyncio.timeout(60):
            before = None
            while before != (before := await server_calls(self._api)):  # noqa: ASYNC110 - polled
                await asyncio.sleep(1.0)

    def _add(self, name: str, value: float, unit: str, bar: float | None = None, at_least: bool = False) -> None:
        self.figures.append(Figure(name, value, unit, bar, at_least))


def paired(came: list[float], went: list[tuple[float, float]]) -> tuple[list[float], int]:
    """Return the seconds from the answer to each release (sent, answered) to the next create's answer, and how many
    releases shared a create with another one.

    A create that is answered before the release counts as 0 s. Two releases share the next create if the second was
    late, or if the first freed no room: the quota controller sometimes counts one pod too few, from a cache that lags
    behind, and the next release only compensates for the pod that was admitted too many.
    """
    taken = [bisect_right(came, sent) for sent, _ in went]
    taken = [place for place in taken if place < len(came)]
    found = [max(0.0, came[place] - answered) for place, (_, answered) in zip(taken, went, strict=False)]
    return found, len(taken) - len(set(taken))


def quantile(values: list[float], share: float) -> float:
    """Return the nearest-rank quantile: this share of the values is not above it."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(sizes: Sizes, parts: Collection[str], qps: float | None, progress: Progress, task: TaskID) -> Run:
    """Start a bed and measure on it. ``qps``: calls per second of its controller manager, None for its default."""
    title = "500 calls per second" if qps else "its defaults"
    progress.update(task, description=f"controller manager at {title}: starting")
    with Bed(wanted(), kcm_qps=qps) as bed:

        def tell(what: str) -> None:
            progress.update(task, description=f"controller manager at {title}: {what}", advance=1)

        run = Run(bed.server, sizes, tell)
        asyncio.run(run.all(parts, fast_releases=qps is not None))
    progress.advance(task)
    return run


def main() -> None:
    """Measure, print the figures, write them to a file, and exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small numbers, without bars")
    parser.add_argument("--only", choices=("defaults", "500"), help="only with this controller manager")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("build") / "wake.json")
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes()
    qps_of = {"defaults": None, "500": 500.0}
    chosen = [options.only] if options.only else list(qps_of)
    build(wanted(), lambda line: print(line, file=sys.stderr))
    found: dict[str, Run] = {}
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(chosen) * (7 + len(sizes.rates)))
        for name in chosen:
            found[name] = measure(sizes, options.part or PARTS, qps_of[name], progress, task)
    missed = 0
    for name, run in found.items():
        print(f"\nkube-controller-manager at {TITLES[name]}")
        for each in run.figures:
            bar = "" if each.bar is None or options.quick else f"   bar {'>=' if each.at_least else '<='} {each.bar:g}"
            verdict = "" if not bar or each.kept else "   MISSED"
            missed += bool(verdict)
            print(f"  {each.name:<78}{each.value:10,.2f} {each.unit:<3}{bar}{verdict}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    document = {name: {"figures": [vars(each) for each in run.figures], **run.raw} for name, run in found.items()}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"\nwritten to {options.out}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
