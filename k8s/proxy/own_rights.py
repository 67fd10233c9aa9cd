"""Which rights the proxy's own account lacks in the namespaces that creators create in."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Final, NoReturn

from backoff_ctrl.k8s.answers.answer import NotSent, OutcomeUnknown
from backoff_ctrl.k8s.cluster.rights import ALL, GATEWAY, REVIEW, denied

from .messages import Head, Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from backoff_ctrl.k8s.cluster.rights import Right

    from .upstream import ApiServer

EVERY: Final = 60.0
"""Seconds between two rounds of questions: roles change while a proxy runs."""
EVERYWHERE: Final = "*"
_JSON: Final = b"application/json"
_logger = logging.getLogger("backoff_ctrl")


class OwnRights:
    """What is missing, as far as the API server has said. Without these rights a proxy wakes creates later."""

    def __init__(self, server: ApiServer, namespaces: Iterable[str]) -> None:
        """Ask about these namespaces; ``*`` stands for all."""
        self.lacking: list[str] = []
        """A line for each missing right."""
        self._server = server
        self._namespaces = [ALL if each == EVERYWHERE else each for each in namespaces]

    async def keep_asking(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> NoReturn:
        """Ask again and again, until cancelled."""
        while True:
            await self.ask()
            await pause(EVERY)

    async def ask(self) -> None:
        """Ask once. While the API server does not answer, what it said before holds."""
        found = []
        try:
            for namespace in self._namespaces:
                found += [right.lacking(namespace) for right in GATEWAY if await self._lacks(right, namespace)]
        except (NotSent, OutcomeUnknown, ValueError) as error:
            _logger.info("the rights of the proxy's account are not known: %s", error)
            return
        for line in found:
            if line not in self.lacking:
                _logger.warning("the proxy's account %s", line)
        self.lacking = found

    async def _lacks(self, right: Right, namespace: str) -> bool:
        body = json.dumps(right.review(namespace)).encode()
        head = Head(b"POST", REVIEW.encode(), [(b"Accept", _JSON), (b"Content-Type", _JSON)])
        said = await self._server.ask_as_proxy(Request(head, body))
        return denied(said.status, said.body)
