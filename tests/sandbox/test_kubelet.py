"""The fake kubelet "runs" pods by setting their status: a plain API client."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from backoff_ctrl.k8s.lab.sandbox.followed import Server
from backoff_ctrl.k8s.lab.sandbox.kubelet import RUN_SECONDS, Kubelet
from tests.kit.scripted_server import scripted_server
from tests.sandbox.talking import PODS, ask, create, pod

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import Sandbox


def phase(sandbox: Sandbox, name: str) -> str:
    """The stored phase of a pod."""
    return str(sandbox.get(sandbox.kind("pods"), "team", name)["status"]["phase"])


def is_gone(sandbox: Sandbox, name: str) -> bool:
    """Whether a pod is no longer stored."""
    return sandbox._core.store.of(sandbox.kind("pods")).get("team", name) is None


async def test_pods_run_and_succeed_and_free_their_quota(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Also the pods that existed before the kubelet started."""
    sandbox.create_quota("team", "q", {"pods": "2"})
    await create(session, pod("before"))
    async with Kubelet(Server(sandbox.url), finish_after=0.05) as kubelet:
        await create(session, pod("after"))
        await sandbox.until(lambda: phase(sandbox, "after") == "Running")
        await sandbox.until(lambda: sandbox.used("team", "q") == {"pods": "0"})

        assert (phase(sandbox, "before"), phase(sandbox, "after")) == ("Succeeded", "Succeeded")
        if kubelet._under_way:  # the server has set the status, but its answer may still be on its way
            await asyncio.wait(kubelet._under_way)
    assert kubelet.finished == 2


