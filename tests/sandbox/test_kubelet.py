"""The fake kubelet runs pods by saying so: a plain API client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from k8s.sandbox.kubelet import RUN_SECONDS, Kubelet, Server
from tests.sandbox.talking import PODS, ask, create, pod

if TYPE_CHECKING:
    import aiohttp

    from k8s.sandbox import Sandbox


def phase(sandbox: Sandbox, name: str) -> str:
    """The phase of a pod, as it is stored."""
    return str(sandbox.get(sandbox.kind("pods"), "team", name)["status"]["phase"])


def is_gone(sandbox: Sandbox, name: str) -> bool:
    """Whether a pod has left the store."""
    return sandbox._core.store.of(sandbox.kind("pods")).get("team", name) is None


async def test_pods_run_and_succeed_and_free_their_quota(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Those that were there before it came, too."""
    sandbox.create_quota("team", "q", {"pods": "2"})
    await create(session, pod("before"))
    async with Kubelet(Server(sandbox.url), finish_after=0.05) as kubelet:
        await create(session, pod("after"))
        await sandbox.until(lambda: phase(sandbox, "after") == "Running")
        await sandbox.until(lambda: sandbox.used("team", "q") == {"pods": "0"})

        assert (phase(sandbox, "before"), phase(sandbox, "after")) == ("Succeeded", "Succeeded")
    assert kubelet.finished == 2


async def test_a_pod_names_its_own_run_time(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """In an annotation; without one, and without a default, it runs on."""
    async with Kubelet(Server(sandbox.url)):
        await create(session, pod("long"))
        await create(session, pod("short", annotations={RUN_SECONDS: "0.02"}))
        await sandbox.until(lambda: phase(sandbox, "short") == "Succeeded")

        assert phase(sandbox, "long") == "Running"


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", ""])
async def test_a_run_time_that_is_none_is_said_so(
    sandbox: Sandbox, session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """And the pod runs on."""
    async with Kubelet(Server(sandbox.url), finish_after=0):
        await create(session, pod("x", annotations={RUN_SECONDS: text}))
        await create(session, pod("y"))
        await sandbox.until(lambda: phase(sandbox, "y") == "Succeeded")

    assert phase(sandbox, "x") == "Running"
    assert f"{text!r} is no number of seconds" in caplog.text


async def test_a_pod_that_is_deleted_goes_when_its_grace_is_over(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    """The kubelet confirms what the server only marked."""
    async with Kubelet(Server(sandbox.url)):
        await create(session, pod("x", spec={"nodeName": "n"}))
        await ask(session, "DELETE", f"{PODS}/x?gracePeriodSeconds=1")
        assert not is_gone(sandbox, "x")

        await sandbox.until(lambda: is_gone(sandbox, "x"))


async def test_it_survives_faults_and_broken_watches(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Every pod is run once, none is forgotten."""
    sandbox.faults.watch_break_share = 0.5
    async with Kubelet(Server(sandbox.url), finish_after=0.01):
        for number in range(30):
            await create(session, pod(f"p{number}"))
        sandbox.faults.overload_share = 0.3
        await sandbox.until(lambda: all(phase(sandbox, f"p{number}") == "Succeeded" for number in range(30)), within=30)


async def test_it_minds_one_namespace_when_told_so(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Others are left alone; pods may go straight to their end."""
    sandbox.create_namespace("other")
    async with Kubelet(Server(sandbox.url), namespace="team", finish_after=0, starts=False):
        await create(session, pod("x"), "/api/v1/namespaces/other/pods")
        await create(session, pod("x"))
        await sandbox.until(lambda: phase(sandbox, "x") == "Succeeded")

    assert sandbox.get(sandbox.kind("pods"), "other", "x")["status"]["phase"] == "Pending"
