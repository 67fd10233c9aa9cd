"""One create's way to the server: the creator's own bytes and headers, with the name and the create id added."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from backoff_ctrl.k8s.answers.answer import Answer
from backoff_ctrl.k8s.creates.calls import quotas_url
from backoff_ctrl.k8s.creates.naming import CREATE_ID
from backoff_ctrl.k8s.gate.together import READ_PATIENCE
from backoff_ctrl.k8s.proxy.messages import Head, Headers, Request, Response, first

from .callers import as_caller
from .forms import JSON, marked_body, readable, reader_of

if TYPE_CHECKING:
    from backoff_ctrl.k8s.answers.answer import Reader
    from backoff_ctrl.k8s.creates.naming import Named
    from backoff_ctrl.k8s.proxy.messages import Upstream

    from .choosing import ChargedKinds

FRAMING: Final = frozenset({b"content-length", b"transfer-encoding", b"expect"})
"""Headers of a request that say how its body came: it is sent whole."""
UNPACKED_MAX: Final = 2**23
_SLASHES_AT_END: Final = re.compile(rb"(?:/|%2[Ff])+\Z")


class Received(Mapping[str, str]):
    """The headers of a response, read where they are asked for. Names may be in any case."""

    __slots__ = ("response",)

    def __init__(self, response: Response) -> None:
        """Read those of ``response``."""
        self.response = response

    def __getitem__(self, name: str) -> str:
        value = first(self.response.headers, name.lower().encode("latin-1"))
        if value is None:
            raise KeyError(name)
        return value.decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return iter({name.lower().decode("latin-1"): None for name, _ in self.response.headers})

    def __len__(self) -> int:
        return len({name.lower() for name, _ in self.response.headers})


class Sender:
    """The gate's transport for one request. It does not change the request: that is kept once, as it came."""

    __slots__ = ("_kinds", "_namespace", "_own", "_upstream", "names_itself", "posts", "request", "word")

    def __init__(
        self, upstream: Upstream, own: Upstream | None, kinds: ChargedKinds, namespace: str, request: Request
    ) -> None:
        """Send ``request`` through ``upstream``. ``own`` adds the proxy's own credentials, where it has any.

        ``kinds`` learns from lists of the namespace's quotas.
        """
        self._upstream = upstream
        self._own = own
        self._kinds = kinds
        self._namespace = namespace
        self.request = request
        self.names_itself = False
        """Whether the creator gave the name."""
        self.posts = 0
        """How often it was sent."""
        self.word: Response | None = None
        """The server's last answer to it."""

    async def send(self, body: dict[str, Any]) -> Answer:
        """Send the creator's bytes, marked with the name and create id of ``body``; as they are if it has no id."""
        head = self.request.head
        marked = self._marked(body)
        headers = [header for header in head.headers if header[0].lower() not in FRAMING]
        self.posts += 1
        self.word = await self._upstream.ask(Request(Head(head.method, head.target, headers), marked))
        return received(self.word)

    def stands_in(self, named: Named) -> Answer:
        """Return what was sent as the answer to a create that is known to be stored, but may not be looked up."""
        content_type = (self.request.head.get(b"content-type") or JSON).decode("latin-1")
        return Answer(201, {"Content-Type": content_type}, self._marked(named.body), made_here=True)

    async def look_up(self, name: str) -> Answer:
        """GET the object of that name as the creator, in a form that can be read."""
        path = (
            _SLASHES_AT_END.sub(b"", self.request.head.target.partition(b"?")[0]) + b"/" + quote(name, safe="").encode()
        )
        return await self._get(path, readable(self.request.head.get(b"accept")))

    async def list_quotas(self) -> Answer:
        """GET the quotas of the namespace, as the proxy if it may, else as the creator; within 2 s."""
        path = quotas_url("", self._namespace).encode()
        async with asyncio.timeout(READ_PATIENCE):
            answer = None if self._own is None else received(await self._own.ask(_get(path, [], JSON)))
            if answer is None or not answer.ok:
                answer = await self._get(path, JSON)
        self._kinds.listed(self._namespace, answer)
        return answer

    def _marked(self, body: dict[str, Any]) -> bytes:
        metadata = body.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        if not isinstance(annotations, dict) or CREATE_ID not in annotations or metadata is None:
            return self.request.body
        name = "" if self.names_itself else metadata.get("name") or ""
        return marked_body(self.request, name, annotations)

    async def _get(self, path: bytes, accept: bytes) -> Answer:
        return received(await self._upstream.ask(_get(path, as_caller(self.request.head.headers), accept)))


def _get(path: bytes, who: Headers, accept: bytes) -> Request:
    return Request(Head(b"GET", path, [*who, (b"Accept", accept)]), b"")


def received(response: Response) -> Answer:
    """Return a response as the gate reads it; its bytes stay where they are."""
    reader = reader_of(first(response.headers, b"content-type"))
    packed = first(response.headers, b"content-encoding")
    if packed is not None and packed.lower() != b"identity":
        reader = partial(_unpacked, reader)
    return Answer(response.status, Received(response), response.body, reader=reader)


def _unpacked(reader: Reader | None, body: bytes) -> dict[str, Any] | None:
    """Read a body that the server has compressed; None for one that can't be read."""
    unpacking = zlib.decompressobj(wbits=47)  # gzip or zlib
    try:
        plain = unpacking.decompress(body, UNPACKED_MAX)
    except zlib.error:
        return None
    return Answer(0, {}, plain, reader=reader).json()
