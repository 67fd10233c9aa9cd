"""The webhooks' server: answers AdmissionReviews over TLS, keeps its certificates, counts reviews.

It never refuses a pod or a Job, and answers quickly: such a review causes no request to the cluster. That of a Task
asks the cluster what its author may do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import aiohttp
from aiohttp import web

from backoff_ctrl.api.connections import serving_at
from backoff_ctrl.api.probes import probes
from backoff_ctrl.k8s.kube.cluster.rights import OwnRights, injection, webhooks
from backoff_ctrl.k8s.kube.watching.informer import ClusterSource
from backoff_ctrl.k8s.kube.watching.objects import WatchAbsentError, WatchBrokenError, WatchForbiddenError
from backoff_ctrl.k8s.sidecar.certificates import CertificatesError, ClientAuthority, GivenCertificate, has_certificate
from backoff_ctrl.k8s.workloads.admitting.kinds import KINDS, AdmissibleKind

from .counting import Counts, Listed, Reviews, pods_without_sidecar
from .review import ReviewError, answer
from .sidecar import JSON, SidecarSettings
from .suspending import answer_about_job, ungated

if TYPE_CHECKING:  # certificates of its own need a package that a webhook with given ones does not
    from pathlib import Path

    from backoff_ctrl.k8s.kube.cluster.session import ClusterSession

    from .certificates import Installation, KeptCertificate
    from .task_review import TaskReviews

ANSWER_WITHIN: Final = 10.0
"""Seconds for the API server's answers to the webhook's own requests."""
LOOK_EVERY: Final = 10.0
"""Seconds between checks of the certificates."""
COUNT_EVERY: Final = 15.0
"""Seconds between counts of labelled pods."""
RIGHTS_EVERY: Final = 60.0
"""Seconds between questions about the rights of its account."""
VERSION_EVERY: Final = 600.0
"""Seconds between checks of the API server's version, which may be upgraded meanwhile."""
BODY_MAX: Final = 8 << 20
"""Bytes of a review: a pod of 1.5 MiB, the old one beside it, and what JSON adds."""
ALL_MAX: Final = 2 * BODY_MAX
"""Bytes of the bodies of all reviews under way."""
SMALL: Final = 64 << 10
"""Bytes of a body that is taken in any case: as many connections as may be hold 16 MiB of such ones."""
PATIENCE: Final = 5.0
"""Seconds in which a body has to arrive."""
SUSPEND: Final = "/suspend"
"""Where the API server asks about objects that carry the label."""
SUSPEND_ALL: Final = "/suspend-all"
"""Where it asks about all objects of a namespace that carries the label."""
VALIDATE_TASKS: Final = "/validate-tasks"
Answered: TypeAlias = tuple[JSON, str, str]
"""The answer to a review, the namespace that it was about, and the outcome as a word."""
Step: TypeAlias = Callable[[bytes], Awaitable[Answered]]
"""Answers the review in a body. Raises ``ReviewError``."""
_logger = logging.getLogger("backoff_ctrl")


