"""The rest plugin against a service: it creates, gets, finds and cancels one job a task, whatever the service answers."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from backoff_ctrl.k8s.kube.operators.phases import ErrorKind, Phase
from backoff_ctrl.k8s.tasks.plugins.protocol import TaskSpecError
from backoff_ctrl.k8s.tasks.plugins.web_protocol import Finds, RemoteError, SecretError, StatusContext
from backoff_ctrl.k8s.tasks.services.rest.plugin import FindingPlugin, RestPlugin, UnknownAddressError
from tests.tasks.webapi.rest.jobs_service import (
    FINDING,
    GIVEN,
    LEAST,
    Events,
    JobsService,
    context,
    described,
    phase_in,
    plugin_of,
    running_service,
    task,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

JSON = dict[str, Any]


@asynccontextmanager
async def talking(events: Events | None = None, **change: Any) -> AsyncIterator[tuple[JobsService, RestPlugin]]:
    """A service, and a plugin with its description."""
    async with running_service() as service, plugin_of(described(**change), {"url": service.url}, events) as plugin:
        yield service, plugin


async def test_a_job_is_created_read_and_cancelled() -> None:
    """By the requests of the description; its states become phases."""
    async with talking() as (service, plugin):
        created = await plugin.create(context(task(custom={"rounds": 3})))
        assert created.meta == {"id": "j1", "url": service.url}
        assert created.resource is None
        assert service.jobs["j1"] == {
            "id": "j1",
            "state": "waits",
            "rounds": 3,
            "tag": "uid-train-0",
            "name": "team-a/train",
        }
        for state, phase in (("waits", Phase.QUEUED), ("runs", Phase.RUNNING), ("done", Phase.SUCCESS)):
            service.jobs["j1"]["state"] = state
            assert (await plugin.get(context(), created.meta)).phase is phase
        await plugin.delete(context(), created.meta, "Aborted")
        assert service.jobs["j1"]["state"] == "cancelled"


async def test_status_is_what_get_has_read() -> None:
    """So that no answer of megabytes is kept."""
    async with talking() as (service, plugin):
        created = await plugin.create(context())
        service.jobs["j1"]["state"] = "evicted"
        read = await plugin.get(context(), created.meta)
        moment: Any = None
        info = plugin.status(StatusContext(task(), created.meta, moment), read)
        assert (info.phase, info.error and info.error.kind) == (Phase.RETRYABLE_FAILURE, ErrorKind.SYSTEM)


async def test_an_answer_to_create_may_have_the_state() -> None:
    """Where the description says so."""
    async with talking(create={**LEAST["create"], "shows-state": True}) as (_, plugin):
        created = await plugin.create(context())
        assert phase_in(created) is Phase.QUEUED


async def test_a_job_that_is_gone_has_failed_and_needs_no_cancel() -> None:
    """404 means that the service does not know it any longer."""
    async with talking() as (service, plugin):
        created = await plugin.create(context())
        del service.jobs["j1"]
        info = await plugin.get(context(), created.meta)
        assert info.phase is Phase.RETRYABLE_FAILURE
        assert info.error is not None
        assert (info.error.code, info.error.kind) == ("JobLost", ErrorKind.SYSTEM)
        await plugin.delete(context(), created.meta, "Aborted")


async def test_what_counts_as_cancelled_is_described() -> None:
    """Any other error is told, so that the manager asks again; without a request there is nothing to ask."""
    async with talking(cancel={"path": "/jobs/{$.id}", "done": [422]}) as (service, plugin):
        service.says("POST", 422)
        await plugin.delete(context(), {"id": "j1", "url": service.url}, "Aborted")
        service.says("POST", 500, json={"error": "no"})
        with pytest.raises(RemoteError) as raised:
            await plugin.delete(context(), {"id": "j1", "url": service.url}, "Aborted")
        assert raised.value.status == 500
    async with talking(cancel=None) as (service, plugin):
        await plugin.delete(context(), {"id": "j1", "url": service.url}, "Aborted")
        assert service.requests == []


async def test_headers_are_made_of_secrets_that_are_never_repeated() -> None:
    """A header whose secret the task does not name is left out; what a service echoes is cut."""
    headers = {"Authorization": "Bearer {$.secrets.TOKEN}", "X-Task": "{$.namespace}/{$.name}"}
    named = task(secrets={"TOKEN": {"secret": "s", "key": "k"}})
    async with talking(headers=headers, error="$.error") as (service, plugin):
        await plugin.create(context())
        await plugin.create(context(named, TOKEN="hunter2\n"))
        first, second = (each[3] for each in service.requests)
        assert "Authorization" not in first
        assert (second["Authorization"], second["X-Task"]) == ("Bearer hunter2", "team-a/train")
        service.says("POST", 401, json={"error": "wrong token: Bearer hunter2"})
        with pytest.raises(RemoteError, match=r"401: create of uid-train-0: wrong token: Bearer \*\*\*"):
            await plugin.create(context(named, TOKEN="hunter2"))
        with pytest.raises(SecretError, match="several lines"):
            await plugin.create(context(named, TOKEN="hunter2\r\nX-Other: 1"))
        with pytest.raises(SecretError, match="there is none"):
            await plugin.create(context(named))


async def test_a_job_stays_where_it_was_created_if_the_settings_accept_that() -> None:
    """Who may write the status of a task names any address there, and the manager reaches more than he does."""
    settings: JSON = {}
    async with running_service() as service, running_service() as other, plugin_of(described(), settings) as plugin:
        with pytest.raises(UnknownAddressError, match=r"plugins\.jobs\.url: the address of the service is not set"):
            await plugin.create(context())
        settings["url"] = "ftp://there"
        with pytest.raises(UnknownAddressError, match=r"plugins\.jobs\.url: 'ftp://there' is not the address"):
            await plugin.create(context())
        settings["url"] = service.url + "/"
        created = await plugin.create(context())
        assert (await plugin.get(context(), created.meta)).phase is Phase.QUEUED
        settings["url"] = other.url
        asked = len(service.requests)
        for meta in (created.meta, {"id": "j1", "url": "http://169.254.169.254"}, {"id": "j1", "url": 7}):
            for call in (plugin.get(context(), meta), plugin.delete(context(), meta, "Aborted")):
                with pytest.raises(UnknownAddressError, match=r"list its host in plugins\.jobs\.allowedHosts"):
                    await call
        assert len(service.requests) == asked
        settings["allowed_hosts"] = ["127.0.0.1"]
        assert (await plugin.get(context(), created.meta)).phase is Phase.QUEUED
        assert other.requests == []


async def test_a_task_may_name_an_address_only_where_hosts_are_listed() -> None:
    """Else whoever may create tasks could reach any host that the manager can."""
    parameters = {"url": {"type": "string"}}
    config = described(task_url="$.custom.url", parameters=parameters, create={"path": "/jobs", "body": {"tag": "t"}})
    settings: JSON = {"url": "http://127.0.0.1:1"}
    async with running_service() as service, plugin_of(config, settings) as plugin:
        own = context(task(custom={"url": service.url}))
        with pytest.raises(TaskSpecError, match=r"spec\.custom\.url: .* plugins\.jobs\.allowedHosts"):
            await plugin.create(own)
        settings["allowed_hosts"] = ["127.0.0.1"]
        assert (await plugin.create(own)).meta["url"] == service.url


async def test_values_can_not_leave_their_place_in_a_path() -> None:
    """They are quoted; a step upwards is refused."""
    create = {"path": "/jobs/{$.custom.model}/runs", "query": {"name": "{$.name}", "none": "{$.domain}"}}
    async with talking(create=create) as (service, plugin):
        await plugin.create(context(task(custom={"model": "../a?b=c#d/é"})))
        assert service.requests[0][1] == "/jobs/..%2Fa%3Fb%3Dc%23d%2F%C3%A9/runs?name=train"
        with pytest.raises(TaskSpecError, match=r"spec\.custom\.model: '\.\.' would be another path"):
            await plugin.create(context(task(custom={"model": ".."})))
        with pytest.raises(TaskSpecError, match=r"spec\.custom\.model: the path .* needs it"):
            await plugin.create(context(task()))
        assert service.count("POST") == 1


# -- once ---------


async def test_a_job_with_a_given_id_is_made_once() -> None:
    """A repeated create is refused by the service, and finds the job."""
    events = Events()
    async with talking(events, **GIVEN) as (service, plugin):
        first = await plugin.create(context())
        assert first.meta["id"] == "job-uid-train-0"
        again = await plugin.create(context())
        assert again.meta == first.meta
        assert phase_in(again) is Phase.QUEUED
        assert len(service.jobs) == 1
        assert events.counted["found_again"] == 1


async def test_a_given_id_can_be_looked_up_without_more() -> None:
    """By the request that gets a job."""
    async with talking(**GIVEN) as (_, plugin):
        assert isinstance(plugin, FindingPlugin)
        assert await plugin.find(context()) is None
        await plugin.create(context())
        found = await plugin.find(context())
        assert found is not None
        assert found.meta["id"] == "job-uid-train-0"


async def test_a_job_is_found_in_a_list_by_what_is_ours() -> None:
    """Among the jobs of other tasks."""
    async with talking(**FINDING) as (service, plugin):
        assert isinstance(plugin, FindingPlugin)
        await plugin.create(context(task("other")))
        created = await plugin.create(context())
        found = await plugin.find(context())
        assert found is not None
        assert (found.meta, phase_in(found)) == (created.meta, Phase.QUEUED)
        service.says("GET", json={"jobs": [{"id": "j7"}, {"id": "j8", "tag": "another"}, "j9"]})
        assert await plugin.find(context()) is None


async def test_a_job_may_appear_late() -> None:
    """A look-up that finds nothing is repeated, unless a repeated create does no harm."""
    async with talking(**FINDING) as (service, plugin):
        assert isinstance(plugin, FindingPlugin)
        answers = [{"jobs": []}, {"jobs": [{"id": "j1", "tag": "uid-train-0", "state": "runs"}]}]

        async def later(_: web.Request) -> web.Response:
            return web.json_response(answers.pop(0))

        service.instead["GET"] = later
        found = await plugin.find(context())
        assert found is not None
        assert found.meta["id"] == "j1"
    async with talking(**FINDING, idempotent=True) as (service, plugin):
        assert isinstance(plugin, FindingPlugin)
        assert await plugin.find(context()) is None
        assert service.count("GET") == 1


async def test_without_a_way_to_look_up_nothing_is_claimed() -> None:
    """Then the manager has to decide by whether a repeated create does harm."""
    async with talking() as (_, plugin):
        assert not isinstance(plugin, Finds)
        assert plugin.get_config().idempotent is False
    async with talking(idempotent=True) as (_, plugin):
        assert plugin.get_config().idempotent is True


async def test_a_refusal_with_a_wrong_status_is_still_its_users() -> None:
    """Where the description knows its words."""
    create = {**LEAST["create"], "refused": {"statuses": [500], "text": "is invalid"}}
    async with talking(create=create) as (service, plugin):
        service.says("POST", 500, text="the model is invalid")
        with pytest.raises(RemoteError) as raised:
            await plugin.create(context())
        assert str(raised.value) == "400: create of uid-train-0: the model is invalid"
        service.says("POST", 500, text="out of order")
        with pytest.raises(RemoteError) as raised:
            await plugin.create(context())
        assert raised.value.status == 500


# -- bad answers ---------

BAD: dict[str, tuple[JSON, str]] = {
    "HTML": (
        {"text": "<html><title>Sign in</title>", "content_type": "text/html"},
        'it is an HTML page "Sign in" and no JSON',
    ),
    "10 MiB": ({"body": b'{"id": "' + b"x" * 10 * 1024 * 1024 + b'"}'}, "it has more than 4194304 bytes (answer-max)"),
    "nothing": ({"body": b""}, "it is empty"),
    "a text": ({"text": "OK"}, "it is no JSON, and begins with 'OK'"),
    "a number": ({"text": "7"}, "it is 7, and no object"),
    "half": ({"text": '{"id": "j1", "sta'}, "it is no JSON, and begins with"),
    "other letters": ({"body": b'{"id": "\xff"}'}, "it is not UTF-8: byte 8 is wrong"),
    "too deep": ({"body": b"[" * 200_000}, "it is no JSON, and begins with"),
    "no number": ({"text": '{"id": "j1", "state": "runs", "x": NaN}'}, "it is no JSON, and begins with"),
    "infinite": ({"text": '{"id": "j1", "state": "runs", "x": 1e999}'}, "it is no JSON, and begins with"),
}


@pytest.mark.parametrize(("answer", "says"), BAD.values(), ids=BAD.keys())
async def test_an_answer_that_makes_no_sense_is_one_sentence(answer: JSON, says: str) -> None:
    """With the request and the key, as an error of the service: nothing is taken for news, and nothing is created."""
    events = Events()
    async with talking(events) as (service, plugin):
        meta = {"id": "j1", "url": service.url}
        service.says("GET", **answer)
        service.says("POST", **answer)
        for request, asked in (("get", plugin.get(context(), meta)), ("create", plugin.create(context()))):
            with pytest.raises(RemoteError) as raised:
                await asked
            assert raised.value.status == 502
            assert raised.value.message.startswith(f"{request} of uid-train-0: the answer makes no sense: {says}")
            assert len(raised.value.message) < 400
        assert service.count("POST") == 1
        assert events.counted["unreadable_answer"] == 2


async def test_a_redirect_is_an_error_and_not_followed() -> None:
    """It would lead elsewhere with the same credentials."""
    async with talking() as (service, plugin), running_service() as other:
        service.says("POST", 307, headers={"Location": f"{other.url}/jobs"})
        with pytest.raises(RemoteError) as raised:
            await plugin.create(context())
        assert (raised.value.status, other.requests) == (307, [])


async def test_a_created_job_whose_answer_made_no_sense_is_found() -> None:
    """So it is not made twice."""
    async with talking(**FINDING) as (service, plugin):
        assert isinstance(plugin, FindingPlugin)
        service.says("POST", text="<html>", content_type="text/html")
        with pytest.raises(RemoteError):
            await plugin.create(context())
        found = await plugin.find(context())
        assert found is not None
        assert (found.meta["id"], len(service.jobs)) == ("j1", 1)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"id": "j2", "state": "done"}, "it is about another job: $.id is 'j2' instead of 'j1'"),
        (
            {"id": "j1", "tag": "uid-other-0", "state": "done"},
            "it is about another job: $.tag is 'uid-other-0' instead of 'uid-train-0'",
        ),
        ({"id": "j1", "tag": "uid-train-0"}, "$.state (state) has no state"),
        ({"id": "j1", "state": ["done"]}, "$.state (state) has no state"),
    ],
)
async def test_an_answer_about_another_job_is_no_news(answer: JSON, says: str) -> None:
    """Nor is one without a state."""
    async with talking(**FINDING) as (service, plugin):
        service.says("GET", json=answer)
        with pytest.raises(RemoteError) as raised:
            await plugin.get(context(), {"id": "j1", "url": service.url})
        assert raised.value.message == f"get of uid-train-0: the answer makes no sense: {says}"


@pytest.mark.parametrize(
    ("change", "answer", "says"),
    [
        (
            GIVEN,
            {"id": "job-uid-other-0"},
            "it is about another job: $.id is 'job-uid-other-0' instead of 'job-uid-train-0'",
        ),
        (FINDING, {"id": "j1", "tag": "uid-other-0"}, "it is about another job: $.tag"),
        ({}, {"name": "j1"}, "$.id (job-id) has no id of a job"),
        ({}, {"id": {"x": 1}}, "$.id (job-id) has no id of a job"),
        ({}, {"id": "x" * 1001}, "$.id (job-id) has no id of a job"),
        ({}, [{"id": "j1"}], "$.id (job-id) has no id of a job"),
    ],
)
async def test_a_create_takes_no_other_job_for_its_own(change: JSON, answer: Any, says: str) -> None:
    """What it can't tell apart it does not take."""
    async with talking(**change) as (service, plugin):
        service.says("POST", json=answer)
        with pytest.raises(RemoteError) as raised:
            await plugin.create(context())
        assert raised.value.status == 502
        assert says in raised.value.message