async def test_a_pod_names_its_own_run_time(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """In an annotation; without one, and without a default, the pod keeps running."""
    async with Kubelet(Server(sandbox.url)):
        await create(session, pod("long"))
        await create(session, pod("short", annotations={RUN_SECONDS: "0.02"}))
        await sandbox.until(lambda: phase(sandbox, "short") == "Succeeded")

        assert phase(sandbox, "long") == "Running"


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", ""])
async def test_an_invalid_run_time_is_logged(
    sandbox: Sandbox, session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """And the pod keeps running."""
    async with Kubelet(Server(sandbox.url), finish_after=0):
        await create(session, pod("x", annotations={RUN_SECONDS: text}))
        await create(session, pod("y"))
        await sandbox.until(lambda: phase(sandbox, "y") == "Succeeded")

    assert phase(sandbox, "x") == "Running"
    assert f"{text!r} is not a number of seconds" in caplog.text


async def test_a_pod_that_is_deleted_goes_when_its_grace_is_over(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    """The kubelet confirms the deletion that the server only marked."""
    async with Kubelet(Server(sandbox.url)):
        await create(session, pod("x", spec={"nodeName": "n"}))
        _, marked = await ask(session, "DELETE", f"{PODS}/x?gracePeriodSeconds=1")
        assert marked["metadata"]["deletionTimestamp"]
        await sandbox.until(lambda: is_gone(sandbox, "x"))


async def test_it_survives_faults_and_broken_watches(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Every pod is run, none is forgotten."""
    sandbox.faults.watch_break_share = 0.5
    async with Kubelet(Server(sandbox.url), finish_after=0.01):
        for number in range(30):
            await create(session, pod(f"p{number}"))
        sandbox.faults.overload_share = 0.3
        await sandbox.until(lambda: all(phase(sandbox, f"p{number}") == "Succeeded" for number in range(30)), within=30)


async def test_it_survives_errors_that_tls_raises(
    sandbox: Sandbox, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiohttp does not wrap every TLS error: here the list, the watch and the patch each fail with one."""
    real = aiohttp.ClientSession._request
    failed: set[tuple[str, bool]] = set()

    async def cut_once(self: aiohttp.ClientSession, method: str, *args: Any, **kwargs: Any) -> aiohttp.ClientResponse:
        asked = (method, "params" in kwargs)
        if self is not session and asked not in failed:
            failed.add(asked)
            raise ssl.SSLError("application data after close notify")
        return await real(self, method, *args, **kwargs)

    monkeypatch.setattr(aiohttp.ClientSession, "_request", cut_once)
    async with Kubelet(Server(sandbox.url), finish_after=0.01):
        await create(session, pod("x"))
        await sandbox.until(lambda: phase(sandbox, "x") == "Succeeded")

    assert failed == {("GET", False), ("GET", True), ("PATCH", False)}


async def test_it_logs_what_ended_it(caplog: pytest.LogCaptureFixture) -> None:
    """A malformed list ends it: pods stay as they are, and the log explains why."""
    with scripted_server(lambda _: (200, b"[]")) as server:
        async with Kubelet(Server(server.url)) as kubelet:
            await asyncio.wait(kubelet._tasks, return_when=asyncio.FIRST_COMPLETED, timeout=45)

    assert "a client of the sandbox failed" in caplog.text
    assert "TypeError" in caplog.text


async def test_it_can_be_limited_to_one_namespace(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Pods of other namespaces are left alone; pods may go straight to their end."""
    sandbox.create_namespace("other")
    async with Kubelet(Server(sandbox.url), namespace="team", finish_after=0, starts=False):
        await create(session, pod("x"), "/api/v1/namespaces/other/pods")
        await create(session, pod("x"))
        await sandbox.until(lambda: phase(sandbox, "x") == "Succeeded")

    assert sandbox.get(sandbox.kind("pods"), "other", "x")["status"]["phase"] == "Pending"


async def test_it_reports_the_state_of_each_container(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Ready and running, sidecars too; in the end terminated with exit code 0: READY in ``kubectl get pods``."""
    first = [{"name": "init", "image": "i:1"}, {"name": "side", "image": "s:1", "restartPolicy": "Always"}]
    async with Kubelet(Server(sandbox.url)):
        await create(session, pod("runs", spec={"initContainers": first}))
        await create(session, pod("ends", spec={"initContainers": first}, annotations={RUN_SECONDS: "0"}))
        await sandbox.until(lambda: phase(sandbox, "runs") == "Running" and phase(sandbox, "ends") == "Succeeded")
    status = {name: sandbox.get(sandbox.kind("pods"), "team", name)["status"] for name in ("runs", "ends")}

    def shown(name: str) -> list[tuple[str, bool, list[str]]]:
        told = [*status[name]["initContainerStatuses"], *status[name]["containerStatuses"]]
        return [(each["name"], each["ready"], list(each["state"])) for each in told]

    assert shown("runs") == [("init", True, ["terminated"]), ("side", True, ["running"]), ("main", True, ["running"])]
    assert shown("ends") == [
        ("init", True, ["terminated"]),
        ("side", False, ["terminated"]),
        ("main", False, ["terminated"]),
    ]
    assert status["ends"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    _, listed = await ask(session, "GET", PODS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert [row["cells"][:3] for row in listed["rows"]] == [["ends", "0/2", "Completed"], ["runs", "2/2", "Running"]]


async def test_the_log_of_a_pod_that_it_runs_is_a_sentence(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """``kubectl logs`` says that there is none, instead of nothing; of several containers one must be named."""
    more = [{"name": name, "image": "i:1"} for name in ("x", "y")]
    async with Kubelet(Server(sandbox.url)):
        await create(session, pod("one"))
        await create(session, pod("two", spec={"containers": more}))
        await sandbox.until(lambda: phase(sandbox, "one") == phase(sandbox, "two") == "Running")

    async with session.get(f"{PODS}/one/log") as answer:
        assert "there is no container, and so no log" in await answer.text()
    code, answered = await ask(session, "GET", f"{PODS}/two/log")
    assert (code, answered["message"]) == (
        400,
        "a container name must be specified for pod two, choose one of: [x y]",
    )
    assert (await ask(session, "GET", f"{PODS}/two/log?container=z"))[0] == 400
    assert (await ask(session, "GET", f"{PODS}/none/log"))[0] == 404
