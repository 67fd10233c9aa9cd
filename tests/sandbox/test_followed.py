"""Following objects, as a controller does, through lost watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from backoff_ctrl.k8s.lab.sandbox.followed import Followed, Server
from tests.sandbox.talking import PODS, ask, pod

if TYPE_CHECKING:
    from backoff_ctrl.k8s.lab.sandbox import Sandbox


async def test_what_was_deleted_while_no_watch_was_there_is_told(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    for name in ("stays", "goes"):
        await ask(session, "POST", PODS, pod(name))
    told: list[tuple[str, str]] = []
    followed = Followed(
        Server(sandbox.url), session, PODS, lambda change, body: told.append((change, body["metadata"]["name"]))
    )
    await followed._list()
    await ask(session, "DELETE", f"{PODS}/goes")
    await followed._list()
    assert told[2:] == [("DELETED", "goes"), ("ADDED", "stays")]
