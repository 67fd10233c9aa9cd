"""Make a configuration for the asyncio client from one of either official client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

_COPIED = (
    "host", "ssl_ca_cert", "ca_cert_data", "cert_file", "key_file", "verify_ssl", "assert_hostname",
    "tls_server_name", "proxy", "proxy_headers", "api_key_prefix",
)  # fmt: skip


def aio_configuration(given: Any) -> Configuration:
    """Return an asyncio client's configuration. Its refresh hook takes fresh credentials from the given one."""
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

    made.refresh_api_key_hook = refresh  # type: ignore[assignment]  # the client annotates it as None
    return made
