"""The adapter of aiohttp.web: a gate's endpoints, asked over HTTP on the runtime's loop.

The loop only reads requests and writes answers; threads of our own make the answers, in slices.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

from aiohttp import web

from .asked import ProblemError, check_sender
from .bodies import too_large
from .connections import Connection, response_of
from .conversation import PIECE, Answer, Sent, in_blocks, problem, read, target_of
from .endpoints import find

if TYPE_CHECKING:
    from collections.abc import Callable

    from backoff_ctrl.k8s.gate.runtime.host import Blocking

    from .gate_endpoints import GateEndpoints


class Answering:
    """Answers the requests of all connections."""

    def __init__(self, endpoints: GateEndpoints, making: Blocking, hosts: frozenset[str], patience: float) -> None:
        """``making`` are the threads that make answers, ``hosts`` names that are answered as if they were loopback.

        A body may take ``patience`` seconds.
        """
        self._endpoints = endpoints
        self._making = making
        self._hosts = hosts
        self._patience = patience

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        host, path, query = target_of(request.raw_path, request.headers.get("Host"))
        connection = cast(Connection, request.protocol)
        response: web.StreamResponse
        try:
            if request.version.major != 1:
                raise ProblemError(505, "this server speaks HTTP/1.1")  # noqa: TRY301 - all problems are answered here
            check_sender(host, request.headers.get("Origin"), hosts=self._hosts, acts=False)
            endpoint, in_path = find(request.method, path)
            asked = read(endpoint, query, in_path)
            headers = {name.lower(): value for name, value in request.headers.items()}
            sent = Sent(headers, await self._body(request) if endpoint.method == "POST" else b"")
            found = await self._made(lambda: self._endpoints.reply_at(request.method, endpoint, asked, sent))
            response = await _sent(request, found)
        except ProblemError as error:
            response = response_of(problem(error))
        except ConnectionError:
            raise
        except Exception as error:  # fails open: status only helps
            self._endpoints.failed(error)
            if request.writer.output_size:  # the head of another answer is out already
                raise ConnectionError("an answer broke off") from error
            response = response_of(problem(ProblemError(500, "an internal error; it is counted, and logged once")))
        if request.method != "GET" or connection.is_last:
            response.force_close()  # it may have a body that nobody reads to its end
        return response

    async def _made(self, make: Callable[[], Answer]) -> Answer:
        def made() -> Answer:
            found = make()
            found.body = in_blocks(found.body)
            return found

        return await asyncio.get_running_loop().run_in_executor(self._making, made)

    async def _body(self, request: web.BaseRequest) -> bytes:
        """Read the body, if it is not too large. Raises ``ProblemError``."""
        length = request.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            raise ProblemError(411, "send the body with its Content-Length", "#/headers/Content-Length")
        too_large(int(length))
        if int(length) == 0:
            return b""
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # as aiohttp does: this was no answer
        cast(Connection, request.protocol).end_body(request)
        try:
            async with asyncio.timeout(self._patience):
                return await request.content.readexactly(int(length))
        except TimeoutError:
            raise ProblemError(408, f"the body did not come within {self._patience:g} seconds", "#/body") from None
        except asyncio.IncompleteReadError:
            raise ProblemError(400, "the body ends before its Content-Length", "#/body") from None


async def _sent(request: web.BaseRequest, found: Answer) -> web.StreamResponse:
    """Send an answer block by block: a long one need not be in the connection's memory."""
    if request.method == "POST":
        found.headers.pop("ETag", None)  # it would be that of what was done
    response = response_of(found)
    if isinstance(response, web.Response) or request.method == "HEAD":
        return response
    if found.stream is not None:
        cast(Connection, request.protocol).listens = True
    await response.prepare(request)
    for block in found.body:
        await response.write(block)
    if found.stream is not None:
        async with contextlib.aclosing(found.stream) as pieces:
            async for piece in pieces:
                for start in range(0, len(piece), PIECE):  # taken piece by piece, a large one is no stall
                    await response.write(piece[start : start + PIECE])
    return response
