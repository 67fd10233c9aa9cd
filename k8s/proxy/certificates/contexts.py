"""The TLS context that every listener begins with; its certificate comes later, and changes under open connections."""

from __future__ import annotations

import ssl


def listener_context() -> ssl.SSLContext:
    """Return a context without a certificate: HTTP/1.1 over TLS 1.2 or later, and nobody may renegotiate.

    Where nobody may, a write never waits for a read: ``k8s/proxy/tls.py`` relies on that.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context
