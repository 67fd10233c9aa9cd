"""Certificates for tests of TLS, made by the openssl program that the TLS of every machine comes with."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """A certificate, which is its own authority, and its key."""

    certificate: Path
    key: Path

    def server(self, clients: Pair | None = None) -> ssl.SSLContext:
        """Return what a server uses; it asks callers for a certificate if it trusts one."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        context.set_alpn_protocols(["h2", "http/1.1"])
        if clients is not None:
            context.load_verify_locations(clients.certificate)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def client(self) -> ssl.SSLContext:
        """Return what a client uses that trusts it."""
        return ssl.create_default_context(cafile=str(self.certificate))


def make_pair(folder: Path, name: str = "localhost") -> Pair:
    """Make a certificate for a name and 127.0.0.1."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Pair(folder / "tls.crt", folder / "tls.key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1"]
    command += ["-out", str(made.certificate), "-keyout", str(made.key)]
    subprocess.run(command, check=True, capture_output=True)
    return made
