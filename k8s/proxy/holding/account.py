"""The proxy's own account as a client's configuration: with it quotas are watched and events are written."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from backoff_ctrl.k8s.proxy.place import Account, Trust

if TYPE_CHECKING:
    from backoff_ctrl.k8s.proxy.place import Place


class OwnAccount:
    """An API server, and how the proxy itself talks to it. Loads no Kubernetes client; files are read when needed."""

    proxy = proxy_headers = no_proxy = assert_hostname = None

    def __init__(self, place: Place) -> None:
        """Read nothing yet."""
        self.host = place.url
        self.tls_server_name = place.server_name or None
        self._place = place
        self._account = Account(place)

    def made_tls(self) -> ssl.SSLContext:
        """Return the TLS settings with the present certificates. Raises ``PlaceError``."""
        return Trust(self._place, own=True).context or ssl.create_default_context()

    def auth_settings(self) -> dict[str, Any]:
        """Return the present credentials; empty if a certificate, or nothing, speaks for the proxy."""
        for line in self._account.lines():
            name, _, value = line.decode("latin-1").partition(": ")
            return {"BearerToken": {"key": name, "value": value}}
        return {}
