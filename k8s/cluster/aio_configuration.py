"""A configuration for the asyncio client, made of one for either client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

_COPIED = (
    "host", "ssl_ca_cert", "ca_cert_data", "cert_file", "key_file", "verify_ssl", "assert_hostname",
    "tls_server_name", "proxy", "proxy_headers", "api_key_prefix",
)  # fmt: skip


def aio_configuration(given: Any) -> Configuration:
    """Copy what an aio client needs from a configuration of either client; credentials are asked of the original."""
    from kubernetes.aio.client import Configuration  # noqa: PLC0415

    if isinstance(given, Configuration):
        return given
    made = Configuration()
    for name in _COPIED:
        if hasattr(given, name):
            setattr(made, name, getattr(given, name))
    made.api_key = dict(given.api_key)

    def refresh(_: Configuration) -> None:
        if given.refresh_api_key_hook is not None:
            given.refresh_api_key_hook(given)
        made.api_key.update(given.api_key)

    made.refresh_api_key_hook = refresh  # type: ignore[assignment]  # the client's own says None
    return made
