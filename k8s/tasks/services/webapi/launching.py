"""One create of a job in the background: it waits until the service may be asked, is sent, and tried again.

That it is about to be sent is stored in between: the launch says ``ready``, its manager returns the stage
``CREATE_REQUESTED``, and the call is made once the manager comes back with that stage. A launch that *resumes* begins
with an attempt that was found in that stage: an earlier process may have sent the create. Then the plugin looks for the
job, or the create is sent again if that is harmless, or the attempt ends in doubt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from backoff_ctrl.k8s.kube.operators.phases import Phase
from backoff_ctrl.k8s.tasks.plugins.core import Key
from backoff_ctrl.k8s.tasks.plugins.phases import PLUGIN_FAILED, PhaseInfo, system_failure
from backoff_ctrl.k8s.tasks.plugins.protocol import PluginBugError
from backoff_ctrl.k8s.tasks.plugins.web_protocol import CallContext, Created, Finds

from .ending import Ending
from .outcomes import CREATE_IN_DOUBT, Judged, flaw_of_answer, in_doubt, judge_create
from .pacing import Access, Slot, pauses
from .secrets import hidden_in
from .service import Service

log = logging.getLogger(__name__)


class Launch:
    """A create under way. At its end it has ``created`` a job, or an ``end``; neither: it was stopped."""

    def __init__(
        self,
        service: Service,
        key: Key,
        context: CallContext,
        may_create: Callable[[], bool],
        wake: Callable[[Key], object],
        *,
        resumes: bool,
    ) -> None:
        """Begin. ``wake`` is called with the key when there is news. ``resumes``: it may have been sent before."""
        self.created: Created | None = None
        self.end: PhaseInfo | None = None
        self.ready = False
        """Whether it will be sent as soon as that is stored."""
        self.reason = "its turn to be sent has not come yet"
        self.doubt = resumes
        """Whether a job may exist although there is no answer."""
        self._service = service
        self._key = key
        self._context = context
        self._may_create = may_create
        self._wake = wake
        self._stored = asyncio.Event()
        self._calling = False
        self._stopped = False
        self._unwanted: Ending | None = None
        if resumes:
            self._stored.set()
        self._task = asyncio.create_task(self._run())

    @property
    def calling(self) -> bool:
        """Whether a create is sent and not answered. A synchronous call, which may take hours, does not count."""
        return self._calling and not self._service.is_sync

    @property
    def over(self) -> bool:
        return self._task.done() or self.created is not None or self.end is not None

    def stored(self) -> None:
        """Send it: that it is about to be sent is stored."""
        self._stored.set()

    def cancel(self) -> None:
        """End it at once: its attempt has ended."""
        self._stopped = True
        self._task.cancel()

    async def give_up(self, ending: Ending) -> bool:
        """Stop creating, since the attempt is aborted. Return whether the launch has ended; if not, call again at news.

        A call under way is answered first. If a job may exist, the launch goes on until that is known; ``ending``
        counts the tries that fail.
        """
        self._unwanted = ending
        if self._service.is_sync or not (self.doubt or self._calling):
            self._stopped = True
            self._task.cancel()
            await asyncio.wait({self._task})
        return self.over

    async def stop(self, patience: float) -> None:
        """End it. A call that was made is answered first, or given up after ``patience`` seconds."""
        self._stopped = True
        if self._calling and not self._service.is_sync:
            await asyncio.wait({self._task}, timeout=patience)
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        between = pauses()
        try:
            while not self._stopped:
                if self.doubt and await self._is_settled():
                    return
                if self._unwanted and not self.doubt:
                    return
                slot = await self._turn()
                judged = await self._send(slot)
                if judged is None:
                    return
                if judged.failure is not None:
                    await self._fail(judged.failure)
                    return
                self.reason = f"{judged.reason}; it is tried again"
                self._wake(self._key)
                await between.after_failure()
        except asyncio.CancelledError:
            if not self._stopped:
                raise
        except Exception as error:
            log.exception("an internal error ended the create of a job of plugin %s", self._service.id)
            self.end = system_failure(PLUGIN_FAILED, f"an internal error of the manager: {error!r}")
        finally:
            self._wake(self._key)

    async def _turn(self) -> Slot:
        """Wait until it may be sent, and that is stored."""
        await self._room()
        origin = self._service.origin(self._context.task)
        await origin.pacer.opened()
        # Before its slot: a create in doubt frees its seat by a read, which needs a slot, too.
        await self._service.take_seat(self._key, origin)
        slot = await origin.pacer.enter(Access.WRITE)
        try:
            self.ready = True
            self.reason = "its call is being made" if self._service.is_sync else "its job is being created"
            self._wake(self._key)
            await self._stored.wait()
        except BaseException:
            slot.end(used=False)
            raise
        return slot

    async def _room(self) -> None:
        """Wait until its job may be followed; one that may exist already is."""
        service, namespace = self._service, self._context.task.metadata.namespace
        if self.doubt:
            service.adopt_room(self._key, namespace)
            return
        if not service.take_room_now(self._key, namespace):
            before, size = self.reason, service.settings.caching.size
            self.reason = (
                f"waits for another job to end: {size} may be followed (plugins.{service.id}.caching.size), "
                "and a namespace has at most as many of them as it leaves free"
            )
            self._wake(self._key)
            await service.take_room(self._key, namespace)
            self.reason = before

    async def _send(self, slot: Slot) -> Judged | None:
        """Send the create once. Return what an error means; None after a success."""
        if not self._may_create():
            slot.end(used=False)
            return Judged("another manager may have the store now")
        service, error = self._service, None
        self._calling = True
        try:
            if service.is_sync:
                self.end = await self._do()
            else:
                limit = service.settings.call_timeout
                made = await service.call(
                    "create", lambda: service.asynchronous.create(self._context), self._context, limit
                )
                self.created = service.checked("create", made)
        except asyncio.CancelledError:
            self.doubt = True
            raise
        except Exception as wrong:  # noqa: BLE001 - judged below
            error = wrong
        finally:
            self._calling = False
            slot.end(error)
        if error is None:
            self.doubt = False
            return None
        self._failed(error)
        judged = judge_create(service.id, error)
        self.doubt = self.doubt or judged.sent
        return judged

    async def _fail(self, failure: PhaseInfo) -> None:
        """End so, unless there is a job all the same. If that is unknown, no attempt follows: it would make another."""
        plugin = self._service.plugin
        if self.doubt and isinstance(plugin, Finds) and await self._found(plugin):
            return
        if self.doubt and failure.phase is Phase.RETRYABLE_FAILURE and not self._service.is_sync:
            bug = failure.error is not None and failure.error.code == PLUGIN_FAILED
            failure = in_doubt(self._service.id, failure.reason, PLUGIN_FAILED if bug else CREATE_IN_DOUBT)
        self.end = failure

    async def _do(self) -> PhaseInfo:
        said: PhaseInfo = await self._service.call(
            "do", lambda: self._service.synchronous.do(self._context), self._context
        )
        if flaw := flaw_of_answer(said):
            raise PluginBugError(self._service.id, "do", TypeError(flaw))
        if not said.phase.is_terminal:
            raise PluginBugError(self._service.id, "do", TypeError(f"it returned {said.phase.title}, which is no end"))
        return hidden_in(self._context, said)

    async def _is_settled(self) -> bool:
        """Return whether it is over, although its create had no answer: the job was found, or can't be repeated."""
        plugin, service = self._service.plugin, self._service
        if isinstance(plugin, Finds):
            return await self._found(plugin)
        if service.own.idempotent:
            return False
        self.end = in_doubt(service.id, f"a create was sent and not answered ({self.reason})")
        return True

    def _failed(self, error: Exception) -> None:
        if self._unwanted is not None:
            self._unwanted.failed(error)

    async def _found(self, plugin: Finds) -> bool:
        """Look for the job until the service answers; say whether there is one."""
        service, between = self._service, pauses()
        while True:
            slot, error = await service.origin(self._context.task).pacer.enter(Access.READ), None
            try:
                limit = service.settings.call_timeout
                found = await service.call("find", lambda: plugin.find(self._context), self._context, limit)
                if found is not None:
                    self.created = service.checked("find", found)
            except Exception as wrong:  # noqa: BLE001 - it is tried again
                error = wrong
            finally:
                slot.end(error)
            if error is None:
                self.doubt = False
                return self.created is not None
            self._failed(error)
            self.reason = f"whether its job exists can't be looked up now: {error}; it is tried again"
            self._wake(self._key)
            await between.after_failure()
