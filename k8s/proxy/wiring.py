"""Puts the data path, the creates that are held and the status of the gate together: the one place that knows all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backoff_ctrl.k8s.sharing.showing import serve_status, shown

from .binding import BindError
from .holding.opening import open_holding

if TYPE_CHECKING:
    from .holding.settings import HoldSettings
    from .messages import Creates
    from .upstream import ApiServer


class Wiring:
    """The rooms behind the data path, as the command line asked for them."""

    def __init__(self, holds: HoldSettings, admin: str | None = None, *, reuse_port: bool = False) -> None:
        """``admin``: where the status API of the gate is served, ``127.0.0.1:9095``; None: nowhere.

        ``reuse_port``: the process that follows may serve there before this one has ended.
        """
        self._holds = holds
        self._admin = admin
        self._reuse_port = reuse_port

    def creates(self, server: ApiServer) -> Creates:
        """Return the room that answers the creates which go to ``server``, and serve its status.

        Raises ``BindError``, and ``OptionError`` for an environment variable that says nothing sensible.
        """
        holding = open_holding(server, self._holds)
        if self._admin is None:
            shown()
            return holding
        try:
            serve_status(listen=self._admin, exact=True, shared=self._reuse_port)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise BindError(f"--admin: can't listen on {self._admin} ({why}): choose another") from None
        return holding

    def metrics(self) -> str:
        """Return the metrics of the gate as text for Prometheus. It rests between its steps: call it in a thread."""
        from backoff_ctrl.k8s.status.metrics import exposition  # noqa: PLC0415 - after the start

        return b"".join(exposition(shown())).decode()
