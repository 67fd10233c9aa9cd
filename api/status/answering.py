"""What the endpoints and the page have in common: what they show, and whom they ask before they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from .access import ANYTHING, token_of

if TYPE_CHECKING:
    from fastapi import Request

    from .access import Access
    from .connected.gates import Gates
    from .connected.merged import Merged
    from .observing import Cluster
    from .overview import Overview


class Answering:
    """Answers for one cluster and its gates."""

    def __init__(self, cluster: Cluster, gates: Gates, merged: Merged, overview: Overview, access: Access) -> None:
        """Answer whom ``access`` lets in."""
        self._cluster = cluster
        self._gates = gates
        self._merged = merged
        self._overview = overview
        self._access = access

    async def permit(self, request: Request, namespace: str | None, right: tuple[str, str] = ANYTHING) -> None:
        """Raise ``ProblemError`` if the caller may not see the namespace; None: all of them."""
        token = token_of(request.headers, request.cookies)
        await run_in_threadpool(self._access.may, token, namespace, right)
