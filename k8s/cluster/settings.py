"""What a configuration of any official client, of any version, says about TLS, proxies and credentials."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def credentials(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return a configuration's ``auth_settings()`` as headers; empty if only a certificate or nothing is configured."""
    token = settings.get("BearerToken")
    return {} if token is None or token["value"] is None else {str(token["key"]): str(token["value"])}


def tls_of(configuration: Any) -> ssl.SSLContext:
    """Return the TLS settings that the official client would use: trusted authorities, client certificate.

    A configuration that makes them itself has ``made_tls``. Raises ``OSError`` or ``ValueError`` if its files cannot
    be used.
    """
    made = getattr(configuration, "made_tls", None)
    if callable(made):
        context: ssl.SSLContext = made()
        return context
    context = ssl.create_default_context(
        cafile=configuration.ssl_ca_cert, cadata=getattr(configuration, "ca_cert_data", None)
    )
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if configuration.assert_hostname is False:
        context.check_hostname = False
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if getattr(configuration, "disable_strict_ssl_verification", False):
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def detour_of(configuration: Any) -> dict[str, Any]:
    """Return keyword arguments of each aiohttp request: the proxy, and the server name in the certificate."""
    options: dict[str, Any] = {}
    if configuration.proxy and not _bypassed(configuration):
        options["proxy"] = configuration.proxy
        if configuration.proxy_headers:
            options["proxy_headers"] = configuration.proxy_headers
    name = configuration.tls_server_name or configuration.assert_hostname
    if name:
        options["server_hostname"] = name
    return options


def _bypassed(configuration: Any) -> bool:
    """Say whether the configuration excepts its host from its proxy, as only the client for threads can."""
    excepted = getattr(configuration, "no_proxy", None)
    if not excepted:
        return False
    from kubernetes.client.rest import should_bypass_proxies  # noqa: PLC0415 - its own configuration: it is loaded

    return bool(should_bypass_proxies(configuration.host, no_proxy=excepted))
