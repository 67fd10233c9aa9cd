"""The process that a storm goes over: 64 threads and 64 tasks that create pods in one line, forks, and bugs.

``run`` starts it with its ``Asked`` as JSON; it prints its ``Report`` as JSON. It says what each caller was told. What
was stored, the server says.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import json
import logging
import os
import queue
import random
import select
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from kubernetes import client

from backoff_ctrl import AsyncGatedApiClient, Gate, GatedApiClient, waiting
from backoff_ctrl.engine.controller import Controller
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.clients.gangs import GangFailed, create_gang
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.runtime.host import BLOCKING, RUNTIME, THREAD
from backoff_ctrl.k8s.gate.subscribers import Subscriber
from backoff_ctrl.k8s.gate.unfinished import Unfinished
from tests.gating.failing_open.faults import InjectedError
from tests.gating.storm.plans import ROW, Break, Plan, plans, pod
from tests.gating.storm.server import NAMESPACE
from tests.kit.aio_configuration import aio_configuration
from tests.kit.official import aio
from tests.kit.patience import PATIENCE

CALLERS: Final = 64
"""Threads, and as many tasks."""
FORKED: Final = 3
"""Creates of a forked child."""
LEARNS: Final = Policy(base=0.02, cap=0.1, ticket_max=20.0)
"""Without a watch what was answered is held for ``ticket_max``, if the quotas were read for a gang."""
METHODS: Final = ("submit", "settle", "withdraw", "advance", "next_deadline", "observe_quota", "reserve", "draw")
"""Methods of the engine that raise."""


class StoppedError(Exception):
    """Somebody else ended a create of a thread."""


@dataclass
class Asked:
    """What a storm is to do. It learns from refusals, if it does not observe."""

    url: str
    seed: int
    creates: int
    forks: int
    bugs: int
    observes: bool
    folder: str


@dataclass
class Call:
    """One call: the rows that it asked for, how it ended, and the names of the objects that it returned."""

    way: str
    rows: tuple[str, ...]
    end: str = ""
    names: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What callers were told. ``ids``: of each row the creates that were sent, by the ids that their objects carry."""

    calls: list[Call] = field(default_factory=list)
    ids: dict[str, list[str]] = field(default_factory=dict)
    bugs: int = 0
    forks: int = 0
    waited: int = 0
    undone: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Watcher(Subscriber):
    """Remembers all creates, and breaks those off that are to be broken off when something happens to them."""

    def __init__(self) -> None:
        """Nothing has begun."""
        self.creates: dict[str, list[Create]] = {}
        self.breaks: dict[tuple[str, Break], Callable[[Create], object]] = {}
        self.waited = 0

    def begun(self, create: Unfinished) -> None:
        """Remember it."""
        if isinstance(create, Create):
            self.creates.setdefault(row_of(create), []).append(create)
        self._break(create, "begun")

    def waits(self, create: Unfinished) -> None:
        """Count it."""
        self.waited += 1
        self._break(create, "waits")

    def admitted(self, create: Unfinished) -> None:
        """It is about to be sent."""
        self._break(create, "admitted")

    def answered(self, create: Unfinished, *_: object, **__: object) -> None:
        """It was answered."""
        self._break(create, "answered")

    def _break(self, create: Unfinished, event: Break) -> None:
        if isinstance(create, Create) and (act := self.breaks.pop((row_of(create), event), None)) is not None:
            act(create)


def row_of(create: Create) -> str:
    """Return the row that a create is of."""
    return str(create.creation.body["metadata"]["labels"][ROW])


class Bugs:
    """Lets a method of the engine raise the next time that it is called, before or after it has done its work."""

    def __init__(self, rng: random.Random) -> None:
        """None yet."""
        self._rng = rng
        self.fired = 0

    def plant(self, engine: Controller) -> None:
        """Plant one in this engine, which will be replaced when it raises."""
        name, late = self._rng.choice(METHODS), self._rng.random() < 0.5
        works = getattr(engine, name)

        def fails(*given: Any, **more: Any) -> Any:
            if late:
                works(*given, **more)
            self.fired += 1
            raise InjectedError(f"{name}, {'after' if late else 'before'} its work")

        setattr(engine, name, fails)


