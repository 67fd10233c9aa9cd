"""Make a configuration for the client for asyncio from one of that for threads."""

from __future__ import annotations

from typing import Any

from backoff_ctrl.k8s.kube.cluster.finding import credentials
from tests.kit.official import aio, token

_COPIED = (
    "host", "ssl_ca_cert", "ca_cert_data", "cert_file", "key_file", "verify_ssl", "assert_hostname",
    "tls_server_name", "proxy", "proxy_headers",
)  # fmt: skip


def aio_configuration(given: Any) -> Any:
    """Return an asyncio client's configuration. Its refresh hook takes fresh credentials from the given one."""
    if isinstance(given, aio.Configuration):
        return given
    made = aio.Configuration()
    for name in _COPIED:
        if hasattr(given, name):
            setattr(made, name, getattr(given, name))

    def refresh(_: object) -> None:
        headers = credentials(given.auth_settings())
        made.api_key = token(headers["authorization"]) if headers else {}

    refresh(None)
    made.refresh_api_key_hook = refresh
    return made