class Bodies:
    """The bodies of reviews under way, within bounds: any client that reaches the port may send one.

    If there are too many, the slowest that still arrives is given up for a new one: an API server sends its whole
    request at once, so a slow one comes from another client. Where all of them have arrived, and wait for their
    answers, only a small one is still taken.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        """``patience``: seconds in which a body has to arrive."""
        self._patience = patience
        self._arriving: dict[asyncio.Timeout, int] = {}
        self._answered = 0
        """Bytes of those that have arrived."""

    @asynccontextmanager
    async def of(self, request: web.Request) -> AsyncIterator[bytes]:
        """Read a request's body, and count it within the block.

        Raises an HTTP answer for one that is too large, too slow, or one too many.
        """
        size = BODY_MAX if request.content_length is None else request.content_length
        if size > BODY_MAX:
            raise web.HTTPRequestEntityTooLarge(BODY_MAX, size)
        if size > SMALL and self._answered + size > ALL_MAX:
            raise web.HTTPServiceUnavailable(text="too many reviews are under way\n")
        body = await self._read(request, size)
        size = len(body)
        self._answered += size
        try:
            yield body
        finally:
            self._answered -= size

    async def _read(self, request: web.Request, size: int) -> bytes:
        try:
            async with asyncio.timeout(self._patience) as limit:
                self._arriving[limit] = size
                self._make_room()
                try:
                    return await _whole(request)
                finally:
                    self._arriving.pop(limit, None)
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the body took too long\n") from None

    def _make_room(self) -> None:
        for longest, size in list(self._arriving.items())[:-1]:
            if self._answered + sum(self._arriving.values()) <= ALL_MAX:
                return
            if size > SMALL:
                del self._arriving[longest]
                if not longest.expired():
                    longest.reschedule(asyncio.get_running_loop().time())


async def _whole(request: web.Request) -> bytes:
    """Return a body.

    Unlike ``request.read`` it leaves no copy at the request, which lives as long as its connection.
    """
    parts, size = list[bytes](), 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > BODY_MAX:
            raise web.HTTPRequestEntityTooLarge(BODY_MAX, size)
        parts.append(part)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class InjectionSettings:
    """The settings of a webhook. Its certificates are its own, by ``installation``, or given, by ``files``."""

    listen: tuple[str, int]
    probe_listen: tuple[str, int] | None = None
    sidecar: SidecarSettings = field(default_factory=SidecarSettings)
    installation: Installation | None = None
    files: tuple[Path, Path] | None = None
    who: str = "backoff-ctrl"
    drain: float = 0.0
    """Seconds that it keeps serving at the end, until all nodes have updated its Service."""
    excluded: tuple[str, ...] = ()
    """Namespaces in which the webhook is not called: their pods need no sidecar, and their Jobs do not wait."""
    pods: bool = True
    """Whether it gives pods the sidecar."""
    jobs: bool = False
    """Whether it suspends Jobs."""
    kinds: Sequence[AdmissibleKind] = KINDS
    """What it suspends then."""
    operators: tuple[str, ...] = ()
    """The user names of the operators, whose Tasks have reserved room for what they create."""
    client_ca: Path | None = None
    """The authorities of API servers' client certificates; None: any client gets an answer."""


def _certificate(
    settings: InjectionSettings, session: ClusterSession, clock: Callable[[], datetime]
) -> GivenCertificate | KeptCertificate:
    """Return the listener's certificate. Raises ``CertificatesError``."""
    if settings.installation is None:
        assert settings.files is not None, "either an installation or files"
        return GivenCertificate(*settings.files)
    from .certificates import Keeper, KeptCertificate  # noqa: PLC0415 - needs cryptography

    return KeptCertificate(Keeper(session, settings.installation, settings.who, clock))


