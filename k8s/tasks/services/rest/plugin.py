"""The rest plugin: it sends the requests that a description has, and reads the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
import yarl

from backoff_ctrl.k8s.kube.answers.fields import mapping, text
from backoff_ctrl.k8s.kube.cluster.kinds import JSON
from backoff_ctrl.k8s.tasks.plugins.phases import PhaseInfo
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskContext, TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.web_protocol import (
    CallContext,
    Created,
    PluginConfig,
    PluginSetup,
    RateLimit,
    RemoteError,
    ResourceRequirements,
    SecretError,
    StatusContext,
)
from backoff_ctrl.k8s.tasks.services.webapi.settings import plain

from .answers import Answer, another, id_of, is_ours, message_of, phase_of, phase_of_gone, read_answer, state_of
from .parameters import checked, document_of, own_address, written
from .service_config import ID, REASON, SECRETS, URL, Answers, Rate, Request, ServiceConfig, checked_url

UNREADABLE: Final = 502
"""The status of an answer that makes no sense: what a gateway would answer in its place."""
REFUSED: Final = 400
"""The status shown for an answer that the description calls a refusal. It replaces the answer's own status."""
SHOWN: Final = 200
"""Characters of an address that a sentence repeats."""
_HIDDEN: Final = "***"


class UnknownAddressError(ConnectionRefusedError):
    """The platform has no address of the service: no request was sent, and the task waits until that is mended."""


class _Call(NamedTuple):
    """What the requests about one job share: the service's address, and the document for templates."""

    base: str
    document: JSON
    secrets: tuple[str, ...]
    headers: Mapping[str, str]


