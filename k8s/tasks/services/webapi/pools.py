"""Token pools: a service may run so many jobs at a time, in all, for each project and for each namespace.

A pool is a quota that is kept here. All pools of a process have one ledger, beside that of the API server. In it a pool
is a namespace, such as ``pool.connector``: no Kubernetes namespace has a dot. Its quota ``pool`` counts ``tokens`` in
all, ``tokens.project/NAME`` and ``tokens.namespace/NAME``; a name is listed while a task there has or wants a token.
An attempt that needs a token is a create of one ``tokens``, and the server that it is sent to is the pool itself. So
the line is the engine's, as for every create: priority and aging, place and estimate, bounded overtaking, status,
metrics, and what operators do.

Pools are not stored. An attempt has its token from the grant until its release. Before the first grant, a manager that
starts reports with ``adopt`` which attempts of the store have tokens. So tokens are neither lost nor left over.

The pool counts its grants itself, and refuses beyond its limits even what the engine admits. The engine may be a new
one, after an internal error, or not know a lower limit yet.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.facts.quantities import NANO
from backoff_ctrl.engine.facts.quotas import ObservedQuota
from backoff_ctrl.engine.policy import Policy
from backoff_ctrl.k8s.gate.create import Create
from backoff_ctrl.k8s.gate.creates.creation import Creation
from backoff_ctrl.k8s.gate.creates.wait import Wait
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.runtime.host import LoopAlarms
from backoff_ctrl.k8s.gate.sharing.process import policy_in_use, show_beside
from backoff_ctrl.k8s.gate.threads import Gate
from backoff_ctrl.k8s.kube.answers.answer import Answer, GateClosed, WaitedTooLong, exceeded_quota, status_answer
from backoff_ctrl.k8s.tasks.plugins.core import Key
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskMetadata

SERVER: Final = "pools"
"""Stands for the server in the status."""
QUOTA: Final = "pool"
TOKENS: Final = "tokens"
PROJECT: Final = "tokens.project"
NAMESPACE: Final = "tokens.namespace"
DEFAULT: Final = "default"
"""The name of a plugin's pool that needs no name of its own."""
AGAIN: Final = 0.2
"""Seconds until a request is made anew that was refused: the engine had failed, or a limit was lowered meanwhile."""
ROWS_MAX: Final = 4096
"""Rows of a line that are gone over at once, so that a release grants before it returns: 2 us each."""
WAITERS_MAX: Final = 10_000_000
YEAR: Final = 31_536_000.0
GRANTED: Final = Answer(201, {}, b"")


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The tokens of a pool in all, and the most that one project and one namespace may have; None: no limit of that.

    ``total`` 0 pauses the pool. Lower limits take no token away: grants pause until there is room.
    """

    total: int
    project: int | None = None
    namespace: int | None = None

    def of(self, resource: str) -> int | None:
        """Return the limit of a resource of the quota; None: no limit."""
        if resource == TOKENS:
            return self.total
        return self.project if resource.startswith(PROJECT) else self.namespace


class TokenWait:
    """An attempt that waits for a token, or has one. For its create it is the transport, to the pool."""

    __slots__ = ("about", "create", "failure", "has", "key", "pool", "resources", "told")

    def __init__(self, pool: _Pool, key: Key, about: TaskMetadata) -> None:
        self.pool = pool
        self.key = key
        self.about = about
        self.resources = resources_of(about)
        self.has = False
        """Whether it has its token."""
        self.failure = ""
        """Why it gets no token: it waited as long as the task allows. Empty: it has its token, or waits."""
        self.create: Create | None = None
        self.told: Callable[[], object] | None = None

    def creation(self) -> Creation:
        about, pool = self.about, self.pool
        return Creation(
            SERVER,
            pool.plugin,
            pool.name,
            TOKENS,
            {"metadata": {"name": f"{about.namespace}/{about.generated_name}"}},
            about.priority,
            about.timeout,
            demand=Demand(dict.fromkeys(self.resources, NANO)),
        )

    def send(self, _: dict[str, Any]) -> Answer:
        """Take a token, or be refused."""
        exceeded = self.pool.exceeded(self.resources)
        if exceeded:
            return exceeded_quota(TOKENS, self.key[0], QUOTA, exceeded)
        self.has = True
        self.pool.take(self.resources)
        return GRANTED

    def look_up(self, name: str) -> Answer:
        """Report that it has no token yet: a refused create asks, since the refusal may hide a 409."""
        return status_answer(404, "NotFound", f'{TOKENS} "{name}" not found', {"name": name, "kind": TOKENS})


class _Pool:
    """One pool: its limits, and how many attempts have or want a token of it, by resource of its quota."""

    def __init__(self, ledger: Ledger, plugin: str, name: str) -> None:
        self.plugin = plugin
        self.name = name
        self.limits: PoolLimits | None = None
        self._ledger = ledger
        self._used: Counter[str] = Counter()
        self._known: Counter[str] = Counter()
        ledger.watching(self.name)

    def enter(self, resources: tuple[str, ...]) -> None:
        """Count one more attempt that has or wants a token."""
        self._known.update(resources)
        if any(self._known[each] == 1 for each in resources):
            self.tell()

    def leave(self, resources: tuple[str, ...], *, used: bool) -> None:
        """Count one less; ``used``: it had its token."""
        self._known.subtract(resources)
        if used:
            self._used.subtract(resources)
        gone = [each for each in resources if not self._known[each]]
        for each in gone:
            del self._known[each], self._used[each]
        if used or gone:
            self.tell()

    def take(self, resources: tuple[str, ...]) -> None:
        self._used.update(resources)
        self.tell()

    def exceeded(self, resources: tuple[str, ...]) -> dict[str, tuple[int, int, int]]:
        """Return the resources without room for one more token: asked, used and limited, in nano-units."""
        found = {}
        for each in resources:
            limit = None if self.limits is None else self.limits.of(each)
            if limit is not None and self._used[each] >= limit:
                found[each] = (NANO, self._used[each] * NANO, limit * NANO)
        return found

    def tell(self) -> None:
        """Report the quota to the engine. All waiters that fit have their tokens before this returns."""
        limits = self.limits
        if limits is None:
            return
        hard = {each: limit * NANO for each in (TOKENS, *self._known) if (limit := limits.of(each)) is not None}
        used = {each: self._used[each] * NANO for each in hard}
        self._ledger.observe_quota(self.name, QUOTA, ObservedQuota(hard, hard, used))


class Pools:
    """All pools of the plugins of one process, on the event loop that it is made on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.ledger = Ledger(LoopAlarms(), exact(policy_in_use()))
        self._gate = Gate(ledger=self.ledger)
        self._pools: dict[str, _Pool] = {}
        self._waits: dict[Key, TokenWait] = {}
        self._hide = show_beside(self.ledger, SERVER)

    def adopt(self, plugin: str, pool: str, key: Key, about: TaskMetadata) -> None:
        """Count a token that the store shows, before the first grant. A second call for the same key is ignored."""
        if key in self._waits:
            return
        wait = self._waits[key] = TokenWait(self._pool(plugin, pool), key, about)
        wait.has = True
        wait.pool.enter(wait.resources)
        wait.pool.take(wait.resources)

    def ask(
        self,
        plugin: str,
        pool: str,
        key: Key,
        about: TaskMetadata,
        limits: PoolLimits,
        granted: Callable[[], object],
    ) -> TokenWait:
        """Begin to wait for a token, and return the wait, which may have it already. A second call returns the same.

        ``granted`` is called on the loop once the wait that is returned is over: it has the token, or a ``failure``, or
        an operator has cancelled it; then ask again. The limits are those of the pool from now on.
        """
        self.limit(plugin, pool, limits)
        wait = self._waits.get(key)
        if wait is None:
            wait = self._waits[key] = TokenWait(self._pool(plugin, pool), key, about)
            wait.pool.enter(wait.resources)
            self._begin(wait)
        wait.told = granted
        return wait

    def has(self, key: Key) -> bool:
        """Return whether an attempt has its token."""
        wait = self._waits.get(key)
        return wait is not None and wait.has

    def wait(self, key: Key) -> Wait | None:
        """Return what an attempt waits for, and its place; None: it does not wait."""
        wait = self._waits.get(key)
        return None if wait is None or wait.create is None else wait.create.wait()

    def release(self, key: Key) -> None:
        """Give a token back, or leave the line. A second call is ignored."""
        wait = self._waits.pop(key, None)
        if wait is not None:
            self._stop([wait])
            if not wait.failure:
                wait.pool.leave(wait.resources, used=wait.has)

    def limit(self, plugin: str, pool: str, limits: PoolLimits) -> None:
        """Set the limits of a pool."""
        found = self._pool(plugin, pool)
        if found.limits != limits:
            found.limits = limits
            found.tell()

    async def aclose(self) -> None:
        """End all waits. What is counted is forgotten."""
        waits = list(self._waits.values())
        self._waits.clear()
        self._stop(waits)
        self._hide()

    # -- its own ---------

    def _pool(self, plugin: str, pool: str) -> _Pool:
        name = f"pool.{plugin}" if pool == DEFAULT else f"pool.{plugin}.{pool}"
        found = self._pools.get(name)
        if found is None:
            found = self._pools[name] = _Pool(self.ledger, plugin, name)
        return found

    def _begin(self, wait: TokenWait) -> None:
        """Put an attempt in line; it may have its token at once."""
        if self._waits.get(wait.key) is wait:
            wait.create = create = Create(self._gate, wait.creation())
            self._gate.run_on(self._post, create, wait, partial(self._ended, wait, create))

    def _post(self, step: Callable[[], object]) -> None:
        """Take a step of a create at once. Where an operator made room, another thread says so."""
        if threading.get_ident() == self._thread:
            step()
        else:
            self._loop.call_soon_threadsafe(step)

    def _ended(self, wait: TokenWait, create: Create) -> None:
        if wait.create is not create:
            return  # stopped: its attempt has left the line
        if not wait.has and isinstance(create.error, WaitedTooLong):
            wait.failure = str(create.error)
            wait.pool.leave(wait.resources, used=False)
        elif not wait.has and isinstance(create.error, GateClosed):
            self._waits.pop(wait.key, None)
            wait.pool.leave(wait.resources, used=False)
        elif not wait.has:
            self._loop.call_later(AGAIN, self._begin, wait)
            return
        wait.create = None
        if wait.told is not None:
            self._loop.call_soon(wait.told)
            wait.told = None

    def _stop(self, waits: list[TokenWait]) -> None:
        """Take these out of the line in one step. One by one, the room of the first would be granted to the next."""
        ends: list[tuple[Create, BaseException]] = []
        for wait in waits:
            create, wait.create, wait.told = wait.create, None, None
            if create is not None and not create.over:
                ends.append((create, GateClosed(f"{create.label}: it is no longer wanted")))
        self.ledger.line.stop(ends)


def resources_of(about: TaskMetadata) -> tuple[str, ...]:
    """Return the resources of its pool's quota that a task's token is charged to.

    Tasks without a project are counted together, as one project: left out, it would be no way around the limit.
    """
    project = f"{PROJECT}/{about.project}" if about.project else PROJECT
    return TOKENS, project, f"{NAMESPACE}/{about.namespace}"


def exact(policy: Policy) -> Policy:
    """Return the policy for a server without delay, in this process: no settling, and no limit on waiting."""
    return replace(policy, settle_time=0.0, settle_max=0.0, scan_max=ROWS_MAX, waiters_max=WAITERS_MAX, wait_max=YEAR)