async def test_a_new_state_is_named_and_ends_nothing() -> None:
    """A newer service may have more of them."""
    async with talking() as (service, plugin):
        created = await plugin.create(context())
        service.jobs["j1"]["state"] = "hibernates"
        info = await plugin.get(context(), created.meta)
        assert (info.phase, info.reason) == (Phase.RUNNING, "in state hibernates")


async def test_a_slow_body_is_given_up_in_time() -> None:
    """As a network fault: the manager tries again, and it costs no retry."""
    async with talking(timeout="100ms") as (service, plugin):
        over = asyncio.Event()

        async def slow(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Length": "100"})
            await response.prepare(request)
            await response.write(b"{")
            await over.wait()
            return response

        service.instead["GET"] = slow
        with pytest.raises(TimeoutError):
            await plugin.get(context(), {"id": "j1", "url": service.url})
        over.set()


async def test_no_more_of_an_answer_is_read_than_is_allowed() -> None:
    """One that never ends is given up at once."""
    async with talking(answer_max=2048, timeout="20s") as (service, plugin):
        sent = 0

        async def endless(request: web.Request) -> web.StreamResponse:
            nonlocal sent
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"x" * 65_536)
                sent += 65_536

        service.instead["GET"] = endless
        with pytest.raises(RemoteError, match=r"it has more than 2048 bytes \(answer-max\)"):
            await plugin.get(context(), {"id": "j1", "url": service.url})
        assert sent < 16 * 1024 * 1024


