"""One gate, and how it is asked: bounded in time and size, as a host of its own machine would ask it."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from yarl import URL

from backoff_ctrl.k8s.answers.printing import printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .holds import Hold, Key
    from .own import OwnGate
    from .told import Told

PATIENCE: Final = 5.0
"""Seconds for an answer of a gate."""
AGAIN: Final = 2.0
"""Seconds until a stream of decisions that broke is opened again."""
SILENT: Final = 60.0
"""Seconds without anything from a stream, which sends a sign of life every 15 s."""
LINE_MAX: Final = 1 << 20
ANSWER_MAX: Final = 32 << 20
"""Bytes of one answer: a page of 1,000 waiting creates has about 500 kB."""


class GateError(Exception):
    """A gate does not answer as a gate. The message says why; ``status`` is that of its answer, 0 without one."""

    def __init__(self, why: str, status: int = 0) -> None:
        """``why`` is a sentence for people, such as the gate's own."""
        super().__init__(why)
        self.status = status


@dataclass(eq=False)
class Gate:
    """One gate. ``why`` is empty while it answers."""

    number: int
    """Grows from gate to gate, and is never used again: cursors hold it."""
    url: str
    pod: str = ""
    """The pod that it was found in, as ``namespace/name``; empty: it was given with ``--gate``."""
    own: OwnGate | None = None
    """It is that of this process; None: it is asked over HTTP."""
    why: str = "not asked yet"
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Its namespaces as it told them last, by name."""
    holds: dict[str, dict[Key, Hold]] = field(default_factory=dict)
    """What it holds and reserves, by namespace, quota and resource."""
    ceilings: dict[str, dict[Key, Told]] = field(default_factory=dict)
    """Its ceilings in namespaces whose quotas ``serve`` does not watch."""


class Ways:
    """How gates are reached."""

    def __init__(self, authority: Path | None = None, token: Path | None = None) -> None:
        """``authority`` signs the certificates of gates found in pods; ``token`` is for gates behind TLS, read anew."""
        self._token = token
        self._tls: ssl.SSLContext | None = None
        if authority is not None:
            self._tls = ssl.create_default_context(cafile=authority)
            self._tls.check_hostname = False  # a pod has no name that lasts: the authority is for gates alone

    def session(self) -> aiohttp.ClientSession:
        """Return a session for all gates."""
        return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE), read_bufsize=LINE_MAX)

    def options(self, gate: Gate, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return keyword arguments of a request to a gate. Raises ``OSError`` if the token can't be read."""
        url = URL(gate.url)
        given = dict(headers or {})
        how: dict[str, Any] = {"headers": given, "allow_redirects": False}
        if gate.pod:
            given["Host"] = f"localhost:{url.port}"  # a gate answers to no other name
            if url.scheme == "https" and self._tls is not None:
                how["ssl"] = self._tls
        if self._token is not None and url.scheme == "https":
            given["Authorization"] = f"Bearer {self._token.read_text().strip()}"
        return how

    async def ask(
        self,
        session: aiohttp.ClientSession,
        gate: Gate,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        token: str = "",
    ) -> Any:
        """Return a document of a gate: by GET, or by POST of a body. ``token`` is to act. Raises ``GateError``."""
        target = URL(f"{gate.url}{path}", encoded=True)
        target = target.update_query(query) if query else target
        try:
            how = self.options(gate, {"Authorization": f"Bearer {token}"} if token else None)
            async with session.request("GET" if body is None else "POST", target, json=body, **how) as answer:
                text = bytearray()
                async for piece in answer.content.iter_any():
                    text += piece
                    if len(text) > ANSWER_MAX:
                        raise GateError(f"its answer has more than {ANSWER_MAX >> 20} MiB")
                if answer.status == 200:
                    return json.loads(text)
                raise GateError(_detail(bytes(text)) or f"it answers {answer.status}", answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError) as error:
            raise GateError(f"{type(error).__name__}: {error}"[:200]) from None


def _detail(text: bytes) -> str:
    """Return what a problem says; empty if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    detail = found.get("detail") if isinstance(found, dict) else None
    return printable(detail)[:300] if isinstance(detail, str) else ""
