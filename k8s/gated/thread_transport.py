"""One create's way to the server through the connections of the client for threads, of any generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import urllib3

from backoff_ctrl.k8s.answers.answer import Answer, NotSent, OutcomeUnknown
from backoff_ctrl.k8s.creates.patience import SERVER_LIMIT
from backoff_ctrl.k8s.gate.first_list import READ_PATIENCE

from .transport import ClientTransport

if TYPE_CHECKING:
    from backoff_ctrl.k8s.creates.calls import Target

_NEVER_MADE = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    urllib3.exceptions.ProxyError,
)
_NO_ANSWERS = (urllib3.exceptions.SSLError, urllib3.exceptions.ResponseError)
"""A certificate that is not trusted, too many redirects: trying again would not help."""


class Sender(Protocol):
    """What an adapter offers its transport."""

    configuration: Any

    def send_ungated(self, method: str, url: str, headers: dict[str, Any], body: Any, limit: Any) -> Answer:
        """Call the server as ``ApiClient`` does, whatever the status of the answer."""


class ThreadTransport(ClientTransport[Answer]):
    """Calls the server in the thread that asks for it."""

    __slots__ = ("_sender",)

    server_limit = (SERVER_LIMIT, SERVER_LIMIT)  # to connect, to read
    list_limit = (READ_PATIENCE, READ_PATIENCE)

    def __init__(self, sender: Sender, target: Target, url: str, headers: dict[str, Any] | None, limit: Any) -> None:
        """Send through ``sender`` what its caller wants to create."""
        super().__init__(sender.configuration.host, target.namespace, url, headers, limit)
        self._sender = sender

    def refresh(self) -> None:
        """Fetch new credentials: the server has refused the old ones."""
        self._sender.configuration.auth_settings()  # runs the configuration's refresh hook
        self.token_was_refreshed()

    def call(self, method: str, url: str, body: Any, limit: Any) -> Answer:
        """Call the server with credentials of this moment. Raises ``NotSent`` and ``OutcomeUnknown``."""
        try:
            settings = self._sender.configuration.auth_settings() if self.token_is_old() else None
            return self._sender.send_ungated(method, url, self.headers_with(settings), body, limit)
        except urllib3.exceptions.MaxRetryError as error:
            if isinstance(error.reason, _NEVER_MADE):
                raise NotSent(str(error)) from error
            if isinstance(error.reason, _NO_ANSWERS):
                raise
            raise OutcomeUnknown(str(error)) from error  # a look-up that the client has repeated in vain
        except _NEVER_MADE as error:
            raise NotSent(str(error)) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise OutcomeUnknown(str(error)) from error
