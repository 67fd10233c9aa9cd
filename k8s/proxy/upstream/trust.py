"""TLS towards the API server, and the proxy's own credentials: read again when their files change."""

from __future__ import annotations

import ssl
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .place import Material, Place, PlaceError

if TYPE_CHECKING:
    from collections.abc import Iterator

Stamps = tuple[tuple[int, int], ...]


class Trust:
    """The TLS settings of one kind of connection. ``own``: whether it presents the proxy's client certificate.

    A client certificate speaks for all that is sent on its connection, so requests of callers never share one.
    """

    def __init__(self, place: Place, *, own: bool) -> None:
        """Read the files. Raises ``PlaceError``."""
        self._place = place
        self._own = own and bool(place.certificate)
        self._stamps: Stamps = ()
        self._context: ssl.SSLContext | None = None
        if place.tls:
            try:
                self._stamps = self._look()
                self._context = self._make()
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                raise PlaceError(f"the certificates for {place.url} can't be used: {_why(error)}") from None

    @property
    def server_name(self) -> str | None:
        """Whose certificate is expected."""
        return (self._place.server_name or self._place.host) if self._place.tls else None

    def renewed(self) -> bool:
        """Read the files again if they changed, and say so. What can't be read yet is tried again later."""
        if self._context is None:
            return False
        try:
            stamps = self._look()
            if stamps == self._stamps:
                return False
            self._context = self._make()
        except (OSError, ValueError):
            return False  # amid a replacement
        self._stamps = stamps
        return True

    @property
    def context(self) -> ssl.SSLContext | None:
        """What a new connection uses; None for plain HTTP."""
        return self._context

    def _look(self) -> Stamps:
        place = self._place
        mine = (place.certificate, place.key) if self._own else ()
        return tuple(each.stamp() for each in (place.authority, *mine))

    def _make(self) -> ssl.SSLContext:
        place = self._place
        if place.authority:
            context = ssl.create_default_context(cadata=place.authority.read().decode("ascii"))
        else:
            context = ssl.create_default_context()
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as Go: home-made authorities lack extensions
        context.options |= ssl.OP_NO_RENEGOTIATION  # a write never waits for a read
        context.set_alpn_protocols(["http/1.1"])
        if place.unverified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self._own:
            with _file_of(place.certificate) as certificate, _file_of(place.key or place.certificate) as key:
                context.load_cert_chain(certificate, key, password="")
        return context


@contextmanager
def _file_of(material: Material) -> Iterator[Path]:
    """Yield a file with the bytes: OpenSSL reads certificates from files alone."""
    if material.path is not None:
        yield material.path
        return
    with tempfile.NamedTemporaryFile(prefix="backoff-ctrl-") as file:  # of this user alone
        file.write(material.data)
        file.flush()
        yield Path(file.name)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "they are not valid PEM"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return "they are not valid PEM"


class Account:
    """The proxy's own credentials, as header lines."""

    def __init__(self, place: Place) -> None:
        """Read nothing yet."""
        self._place = place
        self._stamp: tuple[int, int] | None = None
        self._lines: tuple[bytes, ...] = ()

    def check(self) -> None:
        """Raise ``PlaceError`` if the token can't be read, or can't be sent, or has to be asked of another program."""
        if self._place.plugin:
            raise PlaceError(
                f"the kubeconfig's user gets credentials by {self._place.plugin}, which the proxy does not "
                "run: give a kubeconfig with a token or a certificate for --use-own-credentials"
            )
        try:
            lines = self._read()
        except OSError as error:
            raise PlaceError(f"the token of the proxy can't be read: {_why(error)}") from None
        if any(not (32 < byte < 127) for line in lines for byte in line.replace(b" ", b"")):
            raise PlaceError("the token of the proxy contains a character that is not allowed: write it on one line")

    def lines(self) -> tuple[bytes, ...]:
        """Return the header lines with the present credentials; none where a certificate alone speaks for us."""
        token = self._place.token
        if token.path is None and self._lines:
            return self._lines
        with suppress(OSError):  # amid a replacement: the last one
            stamp = token.stamp()
            if stamp != self._stamp:
                self._lines, self._stamp = self._read(), stamp
        return self._lines

    def _read(self) -> tuple[bytes, ...]:
        place = self._place
        if place.token:
            return (b"Authorization: Bearer " + place.token.read().strip(),)
        return (b"Authorization: Basic " + place.basic,) if place.basic else ()
