"""``WebManager``: the core plugin that runs the tasks of web API plugins.

``handle``, ``abort``, ``sweep`` and ``finalize`` are functions of a task's stored state (``state``: the stages, and the
table that says which follows which). A step is quick: creates, reads and deletes go on in the background, and ``wake``
is called when the next step would find news.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import aiohttp

from backoff_ctrl.k8s.kube.answers.bounded_json import read_json
from backoff_ctrl.k8s.kube.answers.fields import mapping_in
from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.kube.cluster.session import ClusterSession
from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.kube.paths import PathError, path_to
from backoff_ctrl.k8s.tasks.plugins.core import WEB, CoreSetup, Handled, Key
from backoff_ctrl.k8s.tasks.plugins.marks import key_of_task
from backoff_ctrl.k8s.tasks.plugins.phases import (
    NO_PLUGIN,
    PLUGIN_FAILED,
    TIMED_OUT,
    PhaseInfo,
    aborted,
    failed,
    not_ready,
    queued,
    system_failure,
    waiting,
)
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginBugError, PluginError, TaskContext, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.reported import Manager
from backoff_ctrl.k8s.tasks.plugins.web_entry import WebPluginEntry
from backoff_ctrl.k8s.tasks.plugins.web_protocol import CallContext, RemoteError, SecretError, StatusContext

from .deleting import Deletion
from .ending import Ending, Patience
from .figures import WebFigures
from .launching import Launch
from .outcomes import BAD_TASK, NO_POOL, REFRESH_FAILED, is_network_fault, storable
from .pacing import OVERLOADED
from .pools import Pools
from .refreshing import STARTING, Job, NetworkFaultError
from .secrets import TaskSecrets, hidden_in
from .service import LoadError, Service, WebCounts
from .state import Stage, StateError, WebState, read_state

log = logging.getLogger(__name__)

SETTLE_PAUSE: Final = 0.01
"""Seconds between two looks whether all answers are stored."""
LOAD_AGAIN: Final = 5.0
"""Seconds before a plugin that can't be loaded is tried again."""
SECRET_SECONDS: Final = 10.0
FINALIZE_SECONDS: Final = 1.0
"""Seconds that a finalize waits for the delete of a job: meanwhile it takes a worker from all other tasks."""
META_SHOWN: Final = 300
"""Characters of what identifies a job that a sentence repeats."""
CLOSE_SECONDS: Final = 10.0
"""Seconds for the calls that are under way when the manager closes."""


Find: TypeAlias = Callable[[str, str], WebPluginEntry]
"""Returns the entry of the plugin with this id, or if that is empty, of this task type. Raises ``PluginError``."""