class RestPlugin:
    """Runs the jobs of one service. What it keeps of an answer is its meaning, a ``PhaseInfo``."""

    def __init__(self, config: ServiceConfig, setup: PluginSetup) -> None:
        self.config = config
        self._setup = setup
        self._timeout = aiohttp.ClientTimeout(total=config.timeout.total_seconds())

    def get_config(self) -> PluginConfig:
        limits = self.config.limits
        return PluginConfig(
            _rate(limits.reads),
            _rate(limits.writes),
            limits.pools,
            limits.project,
            limits.namespace,
            idempotent=self.config.idempotent,
        )

    def resource_requirements(self, task: TaskContext) -> ResourceRequirements:
        return ResourceRequirements(self.config.pool.of(document_of(task, "")) or "default")

    def origin(self, task: TaskContext, meta: Any = None) -> str:
        """Return the server that the task names, or where its job is; empty: the platform's own."""
        base = str(meta[URL]) if meta is not None else own_address(self.config, document_of(task, ""))
        found = yarl.URL(base).origin() if base else None
        with suppress(UnknownAddressError):  # the platform has no server of its own
            if found == yarl.URL(self._platforms()).origin():
                return ""
        return "" if found is None else str(found)

    async def create(self, context: CallContext) -> Created:
        config = self.config
        checked(config, context.task)
        call = await self._call(context)
        answer = await self._ask(call, config.create)
        if not answer.is_good and config.looks_up and _meant(config.create.exists, answer):
            found = await self._look_up(call)
            if found is not None:
                self._setup.metrics.count("found_again")
                return found
        if config.create.refused is not None and _meant(config.create.refused, answer):
            raise RemoteError(REFUSED, self._told("create", call, answer))
        body = self._good("create", call, answer)
        return self._created(call, body, shows=config.create.shows_state)

    async def get(self, context: CallContext, meta: Any) -> PhaseInfo:
        call = await self._call(context, meta)
        answer = await self._ask(call, self.config.get)
        if answer.is_gone:
            return phase_of_gone(self.config)
        body = self._good("get", call, answer)
        self._refuse_another("get", call, body)
        return self._phase("get", call, body)

    async def delete(self, context: CallContext, meta: Any, reason: str) -> None:
        cancel = self.config.cancel
        if cancel is None:
            return
        call = await self._call(context, meta, **{REASON: reason})
        answer = await self._ask(call, cancel)
        if not (answer.is_good or answer.is_gone or answer.status in cancel.done):
            self._good("cancel", call, answer)

    def status(self, context: StatusContext, resource: PhaseInfo) -> PhaseInfo:  # noqa: ARG002 - as of every plugin
        """Return what ``get`` has read."""
        return resource

    # -- one job ---------

    async def _look_up(self, call: _Call) -> Created | None:
        """Look for the job of this task at the service."""
        find = self.config.find
        answer = await self._ask(call, find or self.config.get)
        if answer.is_gone:
            return None
        body = self._good("find", call, answer)
        if find is not None and find.items is not None:
            listed = find.items.all(body) if isinstance(body, Mapping) else body
            body = next((each for each in listed if is_ours(self.config, each, call.document)), None)
            if body is None:
                return None
        return self._created(call, body, shows=True, where="find")

    def _created(self, call: _Call, body: Any, *, shows: bool, where: str = "create") -> Created:
        self._refuse_another(where, call, body)
        found = call.document.get(ID) or id_of(self.config, body)
        if not found:
            paths = " and ".join(map(str, self.config.job_id.path))
            raise self._unreadable(where, call, f"{paths} (job-id) has no id of a job")
        meta = {ID: found, URL: call.base}
        if not shows or not state_of(self.config, body):
            return Created(meta)
        about = call._replace(document={**call.document, ID: found})
        return Created(meta, self._phase(where, about, body))

    def _phase(self, where: str, call: _Call, body: Any) -> PhaseInfo:
        if not state_of(self.config, body) and "" not in self.config.states:
            raise self._unreadable(where, call, f"{self.config.state} (state) has no state")
        return phase_of(self.config, mapping(body), {**call.document, URL: call.base})

    def _refuse_another(self, where: str, call: _Call, body: Any) -> None:
        wrong = another(self.config, body, call.document)
        if wrong:
            raise self._unreadable(where, call, f"it is about another job: {wrong}")

    # -- one request ---------

    async def _call(self, context: CallContext, meta: Any = None, **more: Any) -> _Call:
        """Gather what a request is made of. A job stays where it was created, as long as the settings accept that."""
        document = document_of(context.task, context.key, **more)
        given = self.config.job_id.given
        if meta is not None:
            document[ID] = meta[ID]
        elif given is not None:
            document[ID] = given.of(document)
        base = self._base(document) if meta is None else self._where(meta, document)
        named = mapping(context.task.spec.get(SECRETS))
        secrets = {name: await _secret(context, name) for name in sorted(self.config.secrets) if name in named}
        headers = {
            name: text
            for name, each in self.config.headers.items()
            if (text := each.of({**document, SECRETS: secrets})) is not None
        }
        return _Call(base, document, tuple(secrets.values()), headers)

    def _base(self, document: JSON) -> str:
        """Return the service's address: the task's own where that is allowed, else the settings', else the usual."""
        own = own_address(self.config, document)
        if own:
            if not self._settings().get("allowedhosts"):
                said = (
                    "tasks may not choose the address unless the platform lists hosts in "
                    f"plugins.{self.config.id}.allowedHosts"
                )
                raise TaskSpecError(f"spec.{str(self.config.task_url).removeprefix('$.')}", said)
            return own
        return self._platforms()

    def _where(self, meta: Any, document: JSON) -> str:
        """Return the address of a job. Raises ``UnknownAddressError`` for one that no task could have now.

        A user who may write the status of a Task can name any address there, and the manager reaches more than he does.
        """
        base = text(mapping(meta).get(URL))
        listed = bool(self._settings().get("allowedhosts"))  # then the session reaches those alone
        if not listed:
            try:
                listed = checked_url(base) == self._base(document)
            except (ValueError, TaskSpecError):
                listed = False
        if not listed:
            where = f"plugins.{self.config.id}"
            raise UnknownAddressError(
                f"its job is at {base[:SHOWN]!r}, which is not {where}.url: list its host in {where}.allowedHosts"
            )
        return base

    def _settings(self) -> dict[str, Any]:
        return {plain(key): value for key, value in self._setup.settings().items()}

    def _platforms(self) -> str:
        """Return the address of the platform's own service. Raises ``UnknownAddressError``."""
        where = f"plugins.{self.config.id}"
        found = self._settings().get(URL, self.config.url)
        if found is None:
            raise UnknownAddressError(f"{where}.url: the address of the service is not set")
        try:
            return checked_url(str(found))
        except ValueError as error:
            raise UnknownAddressError(f"{where}.url: {error}") from None

    async def _ask(self, call: _Call, request: Request) -> Answer:
        """Send a request, and read at most as much of its answer as is allowed."""
        path, query, body = written(request, call.document)
        url = call.base + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **call.headers}
        data = None
        if body is not None:
            data = json.dumps(body, ensure_ascii=False).encode()
            headers.setdefault("Content-Type", "application/json")
        limit = self.config.answer_max
        async with self._setup.session.request(
            request.method,
            yarl.URL(url, encoded=True),
            data=data,
            headers=headers,
            allow_redirects=False,
            timeout=self._timeout,
        ) as response:
            content = bytearray()
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > limit:
                    response.close()  # the rest is not read
                    break
            return read_answer(response.status, bytes(content), limit, response.headers.get("Retry-After", ""))

    def _good(self, where: str, call: _Call, answer: Answer) -> Any:
        """Return what a good answer holds. Raises ``RemoteError`` for any other."""
        if not answer.is_good:
            raise RemoteError(answer.status, self._told(where, call, answer), answer.retry_after)
        if answer.body is None:
            raise self._unreadable(where, call, answer.flaw)
        return answer.body

    def _told(self, where: str, call: _Call, answer: Answer) -> str:
        said = message_of(self.config, answer)
        for secret in filter(None, call.secrets):
            said = said.replace(secret, _HIDDEN)
        return f"{where} of {call.document['key']}: {said}"

    def _unreadable(self, where: str, call: _Call, flaw: str) -> RemoteError:
        self._setup.metrics.count("unreadable_answer")
        return RemoteError(UNREADABLE, f"{where} of {call.document['key']}: the answer makes no sense: {flaw}")


class FindingPlugin(RestPlugin):
    """The same for a service where a job can be looked up by its task."""

    async def find(self, context: CallContext) -> Created | None:
        """Look the job up; where a create may be carried out late, once more after a while."""
        call = await self._call(context)
        found = await self._look_up(call)
        if found is None and not self.config.idempotent:
            await asyncio.sleep(self.config.appears_within.total_seconds())
            found = await self._look_up(call)
        return found


def load(config: ServiceConfig, setup: PluginSetup) -> RestPlugin:
    """Make the plugin of a service."""
    return FindingPlugin(config, setup) if config.looks_up else RestPlugin(config, setup)


def _rate(rate: Rate) -> RateLimit:
    return RateLimit(rate.qps, rate.burst)


def _meant(answers: Answers, answer: Answer) -> bool:
    return answer.status in answers.statuses and answers.text in answer.text


async def _secret(context: CallContext, name: str) -> str:
    """Read a secret for a header. Raises ``SecretError``."""
    found = (await context.secret(name)).strip()
    if not found.isprintable():
        raise SecretError(f"spec.secrets.{name}: it has several lines, or control characters: a header can't have it")
    return found
