"""`--answer wait|error|quota` on a real API server: the bytes that a caller gets, and what client-go makes of them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.control_plane.go_programs import GoPrograms
from tests.cluster.control_plane.servers import Server
from tests.cluster.proxying.sidecar import asked, proxy
from tests.cluster.quotas.quota_room import Room, pod
from tests.cluster.talking import Api

HOLD, HOLD_TOTAL = 2.0, 4.5
HOLDS: Final = ("--hold", str(HOLD), "--hold-total", str(HOLD_TOTAL))
CAUSES: Final = (
    '"causes":[{"reason":"quota","message":"q","field":"quota"},'
    '{"reason":"quota","message":"limits.memory","field":"resource"},'
    '{"reason":"quota","message":"600Mi","field":"asked"},{"reason":"quota","message":"424Mi","field":"left"},'
    '{"reason":"quota","message":"%d","field":"place"}],"retryAfterSeconds":1}'
)


async def _full(room: Room) -> Any:
    """Fill a quota in two of its three resources; return a pod that waits for both."""
    await room.quota("q", {"limits.memory": "1Gi", "pods": "1", "requests.cpu": "4"})
    amounts = {"limits": {"memory": "600Mi", "cpu": "1"}, "requests": {"cpu": "600m"}}
    await room.create("pods", pod("first", **amounts))
    return pod("second", **amounts)


@pytest.mark.long
@pytest.mark.parametrize("user", ["creator", "learner"])
async def test_with_quota_the_refusal_is_that_of_the_server(
    user: str, kubernetes: Server, real_api: Api, real_namespace: str, tmp_path: Path
) -> None:
    """Byte for byte. The creator's create is not sent; the learner's was, so that all headers are the server's."""
    room = Room(real_api, real_namespace)
    waiting, token, pods = await _full(room), kubernetes.token(user), room.path("pods")
    direct = await asked(kubernetes.url, pods, token, waiting, kubernetes.ssl())
    assert direct.status == 403
    async with proxy(kubernetes.kubeconfig(user), tmp_path, *HOLDS, "--answer=quota") as running:
        got = await asked(running.url, pods, token, waiting)
        assert (got.status, got.body) == (direct.status, direct.body)
        if user == "creator":  # the first may have been sent: a list of quotas may take too long
            got = await asked(running.url, pods, token, waiting)
            assert (got.status, got.body) == (direct.status, direct.body)
        own = {"content-type", "cache-control", "content-length", "connection"}
        same = own if user == "creator" else {*direct.headers}
        assert {*got.headers} == same
        varies = {"audit-id", "date", "connection"}
        assert {name: got.headers[name] for name in same - varies} == {
            name: direct.headers[name] for name in same - varies
        }


@pytest.mark.long
@pytest.mark.parametrize("answer", ["wait", "error"])
async def test_otherwise_it_is_told_what_it_waits_for(
    answer: str, kubernetes: Server, real_api: Api, real_namespace: str, tmp_path: Path
) -> None:
    """429, with ``Retry-After`` until the time for all its holds is over, or never."""
    room = Room(real_api, real_namespace)
    waiting, token = await _full(room), kubernetes.token("creator")
    async with proxy(kubernetes.kubeconfig("creator"), tmp_path, *HOLDS, f"--answer={answer}") as running:
        answers = [await asked(running.url, room.path("pods"), token, waiting)]
        while answers[-1].headers.get("retry-after") and len(answers) < 4:
            answers.append(await asked(running.url, room.path("pods"), token, waiting))
        assert len(answers) > 1 or answer == "error", "it is told to come again"
        assert len(answers) < 4, "its holds are 4.5 s in all, however slow the machine is"
        for got in answers[:1] if answer == "wait" else answers:  # one that is late may have lost its place
            status = got.json
            assert (got.status, got.headers.get("retry-after")) == (429, "1" if answer == "wait" else None)
            assert got.headers["content-type"] == "application/json"
            assert (status["kind"], status["code"], status["reason"]) == ("Status", 429, "TooManyRequests")
            assert re.fullmatch(
                r'pods "second" was held for \d s and is not created: quota: asks limits.memory=600Mi, 424Mi left in '
                r"quota q; place 1 in line; send it again",
                status["message"],
            )
            assert got.body.endswith((CAUSES % 1 + ',"code":429}\n').encode())


@pytest.mark.long
@pytest.mark.parametrize("answer", ["wait", "error", "quota"])
async def test_client_go_acts_on_each(
    answer: str,
    kubernetes: Server,
    real_api: Api,
    real_namespace: str,
    creators: GoPrograms,
    tmp_path: Path,
) -> None:
    """``wait``: one call comes again by itself until all holds are over. Else it returns after one hold."""
    room = Room(real_api, real_namespace)
    await room.quota("q", {"pods": "1"})
    await room.create("pods", pod("first"))
    options = (*HOLDS, f"--answer={answer}", "--use-own-credentials")
    async with proxy(kubernetes.kubeconfig("creator"), tmp_path, *options) as running:
        program = await asyncio.create_subprocess_exec(
            *(creators.path("creator"), "--kubeconfig", running.kubeconfig("unused"), "--namespace", real_namespace),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        out, _ = await program.communicate()
    (failed,) = [said for line in out.splitlines() if (said := json.loads(line))["what"] == "failed"]
    assert failed["code"] == (403 if answer == "quota" else 429)
    if answer == "wait":
        assert HOLD_TOTAL <= failed["took"] < 2 * HOLD_TOTAL, (
            "two holds, with a pause as long as Retry-After between them"
        )
    else:
        assert 0.9 * HOLD <= failed["took"] < HOLD_TOTAL, "ends of holds are spread"
    assert failed["reason"] == ("Forbidden" if answer == "quota" else "TooManyRequests")
    assert failed.get("retry_after") == (None if answer == "quota" else 1)
    assert ("exceeded quota: q, requested: pods=1" in failed["message"]) is (answer == "quota")
