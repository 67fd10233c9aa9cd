"""The webhook's server: answers AdmissionReviews over TLS, keeps its certificates, counts what it did.

It never refuses a pod, and is quick to answer: nothing is asked of the cluster on the way of a review.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from aiohttp import web

from backoff_ctrl.k8s.watching.reading import WatchAbsentError, WatchBrokenError, WatchForbiddenError
from backoff_ctrl.k8s.watching.source import ClusterSource

from .counting import Counts, pods_without_sidecar
from .keeping import Keeper, KeepingError, Place
from .review import ReviewError, answer
from .sidecar import SidecarSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from backoff_ctrl.k8s.cluster.session import ClusterSession

    from .certificates import Kept

LOOK_EVERY: Final = 10.0
"""Seconds between looks at the certificates."""
COUNT_EVERY: Final = 15.0
"""Seconds between counts of labelled pods."""
BODY_MAX: Final = 8 << 20
"""Bytes of a review: a pod of 1.5 MiB, the old one beside it, and what JSON adds."""
_logger = logging.getLogger("backoff_ctrl")


@dataclass(frozen=True, slots=True)
class InjectionSettings:
    """What a webhook needs. Either ``place``, where it keeps certificates of its own, or ``files``, those of others."""

    listen: tuple[str, int]
    probe_listen: tuple[str, int] | None = None
    sidecar: SidecarSettings = field(default_factory=SidecarSettings)
    place: Place | None = None
    files: tuple[Path, Path] | None = None
    who: str = "backoff-ctrl"


class Webhook:
    """One replica."""

    def __init__(
        self,
        settings: InjectionSettings,
        session: ClusterSession,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``session`` is open, with the account of this replica."""
        self._clock = clock
        self._settings = settings
        self._session = session
        self.counts = Counts()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.why_not = "its certificates were not read yet"
        """Why it is not ready; empty: it is."""
        self._loaded: object = None
        self._version: tuple[int, int] | None = None

    async def review(self, request: web.Request) -> web.Response:
        """Answer an AdmissionReview."""
        try:
            document, namespace, what = answer(await request.read(), self._settings.sidecar, self._version)
        except ReviewError as error:
            self.counts.malformed += 1
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        self.counts.count(namespace, what.outcome)
        return web.json_response(document)

    async def look(self) -> None:
        """Read the certificates once; load what has changed. What fails is said by ``why_not``, and tried again."""
        try:
            if self._settings.place is not None:
                await self._load_kept(await self._turn(self._settings.place))
            elif self._settings.files is not None:
                await asyncio.to_thread(self._load_files, *self._settings.files)
            self.why_not = ""
        except (KeepingError, OSError) as error:  # ssl.SSLError is an OSError
            if self._loaded is None:  # else the old certificate serves on
                self.why_not = str(error)
            _logger.warning("the webhook's certificates: %s", error)

    async def learn_version(self) -> None:
        """Ask which version of Kubernetes this is."""
        with suppress(Exception):
            async with await self._session.request("GET", "/version", timeout=10) as response:
                said = await response.json()
                self._version = int(said["major"]), int("".join(filter(str.isdigit, said["minor"])))

    async def count(self) -> None:
        """Count the labelled pods without a sidecar."""
        try:
            self.counts.listed(await pods_without_sidecar(ClusterSource(self._session)))
        except (WatchBrokenError, WatchForbiddenError, WatchAbsentError) as error:
            self.counts.without = None
            _logger.warning("labelled pods without a sidecar can't be counted: %s", error)

    async def _turn(self, place: Place) -> Kept:
        return await Keeper(self._session, place, self._settings.who, self._clock).turn()

    async def _load_kept(self, kept: Kept) -> None:
        if kept.leaf and (kept.leaf, kept.key) != self._loaded:
            await asyncio.to_thread(self._load_pem, kept.key + kept.leaf)
            self._loaded = kept.leaf, kept.key

    def _load_pem(self, pem: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file:  # mode 0600; ssl reads nothing but files
            file.write(pem)
            file.flush()
            self.context.load_cert_chain(file.name)

    def _load_files(self, certificate: Path, key: Path) -> None:
        content = certificate.read_bytes(), key.read_bytes()
        if content != self._loaded:
            self.context.load_cert_chain(certificate, key)
            self._loaded = content


async def serve(webhook: Webhook, settings: InjectionSettings, over: asyncio.Event, say: Callable[[str], None]) -> None:
    """Serve until ``over`` is set."""
    async with AsyncExitStack() as ends:
        await webhook.look()
        for step, pause in ((webhook.look, LOOK_EVERY), (webhook.count, COUNT_EVERY), (webhook.learn_version, 600)):
            ends.callback(asyncio.create_task(_again(step, pause)).cancel)
        app = web.Application(client_max_size=BODY_MAX)
        app.add_routes([web.post("/inject", webhook.review), *_probes(webhook)])
        url = await _bound(app, settings.listen, webhook.context, ends)
        if settings.probe_listen is not None:
            probes = web.Application()
            probes.add_routes(_probes(webhook))
            await _bound(probes, settings.probe_listen, None, ends)
        say(f"listening on {url}")
        await over.wait()


async def _again(step: Callable[[], Awaitable[None]], pause: float) -> None:
    while True:
        await step()
        await asyncio.sleep(pause)


async def _bound(
    app: web.Application, address: tuple[str, int], context: ssl.SSLContext | None, ends: AsyncExitStack
) -> str:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=5)
    await runner.setup()
    ends.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, *address, ssl_context=context).start()
    host, port = runner.addresses[0][:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if context else 'http'}://{shown}:{port}"


def _probes(webhook: Webhook) -> list[web.RouteDef]:
    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text=f"{webhook.why_not or 'ok'}\n", status=503 if webhook.why_not else 200)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=webhook.counts.metrics(), headers={"Content-Type": "text/plain; version=0.0.4"})

    return [web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", metrics)]