class Webhook:
    """One replica of the webhook: its certificate, its counters, and whether it is ready."""

    def __init__(
        self,
        settings: InjectionSettings,
        session: ClusterSession,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        tasks: TaskReviews | None = None,
    ) -> None:
        """``session`` is open, with the account of this replica. ``tasks`` judges Tasks; None: it is not asked.

        Raises ``CertificatesError``.
        """
        self._tasks = tasks
        self._settings = settings
        self._session = session
        self.counts = Counts(pods=settings.pods, beside_operator=settings.jobs or tasks is not None)
        self._bodies = Bodies()
        self._certificate = _certificate(settings, session, clock)
        self.context = self._certificate.context
        ca = settings.client_ca
        self._clients = None if ca is None else ClientAuthority(ca, self.context)
        self.why_not = "its certificates were not read yet"
        """Why it is not ready; empty: it is."""
        self.leaving = False
        """Whether it ends soon: it is no longer ready, and closes connections so that API servers reconnect."""
        own = settings.installation
        kept = None if own is None else {"namespace": own.namespace, "kept": own.secret, "webhook": own.webhook}
        rights = injection(kept) if settings.pods else webhooks(kept, [each.resource for each in settings.kinds])
        self.rights = OwnRights(session.review, rights)
        """What its account lacks, with the consequences. It is ready all the same."""
        self._said = ""
        self._version: tuple[int, int] | None = None

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of what it was asked to do."""
        counts, found = self.counts, list[tuple[str, Step, Reviews]]()
        if self._settings.pods:
            found.append(("/inject", self._about_pod, counts.pods))
        if self._settings.jobs:
            found.append((SUSPEND, partial(self._about_job, whole_namespace=False), counts.jobs))
            found.append((SUSPEND_ALL, partial(self._about_job, whole_namespace=True), counts.jobs))
        if self._tasks is not None:
            found.append((VALIDATE_TASKS, partial(_about_task, self._tasks), counts.tasks))
        return [web.post(path, partial(self.review, step, reviews)) for path, step, reviews in found]

    async def review(self, step: Step, reviews: Reviews, request: web.Request) -> web.Response:
        if self._clients is not None and not has_certificate(request.transport):
            raise web.HTTPForbidden(text="reviews are answered to API servers, which show a client certificate\n")
        try:
            async with self._bodies.of(request) as body:
                document, namespace, outcome = await step(body)
        except ReviewError as error:
            reviews.malformed += 1
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        reviews.count(namespace, outcome)
        response = web.json_response(document)
        if self.leaving:
            response.force_close()
        return response

    async def _about_pod(self, body: bytes) -> Answered:
        document, namespace, what = answer(body, self._settings.sidecar, self._version)
        return document, namespace, what.outcome

    async def _about_job(self, body: bytes, *, whole_namespace: bool) -> Answered:
        given = self._settings
        return answer_about_job(body, whole_namespace=whole_namespace, kinds=given.kinds, accounts=given.operators)

    async def look(self) -> None:
        """Read the certificates once; load changes. ``why_not`` reports a failure, which is retried."""
        trouble = ""
        try:
            if isinstance(self._certificate, GivenCertificate):
                await asyncio.to_thread(self._certificate.renew)
            else:
                await self._certificate.renew()
            if self._clients is not None:
                await asyncio.to_thread(self._clients.renew)
        except (CertificatesError, OSError) as error:  # ssl.SSLError is an OSError
            trouble = str(error)
            if trouble != self._said:
                _logger.warning("the webhook's certificates: %s", trouble)
        self._said = trouble
        ends = self._certificate.ends
        self.counts.certificate_ends = None if ends is None else ends.timestamp()
        if not trouble or self.why_not:  # a loaded certificate stays in use
            self.why_not = trouble

    async def learn_version(self) -> None:
        """Ask for the version of Kubernetes; until it answers, any version is possible."""
        try:
            async with await self._session.request("GET", "/version", timeout=ANSWER_WITHIN) as response:
                said = await response.json()
                self._version = int(said["major"]), int("".join(filter(str.isdigit, said["minor"])))
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError) as error:
            _logger.info("the API server's version is not known yet: %s", str(error) or type(error).__name__)

    async def count(self) -> None:
        """Count the labelled pods without a sidecar, and the Jobs that run ungated."""
        source, excluded = ClusterSource(self._session), self._settings.excluded
        if self._settings.pods:
            await _counted(
                self.counts.without, "labelled pods without a sidecar", pods_without_sidecar(source, excluded)
            )
        if self._settings.jobs:
            kinds = self._settings.kinds
            await _counted(self.counts.ungated, "Jobs that run ungated", ungated(source, excluded, kinds))


async def _about_task(tasks: TaskReviews, body: bytes) -> Answered:
    return await asyncio.to_thread(tasks.answer, body)


async def _counted(into: Listed, what: str, counting: Awaitable[Counter[str]]) -> None:
    try:
        into.take(await counting)
    except (WatchBrokenError, WatchForbiddenError, WatchAbsentError) as error:
        into.forget()
        _logger.warning("%s can't be counted: %s", what, error)


async def serve(webhook: Webhook, settings: InjectionSettings, over: asyncio.Event, say: Callable[[str], None]) -> None:
    """Serve until ``over`` is set."""
    async with AsyncExitStack() as ends:
        await asyncio.gather(webhook.look(), webhook.learn_version(), webhook.rights.ask())
        for step, pause in (
            (webhook.look, LOOK_EVERY),
            (webhook.count, COUNT_EVERY),
            (webhook.learn_version, VERSION_EVERY),
            (webhook.rights.ask, RIGHTS_EVERY),
        ):
            ends.callback(asyncio.create_task(_again(step, pause)).cancel)
        app = web.Application(client_max_size=BODY_MAX)
        app.add_routes(webhook.routes())
        if settings.probe_listen is None:  # else not here: this port is open to all, and metrics name namespaces
            app.add_routes(_probes(webhook))
        url = await serving_at(app, settings.listen, "--listen", webhook.context, ends)
        if settings.probe_listen is not None:
            beside = web.Application()
            beside.add_routes(_probes(webhook))
            await serving_at(beside, settings.probe_listen, "--probe-listen", None, ends)
        say(f"listening on {url}")
        await over.wait()


async def _again(step: Callable[[], Awaitable[None]], pause: float) -> None:
    """Repeat a step. An error in one must not end the others: certificates would never change again."""
    while True:
        await asyncio.sleep(pause)
        try:
            await step()
        except Exception:
            _logger.exception("a step of the webhook failed, and is retried")


def _probes(webhook: Webhook) -> list[web.RouteDef]:
    def ready() -> tuple[bool, list[str]]:
        why_not = "it ends" if webhook.leaving else webhook.why_not
        return not why_not, [why_not or "ok", *webhook.rights.lacking]

    async def metrics() -> bytes:
        return webhook.counts.metrics().encode()

    return probes(ready, metrics)