class WebManager(Manager[WebState, Service]):
    """Runs the attempts of web API plugins. An async context manager for the time of one lease, on its event loop."""

    def __init__(
        self,
        find: Find,
        setup: CoreSetup,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        patience: Patience = Patience(),  # noqa: B008 - it can't be changed
    ) -> None:
        """Prepare without opening a plugin. ``find`` returns the entry of a plugin by the present settings."""
        self.counts = WebCounts()
        self._failures = self.counts.failures
        self._find = find
        self._setup = setup
        self._now = now
        self._patience = patience
        self._services: dict[str, Service] = {}
        self._unloadable: dict[str, tuple[float, str]] = {}
        self._settling = False
        self._launches: dict[Key, Launch] = {}
        self._deletions: dict[Key, Deletion] = {}
        self._endings: dict[Key, Ending] = {}

    async def _open(self) -> None:
        """Count the tokens that the store shows, before the pools grant others."""
        self._loop = asyncio.get_running_loop()
        self._cluster: ClusterSession | None = None
        self.pools = Pools()
        self._stack.callback(self.pools.ledger.subscribe(WebFigures(self.counts, self._services)))
        self._stack.push_async_callback(self.pools.aclose)
        self._stack.push_async_callback(self._close)
        async for task, state in self._setup.unfinished():
            try:
                known = read_state(state) if state.get("core") == WEB else WebState()
            except StateError:
                continue  # its next step says so
            if known.holds_token:
                self.pools.adopt(known.plugin, known.pool, key_of_task(task.metadata), task.metadata)

    async def settle(self, seconds: float) -> None:
        """Send no further create, and wait until what came of those under way is stored, at most so long.

        Else a manager that ends would throw their answers away, and the next one would have to find out.
        """
        self._settling = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._has_answers_under_way():  # noqa: ASYNC110 - once, at the end
                    await asyncio.sleep(SETTLE_PAUSE)

    def _has_answers_under_way(self) -> bool:
        launches = self._launches
        return any(each.calling or each.over for each in launches.values()) or any(
            each.seated_beside(launches) for each in self._services.values()
        )

    def _may_create(self) -> bool:
        return not self._settling and self._setup.may_create()

    async def _close(self) -> None:
        deletions = [each.task for each in self._deletions.values()]
        for each in deletions:
            each.cancel()
        await asyncio.gather(*(each.stop(CLOSE_SECONDS) for each in self._launches.values()), return_exceptions=True)
        await asyncio.gather(*deletions, return_exceptions=True)
        await asyncio.gather(*(each.aclose() for each in self._services.values()), return_exceptions=True)

    # -- steps ---------

    async def abort(self, task: TaskContext, state: JSON | None) -> Handled:
        """End an attempt for its user. A phase other than ``Aborted`` means that its job is not deleted yet."""
        try:
            known = self._read(task, state)
        except StateError as error:
            left = f"its job may still run: {error}"
            return Handled(aborted(f"aborted; {left}"), state, left)
        if known.over and not known.cleanup:
            return Handled(known.info(), state)
        known, ending = self._ending(task, known)
        try:
            service = await self._worker(task, known)
        except PluginError as error:
            if known.stage in (Stage.NOT_STARTED, Stage.ALLOCATION_TOKEN_ACQUIRED):
                return self._said(task, known, aborted("aborted before anything was created"))
            info = known.holding(f"the abort continues once it can: {error}")
            ending.failed(error)
        else:
            known, info = await self._aborted(task, service, known, "Aborted")
        if info.phase.is_terminal or not ending.is_given_up:
            return self._said(task, known, info)
        left = self._left(task, known, ending)
        known = replace(known, doubt=known.meta is None)
        return replace(self._said(task, known, aborted(f"aborted; {left}")), left=left)

    async def sweep(self, task: TaskContext, state: JSON | None) -> None:
        """Return at once: the abort has found a job that appeared late, or such a job can't be found at all."""

    async def finalize(self, task: TaskContext, state: JSON | None) -> str:
        """Delete what a failed attempt may still hold, and give its token back. Raises while that is not done.

        A job that is given up may still run: the sentence that is returned says so.
        """
        key = key_of_task(task.metadata)
        known = self._read_anyway(task, state)
        holds = known.cleanup if known.over else known.stage in (Stage.CREATE_REQUESTED, Stage.RESOURCES_CREATED)
        left = await self._end(task, known) if holds else ""
        self._forget(key)
        self.pools.release(key)
        return left

    async def _end(self, task: TaskContext, known: WebState) -> str:
        """End the job of an attempt that has failed; return what may still run, since it was given up.

        Raises ``RuntimeError`` while neither is the case.
        """
        known, ending = self._ending(task, known)
        try:
            service = await self._worker(task, known)
        except PluginError as error:
            ending.failed(error)
            said = str(error)
        else:
            known, info = await self._aborted(task, service, known, "its task has failed")
            deletion = self._deletions.get(key_of_task(task.metadata))
            if deletion is not None:
                await asyncio.wait({deletion.task}, timeout=FINALIZE_SECONDS)
            if info.phase.is_terminal or (deletion is not None and deletion.done):
                return ""
            said = info.reason if deletion is None else deletion.reason
        if not ending.is_given_up:
            raise RuntimeError(said)
        return self._left(task, known, ending)

    # -- the stages: each returns the state to store, and what to report ---------

    def _not_started(self, task: TaskContext, service: Service, known: WebState) -> tuple[WebState, PhaseInfo]:
        """Get a token, if the task needs one."""
        needed = service.requirements(task)
        granted = replace(known, stage=Stage.ALLOCATION_TOKEN_ACQUIRED)
        if needed is None:
            self._again(task)
            return granted, queued("its job is about to be created")
        settings = service.settings
        if needed.pool not in settings.pools:
            said = f"plugin {service.id} needs a token of pool {needed.pool!r}, which does not exist: "
            known_pools = ", ".join(sorted(settings.pools))
            said += f"set plugins.{service.id}.resourceQuotas.{needed.pool} (there are: {known_pools})"
            return known, system_failure(NO_POOL, said)
        key = key_of_task(task.metadata)
        known, granted = replace(known, pool=needed.pool), replace(granted, pool=needed.pool)
        limits = service.limits(needed.pool)
        asked = self.pools.ask(service.id, needed.pool, key, task.metadata, limits, lambda: self._setup.wake(key))
        if asked.has:
            self._again(task)
            return granted, queued(f"it has a token of pool {needed.pool}")
        if asked.failure:
            return known, failed(TIMED_OUT, asked.failure)
        wait = self.pools.wait(key)
        why = "its turn has not come" if wait is None else wait.why
        return known, waiting(f"waits for a token of pool {needed.pool}: {why}", wait)

    def _acquired(self, task: TaskContext, service: Service, known: WebState) -> tuple[WebState, PhaseInfo]:
        """Wait until the create may be sent; that it is about to be is stored before."""
        launch = self._launch(task, service, resumes=False)
        if launch.ready:
            self._again(task)
            known = replace(known, stage=Stage.CREATE_REQUESTED)
        return known, queued(launch.reason)

    def _requested(self, task: TaskContext, service: Service, known: WebState) -> tuple[WebState, PhaseInfo]:
        """Have the create sent, and take its outcome."""
        key = key_of_task(task.metadata)
        launch = self._launch(task, service, resumes=key not in self._launches)
        launch.stored()
        if launch.created is not None:
            created = launch.created
            del self._launches[key]
            known = replace(known, stage=Stage.RESOURCES_CREATED, meta=created.meta)
            info = None
            if created.resource is not None:
                with suppress(PluginBugError, TaskSpecError):  # the job exists; its first read says what is wrong
                    info = service.status(StatusContext(task, created.meta, self._now()), created.resource)
                if info is not None and info.phase is Phase.UNDEFINED:  # its first read may know more
                    info = None
            self._again(task)
            if info is not None and info.phase.is_terminal:
                return known, info
            self._follow(task, service, known, info)
            return known, _begins(info or queued("its job was created"))
        if launch.end is not None:
            del self._launches[key]
            return known, launch.end
        if launch.over:  # it was stopped
            del self._launches[key]
        return known, queued(launch.reason)

    def _created(self, task: TaskContext, service: Service, known: WebState) -> tuple[WebState, PhaseInfo]:
        """Report what the job was last read as."""
        key = key_of_task(task.metadata)
        service.free_seat(key)
        job = self._follow(task, service, known, None)
        if job.failures > service.settings.caching.max_system_failures:
            said = f"its job could not be read {job.failures} times in a row: {job.error}"
            return known, system_failure(REFRESH_FAILED, said, cleanup=True)
        if job.info is None:
            trouble = f"; it can't be read now: {job.error}" if job.error else ""
            return known, known.holding(f"its job was created, and its state has not been read yet{trouble}")
        if job.info.phase is Phase.UNDEFINED:
            return known, known.holding(job.info.reason or "its state is unknown")
        if job.error and not job.info.phase.is_terminal:
            return known, job.info.with_reason(f"its job can't be read now: {job.error}")
        return known, _begins(job.info)

    _STEPS: Final[
        Mapping[Stage, Callable[[WebManager, TaskContext, Service, WebState], tuple[WebState, PhaseInfo]]]
    ] = {
        Stage.NOT_STARTED: _not_started,
        Stage.ALLOCATION_TOKEN_ACQUIRED: _acquired,
        Stage.CREATE_REQUESTED: _requested,
        Stage.RESOURCES_CREATED: _created,
    }

    async def _aborted(
        self, task: TaskContext, service: Service, known: WebState, reason: str
    ) -> tuple[WebState, PhaseInfo]:
        """End the job, if there is one; a create that was sent is answered first."""
        key = key_of_task(task.metadata)
        deletion = self._deletions.get(key)
        if known.meta is None and deletion is not None:
            known = replace(known, stage=Stage.RESOURCES_CREATED, meta=deletion.meta)
        if known.meta is None:
            known, info = await self._launch_ended(task, service, known)
            if info is not None:
                return known, info
        deletion = self._deletion(task, service, known.meta, reason)
        if not deletion.done:
            return known, not_ready(f"the abort continues: {deletion.reason}")
        return known, aborted("aborted: its job was deleted")

    async def _launch_ended(
        self, task: TaskContext, service: Service, known: WebState
    ) -> tuple[WebState, PhaseInfo | None]:
        """End the create, and return what is to be reported; None: there is a job, which is to be deleted.

        Of a create that was sent and not answered, a plugin that can look the job up does; one whose create may be
        repeated is asked for the job by another create.
        """
        key = key_of_task(task.metadata)
        launch = self._launches.get(key)
        sent = launch is None and known.stage is Stage.CREATE_REQUESTED
        if launch is None and (service.is_sync or not sent):
            said = ": its call may have been carried out" if sent else " before its job was created"
            return known, aborted(f"aborted{said}")
        launch = self._launch(task, service, resumes=sent)
        if not await launch.give_up(self._endings[key]):
            return known, known.holding(f"the abort continues: {launch.reason}")
        del self._launches[key]
        if launch.created is not None:
            return replace(known, stage=Stage.RESOURCES_CREATED, meta=launch.created.meta), None
        if launch.end is None:
            return known, aborted("aborted before its job was created")
        if launch.end.phase is Phase.SUCCESS:
            return known, launch.end
        return replace(known, doubt=launch.doubt), aborted(f"aborted; no job of it is known ({launch.end.reason})")

    # -- its own ---------

    def _read(self, task: TaskContext, state: JSON | None) -> WebState:  # noqa: ARG002
        return read_state(state)

    async def _worker(self, task: TaskContext, known: WebState) -> Service:
        """Return the loaded plugin of a task. Raises ``PluginError``."""
        entry = self._find(known.plugin, task.type)
        service = self._services.get(entry.id)
        if service is None:
            again, said = self._unloadable.get(entry.id, (0.0, ""))
            if self._loop.time() < again:
                raise LoadError(said)
            section = self._setup.settings
            try:
                service = Service(entry, lambda: section(entry.id), self.counts, self._setup.wake)
                self._services[entry.id] = service
                service.load()
            except LoadError as error:
                self._unloadable[entry.id] = self._loop.time() + LOAD_AGAIN, str(error)
                if (service := self._services.pop(entry.id, None)) is not None:
                    await service.aclose()
                raise
        service.follow_entry(entry)
        if service.follow_settings():
            for pool in service.settings.pools:
                self.pools.limit(service.id, pool, service.limits(pool))
        return service

    async def _step(self, task: TaskContext, worker: Service, known: WebState) -> tuple[WebState, PhaseInfo]:
        return self._STEPS[known.stage](self, task, worker, known)

    def _meaning(self, known: WebState, error: Exception) -> PhaseInfo:
        if isinstance(error, TaskSpecError):
            return failed(BAD_TASK, str(error))
        if isinstance(error, PluginError) and known.stage in (Stage.CREATE_REQUESTED, Stage.RESOURCES_CREATED):
            return known.holding(f"{error}; it is tried again")  # its job lives on at the service
        if isinstance(error, PluginBugError | LoadError):
            return system_failure(PLUGIN_FAILED, str(error), cleanup=known.meta is not None)
        return failed(NO_PLUGIN, str(error))

    def _launch(self, task: TaskContext, service: Service, *, resumes: bool) -> Launch:
        key = key_of_task(task.metadata)
        launch = self._launches.get(key)
        if launch is None:
            launch = self._launches[key] = Launch(
                service, key, self._context(task), self._may_create, self._setup.wake, resumes=resumes
            )
        return launch

    def _deletion(self, task: TaskContext, service: Service, meta: Any, reason: str) -> Deletion:
        key = key_of_task(task.metadata)
        deletion = self._deletions.get(key)
        if deletion is None or (deletion.task.done() and not deletion.done):
            service.forget(key)
            deletion = self._deletions[key] = Deletion(
                service, key, self._context(task), meta, reason, self._endings[key], self._setup.wake
            )
        return deletion

    def _ending(self, task: TaskContext, known: WebState) -> tuple[WebState, Ending]:
        """Return what the tries to end a job have met, and the state with the time from which on it is to end."""
        key = key_of_task(task.metadata)
        known = known if known.ending else replace(known, ending=self._unix_now())
        if key not in self._endings:
            self._endings[key] = Ending(self._patience, self._unix_now() - known.ending, self._loop.time)
        return known, self._endings[key]

    def _unix_now(self) -> float:
        return self._now().timestamp()

    def _left(self, task: TaskContext, known: WebState, ending: Ending) -> str:
        """Return, and log, what may still run."""
        about = task.metadata
        if known.meta is None:
            job = f"a job with the key {about.uid}/{about.attempt}"
        else:
            job = f"job {json.dumps(known.meta, ensure_ascii=False)[:META_SHOWN]}"
        left = f"{job} of plugin {known.plugin} may still run: ending it failed {ending.tries} times ({ending.said})"
        log.warning("task %s/%s has ended, but %s", about.namespace, about.name, printable(left))
        return left

    def _follow(self, task: TaskContext, service: Service, known: WebState, info: PhaseInfo | None) -> Job:
        meta = known.meta

        async def read() -> PhaseInfo:
            context = self._context(task)  # anew, so that its secrets are kept for one read
            limit = service.settings.call_timeout
            try:
                resource = await service.call("get", lambda: service.asynchronous.get(context, meta), context, limit)
            except Exception as error:
                if is_network_fault(error) or (isinstance(error, RemoteError) and error.status in OVERLOADED):
                    raise NetworkFaultError(str(error) or "it has not answered in time") from error
                raise
            return hidden_in(context, service.status(StatusContext(task, meta, self._now()), resource))

        return service.follow(key_of_task(task.metadata), task, meta, read, info)

    def _context(self, task: TaskContext) -> CallContext:
        about = task.metadata
        return CallContext(task, f"{about.uid}/{about.attempt}", TaskSecrets(task, self._secret))

    async def _secret(self, name: str, namespace: str, secret: str, key: str) -> str:
        """Read a secret of a namespace. Raises ``SecretError``, and network faults."""
        if self._cluster is None:
            self._cluster = await self._stack.enter_async_context(ClusterSession(self._setup.configuration))
        where = f"spec.secrets.{name}: secret {namespace}/{secret}"
        try:
            path = path_to("/api/v1", "secrets", namespace=namespace, name=secret)
        except PathError as error:
            raise SecretError(f"{where} can't exist: {error}") from None
        async with await self._cluster.request("GET", path, timeout=SECRET_SECONDS) as answer:
            status, body = answer.status, await answer.read()
        if status == 429 or status >= 500:
            raise aiohttp.ClientError(f"the API server answered {status} to a read of a secret")
        if status != 200:
            why = "does not exist" if status == 404 else f"can't be read: the API server answers {status}"
            raise SecretError(f"{where} {why}")
        encoded = mapping_in(read_json(body), "data").get(key)
        if not isinstance(encoded, str):
            raise SecretError(f"{where} has no key {key}")
        try:
            return base64.b64decode(encoded, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise SecretError(f"{where}: the value of key {key} is no text") from None

    def _again(self, task: TaskContext) -> None:
        """Have the next step made as soon as this one is stored."""
        self._loop.call_soon(self._setup.wake, key_of_task(task.metadata))

    def _said(self, task: TaskContext, known: WebState, info: PhaseInfo, plugin: str = "") -> Handled:
        plugin = plugin or known.plugin
        return super()._said(task, replace(known, plugin=plugin), storable(info), plugin)

    def _ended(self, task: TaskContext, known: WebState, info: PhaseInfo) -> WebState:
        known = replace(known, stage=_final_stage(known.stage, info))
        if not info.cleanup_on_failure:
            self._forget(key_of_task(task.metadata))
            self.pools.release(key_of_task(task.metadata))
            return known
        return known if known.ending else replace(known, ending=self._unix_now())

    def _forget(self, key: Key) -> None:
        for service in self._services.values():
            service.forget(key)
            service.free_seat(key)
        self._endings.pop(key, None)
        deletion = self._deletions.pop(key, None)
        if deletion is not None:
            deletion.task.cancel()
        launch = self._launches.pop(key, None)
        if launch is not None and not launch.over:
            launch.cancel()


def _begins(info: PhaseInfo) -> PhaseInfo:
    """Return a phase with a reason at least while the job has not begun: a sentence of before would be wrong by now."""
    begins = info.phase in STARTING and not info.reason
    return info.with_reason("its job was created, and has not begun yet") if begins else info


def _final_stage(stage: Stage, info: PhaseInfo) -> Stage:
    if info.phase is Phase.SUCCESS:
        return Stage.SUCCEEDED
    if info.error is None:  # aborted
        return stage
    return Stage.SYSTEM_FAILURE if info.error.kind == "SYSTEM" else Stage.USER_FAILURE
