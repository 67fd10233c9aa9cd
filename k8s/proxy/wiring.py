"""Which room answers creates: the one place where the data path and the gate are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ungated import Ungated

if TYPE_CHECKING:
    from .messages import Creates
    from .upstream.asking import ApiServer


def make_creates(server: ApiServer) -> Creates:
    """Return the room that answers the creates which go to ``server``."""
    del server
    return Ungated()