async def test_a_task_that_is_no_longer_right_is_not_sent() -> None:
    """It was stored before the description has changed."""
    async with talking() as (service, plugin):
        with pytest.raises(TaskSpecError, match=r"spec\.custom\.rounds: must be of the type integer"):
            await plugin.create(context(task(custom={"rounds": "3"})))
        assert service.requests == []


async def test_a_service_that_is_away_is_a_network_fault() -> None:
    """Also one that hangs up in the middle of an answer."""
    async with talking() as (service, plugin):

        async def hangs_up(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Length": "100"})
            await response.prepare(request)
            await response.write(b"{")
            assert request.transport is not None
            request.transport.abort()
            return response

        service.instead["GET"] = hangs_up
        with pytest.raises(aiohttp.ClientError):
            await plugin.get(context(), {"id": "j1", "url": service.url})
        with pytest.raises(OSError, match="127"):
            await plugin.get(context(), {"id": "j1", "url": "http://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("999999", 60.0), ("soon", None), ("", None), ("-1", None), ("nan", None)]
)
async def test_a_service_may_ask_to_wait(header: str, seconds: float | None) -> None:
    """In whole seconds, for a minute at most."""
    async with talking() as (service, plugin):
        service.says("POST", 429, text="slowly", headers={"Retry-After": header})
        with pytest.raises(RemoteError) as raised:
            await plugin.create(context())
        assert (raised.value.status, raised.value.retry_after) == (429, seconds)


async def test_limits_and_pool_are_the_descriptions() -> None:
    """The settings go over them."""
    limits = {"pools": {"big": 2}, "project": 3, "namespace": 1, "reads": {"qps": 5, "burst": 6}}
    async with talking(limits=limits, pool="$.custom.model") as (_, plugin):
        config = plugin.get_config()
        assert (config.resource_quotas, config.project, config.namespace) == ({"big": 2}, 3, 1)
        assert (config.read_rate_limiter.qps, config.read_rate_limiter.burst) == (5, 6)
        assert config.write_rate_limiter.burst == 200
        assert plugin.resource_requirements(task(custom={"model": "big"})).pool == "big"
        assert plugin.resource_requirements(task()).pool == "default"