class Unexpected(logging.Handler):
    """Collects the errors that are logged, but for the planted ones."""

    def __init__(self) -> None:
        """Collect from now on."""
        super().__init__(logging.ERROR)
        self.found: list[str] = []
        logging.getLogger("backoff_ctrl").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, InjectedError):
            self.found.append(logging.Formatter().format(record))


class Storm:
    """See the module."""

    def __init__(self, asked: Asked) -> None:
        """Open the clients, which share a ledger."""
        self.asked = asked
        self.told = Report()
        self.rng = random.Random(f"weather {asked.seed}")
        self.configuration = client.Configuration(host=asked.url)
        self.configuration.connection_pool_maxsize = CALLERS
        self.configuration.retries = False
        gate = None if asked.observes else Gate(policy=LEARNS)
        self.api = GatedApiClient(self.configuration, gate=gate)
        self.core: Any = client.CoreV1Api(self.api)
        self.ledger: Ledger = self.api.gate.ledger
        self.gate = gate
        self.watcher = Watcher()
        self.ledger.subscribe(self.watcher)
        self.bugs = Bugs(self.rng)
        self.unexpected = Unexpected()
        self.children: list[int] = []
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._planned = plans(asked.seed, asked.creates)
        self._draws = threading.Lock()

    # -- callers ---------

    def next_plan(self) -> Plan | None:
        """Return what the next caller is to ask for; None: all is asked for."""
        with self._draws:
            return next(self._planned, None)

    def _call(self, way: str, plan: Plan) -> Call:
        call = Call(way, plan.rows)
        self.told.calls.append(call)
        return call

    def _over(self, call: Call, made: Any = None, error: BaseException | None = None) -> None:
        if error is None:
            call.end = "in"
            call.names = [each.metadata.name for each in (made if isinstance(made, list) else [made])]
        else:
            call.end = kind_of(error)
            if isinstance(error, GangFailed):
                self.told.undone += [name for name in error.created if name not in error.left]
        self._ended.put(len(call.rows))

    def thread(self, number: int) -> None:
        """Make one call after the other. Every second thread has its creates done on the client's pool."""
        while (plan := self.next_plan()) is not None:
            if plan.breaks not in (None, "at once"):
                self.watcher.breaks[plan.rows[0], plan.breaks] = lambda create: create.cancel(StoppedError())
            with waiting(timeout=plan.timeout, key=plan.key):
                self._in_thread(plan, number)

    def _in_thread(self, plan: Plan, number: int) -> None:
        if len(plan.rows) > 1:
            self._end(self._call("gang", plan), lambda: create_gang(self.core, plan.pods, namespace=NAMESPACE))
            return
        later = None
        if plan.twice or number % 2:
            later = self._call("async_req", plan)
            pending = self.core.create_namespaced_pod(NAMESPACE, plan.pods[0], async_req=True)
            if plan.breaks == "at once":
                pending.create.cancel(StoppedError())
        if later is None or plan.twice:
            call = self._call("thread", plan)
            self._end(call, lambda: self.core.create_namespaced_pod(NAMESPACE, plan.pods[0]))
        if later is not None:
            self._end(later, lambda: pending.get(PATIENCE))

    def _end(self, call: Call, end: Callable[[], Any]) -> None:
        try:
            self._over(call, end())
        except Exception as error:  # noqa: BLE001 - the account names it
            self._over(call, error=error)

    async def tasks(self) -> None:
        """Make the calls of all tasks."""
        gate = None if self.gate is None else self.api.gate
        async with AsyncGatedApiClient(aio_configuration(self.configuration), gate=gate) as api:
            if api.gate.ledger is not self.ledger:
                self.told.wrong.append("the clients do not share a ledger")
            core = aio.CoreV1Api(api)
            async with asyncio.TaskGroup() as group:
                for _ in range(CALLERS):
                    group.create_task(self._task(core))
            if left := asyncio.all_tasks() - {asyncio.current_task()}:  # what was sent, and whose caller went
                _, left = await asyncio.wait(left, timeout=PATIENCE)
            self.told.wrong += [f"a task is left: {each}" for each in left]

    async def _task(self, core: Any) -> None:
        while (plan := self.next_plan()) is not None:
            gang = len(plan.rows) > 1
            calls = [self._call("asyncio gang" if gang else "asyncio", plan) for _ in range(1 + plan.twice)]
            with waiting(timeout=plan.timeout, key=plan.key):
                if gang:
                    made = [asyncio.create_task(create_gang(core, plan.pods, namespace=NAMESPACE))]
                else:
                    made = [asyncio.create_task(core.create_namespaced_pod(NAMESPACE, plan.pods[0])) for _ in calls]
            if plan.breaks == "at once":
                made[0].cancel()
            elif plan.breaks is not None:
                self.watcher.breaks[plan.rows[0], plan.breaks] = partial(_cancel, asyncio.get_running_loop(), made[0])
            for call, task in zip(calls, made, strict=True):
                await asyncio.wait((task,))
                try:
                    self._over(call, task.result())
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the account names it
                    self._over(call, error=error)

    # -- the main thread ---------

    def run(self) -> Report:
        """Let it storm, and say what came of it. Raises ``SystemExit`` in each forked child."""
        asked = self.asked
        pool = ThreadPoolExecutor(CALLERS)
        threads = [pool.submit(self.thread, number) for number in range(CALLERS)]
        threads.append(pool.submit(lambda: None))
        loop = threading.Thread(target=asyncio.run, args=(self.tasks(),))
        loop.start()
        events = self._events()
        at, event = next(events, (asked.creates + 1, self.plant))
        ended = 0
        while loop.is_alive() or any(not each.done() for each in threads):
            try:
                ended += self._ended.get(timeout=0.5 if ended >= asked.creates else PATIENCE)
            except queue.Empty:
                if ended < asked.creates:
                    self.hangs("no call ends")
                continue
            while ended >= at:
                event()
                at, event = next(events, (asked.creates * 2, self.plant))
        for each in threads:
            each.result()
        pool.shutdown()
        self._check_line()
        self.api.close()
        for number in self.children:
            self._reap(number)
        self._check_threads()
        return self._tell()

    def _events(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """Return what else happens, each after how many creates."""
        kinds = [self.plant] * self.asked.bugs + [self.fork] * self.asked.forks
        self.rng.shuffle(kinds)
        for number, kind in enumerate(kinds, 1):
            yield number * self.asked.creates // (len(kinds) + 1), kind

    def plant(self) -> None:
        """Plant a bug in the engine."""
        self.bugs.plant(self.ledger.controller)

    def fork(self) -> None:
        """Fork; the child makes creates with its parent's client, or with one of its own, and ends."""
        number = len(self.children)
        child = os.fork()
        if child == 0:
            api = GatedApiClient(self.configuration) if number % 2 else self.api
            create_in_child(api, Path(self.asked.folder) / f"fork-{number}", f"f{number}")
            sys.exit(0)
        self.children.append(os.pidfd_open(child))

    def _reap(self, number: int) -> None:
        if not select.select([number], [], [], PATIENCE)[0]:
            self.told.wrong.append("a forked child does not end")
            signal.pidfd_send_signal(number, signal.SIGABRT)
        ended = os.waitid(os.P_PIDFD, number, os.WEXITED)
        os.close(number)
        if ended is None or ended.si_status != 0:
            self.told.wrong.append(f"a forked child ended with {ended}")

    def hangs(self, what: str) -> None:
        """Say what waits and where all threads stand, and end."""
        sys.stderr.write(f"seed {self.asked.seed}: {what}\n" + "\n".join(self.api.gate.waiting()) + "\n")
        sys.stderr.write(f"{self.ledger.snapshot()}\n")
        sys.stderr.flush()
        faulthandler.dump_traceback()
        os._exit(3)

    # -- at the end ---------

    def _check_line(self) -> None:
        """Nothing waits, and nothing is held, once what was answered last is settled."""
        until = time.monotonic() + PATIENCE
        while (left := self._left()) and time.monotonic() < until:
            threading.Event().wait(0.05)
        self.told.wrong += left

    def _left(self) -> list[str]:
        left = [f"under way: {each.describe()}" for each in self.ledger.under_way()]
        left += [f"follows: {each.describe()}" for each in self.ledger.line.following(NAMESPACE)]
        seen = self.ledger.snapshot().namespaces[NAMESPACE]
        counts = {
            "waiting": seen.waiting + seen.waiting_gangs + self.ledger.counts.waiting,
            "tickets": seen.outstanding,
            "answered holds": seen.answered_holds,
            "gangs": len(seen.gangs),
        }
        for quota, resources in seen.quotas.items():
            for resource, ceiling in resources.items():
                counts |= {f"held of {quota} {resource}": ceiling.held, f"reserved of {quota}": ceiling.reserved}
        return left + [f"left: {count} {what}" for what, count in counts.items() if count]

    def _check_threads(self) -> None:
        """Of our threads only the runtime's are left, and of event loops only that one's; at its end not even those."""
        del self.core, self.api
        allowed = Counter([threading.main_thread().name, THREAD, BLOCKING])
        for then in ("at the end", "after the runtime's end"):
            names = Counter(each.name for each in threading.enumerate())
            self.told.wrong += [f"{then}, threads are left: {sorted((names - allowed).elements())}"] * (names > allowed)
            gc.collect()
            loops = [each for each in gc.get_objects() if isinstance(each, asyncio.AbstractEventLoop)]
            opened = [str(each) for each in loops if not each.is_closed()]
            self.told.wrong += [f"{then}, event loops are open: {opened}"] * (len(opened) > allowed[THREAD])
            RUNTIME.close()
            allowed = Counter([threading.main_thread().name])

    def _tell(self) -> Report:
        told, failed = self.told, self.ledger.counts.failed_open
        told.bugs, told.forks, told.waited = self.bugs.fired, len(self.children), self.watcher.waited
        for row, creates in self.watcher.creates.items():
            told.ids[row] = [each.create_id for each in creates if each.sends]
        told.wrong += [f"logged: {each}" for each in self.unexpected.found]
        if failed != told.bugs:
            told.wrong.append(f"{failed} internal errors, but {told.bugs} were planted")
        return told


def _cancel(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any], _: Create) -> None:
    loop.call_soon_threadsafe(task.cancel)


def kind_of(error: BaseException) -> str:
    """Name an error in a word or two."""
    status = getattr(error, "status", None)
    if isinstance(error, TimeoutError):
        return "time limit"
    return f"HTTP {status}" if status else type(error).__name__


def create_in_child(api: GatedApiClient, book: Path, prefix: str) -> None:
    """Create some pods, and write into the book what was begun and what came."""
    faulthandler.enable()
    with api, book.open("w", buffering=1) as lines:
        core: Any = client.CoreV1Api(api)
        for number in range(FORKED):
            row = f"{prefix}-{number}"
            lines.write(f"begun {row}\n")
            with waiting(timeout=PATIENCE / 2):
                try:
                    core.create_namespaced_pod(NAMESPACE, pod(row))
                    lines.write(f"in {row}\n")
                except client.ApiException as error:
                    lines.write(f"{kind_of(error)} {row}\n".replace("time limit", "late"))


def main() -> None:
    """Do what the first argument says."""
    faulthandler.enable()
    warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads
    logging.basicConfig(level=logging.CRITICAL)
    told = Storm(Asked(**json.loads(sys.argv[1]))).run()
    sys.stdout.write(json.dumps(asdict(told)) + "\n")


if __name__ == "__main__":
    main()
