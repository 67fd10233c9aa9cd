"""Where the API server is, which authorities to trust, and the proxy's own credentials. Loads no Kubernetes client.

The place is an address, a kubeconfig, or the service account of this pod. Files (certificates, tokens) are read again
when they change: docs/decisions/clients.md says why the proxy has a reader of its own.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from backoff_ctrl.k8s.gate.settings import read_settings
from backoff_ctrl.k8s.kube.answers.printing import printable, without_passwords
from backoff_ctrl.k8s.kube.cluster.kubeconfig import KubeconfigError, check_kubeconfig

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class UpstreamError(Exception):
    """The API server cannot be used as asked. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Material:
    """Bytes in a file, which may be replaced while we run, or given directly."""

    path: Path | None = None
    data: bytes = b""

    def __bool__(self) -> bool:
        return self.path is not None or bool(self.data)

    def stamp(self) -> tuple[int, int]:
        """Return a value that changes when the file is replaced. Raises ``OSError``."""
        if self.path is None:
            return (0, 0)
        found = self.path.stat()
        return (found.st_mtime_ns, found.st_ino)

    def read(self) -> bytes:
        return self.data if self.path is None else self.path.read_bytes()


NOTHING: Final = Material()


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """An API server, the authorities to trust, and the proxy's own credentials.

    ``prefix`` is the path of its address, for servers behind a gateway.
    """

    host: str
    port: int
    tls: bool
    prefix: str = ""
    authority: Material = NOTHING
    server_name: str = ""
    unverified: bool = False
    certificate: Material = NOTHING
    key: Material = NOTHING
    token: Material = NOTHING
    basic: bytes = b""
    plugin: str = ""
    """The login program or plugin of the kubeconfig's user, where only that has the credentials."""

    @property
    def url(self) -> str:
        """The address, safe to print."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}{self.prefix}"

    @property
    def netloc(self) -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}").encode("idna")


def upstream_at(url: str, option: str = "--apiserver") -> UpstreamConfig:
    shown = without_passwords(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UpstreamError(f"{option} must be a URL such as http://127.0.0.1:8001, not {shown!r}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise UpstreamError(f"{option} must be a URL such as http://127.0.0.1:8001, not {shown!r}")
    if parts.username is not None:
        raise UpstreamError(f"{option} must not hold a password: creators bring their own credentials")
    tls = parts.scheme == "https"
    return UpstreamConfig(parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/"))


def find_upstream(upstream: str | None, kubeconfig: str | None, context: str | None = None) -> UpstreamConfig:
    """Find the API server: the address given, else the kubeconfig, else the account of this pod.

    An address alone is verified with the machine's authorities; a kubeconfig beside it adds authorities and our
    credentials. Raises ``UpstreamError``.
    """
    if upstream is not None and kubeconfig is None and context is None:
        return upstream_at(upstream)
    file = kubeconfig or read_settings().kubeconfig.split(os.pathsep)[0] or str(Path.home() / ".kube" / "config")
    needed = kubeconfig is not None or context is not None
    if not needed and not Path(file).exists():
        return upstream_of_account()
    place = upstream_of_kubeconfig(Path(file), context)
    if upstream is None:
        return place
    given = upstream_at(upstream)
    return replace(place, host=given.host, port=given.port, tls=given.tls, prefix=given.prefix)


def upstream_of_account(folder: Path = ACCOUNT) -> UpstreamConfig:
    """Return the API server of the cluster that this runs in. Raises ``UpstreamError``."""
    given = read_settings()
    host, port = given.service_host, given.service_port
    if not host or not (folder / "ca.crt").is_file() or not port.isdecimal():
        raise UpstreamError(
            "found neither a kubeconfig nor a pod's service account: give the server with --apiserver or --kubeconfig"
        )
    return UpstreamConfig(
        host, int(port), True, authority=Material(folder / "ca.crt"), token=Material(folder / "token")
    )


def upstream_of_kubeconfig(file: Path, context: str | None = None) -> UpstreamConfig:
    """Read a kubeconfig. Raises ``UpstreamError``, which shows no secrets."""
    import yaml  # noqa: PLC0415 - 20 ms of the start, and no pod has a kubeconfig

    from backoff_ctrl.k8s.kube.charges.bounded_yaml import BoundedLoader  # noqa: PLC0415 - the same

    named = f"the kubeconfig {printable(str(file))}"
    try:
        check_kubeconfig([file], context, needed=True, login=False, loader=BoundedLoader)
    except KubeconfigError as error:
        raise UpstreamError(str(error)) from None
    try:
        document = yaml.load(file.read_bytes(), BoundedLoader)  # noqa: S506 - a safe loader, bounded
    except OSError as error:
        raise UpstreamError(f"{named} can't be read: {error.strerror or error}") from None
    except (yaml.YAMLError, ValueError):  # ValueError: not UTF-8, or a date in month 99
        raise UpstreamError(f"{named} is not valid YAML: choose another file with --kubeconfig") from None
    try:
        return _place_in(document, context, file.parent, named)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        if isinstance(error, binascii.Error):
            raise UpstreamError(f"{named} holds data that is not base64: correct it") from None
        raise UpstreamError(f"{named} does not have the structure of a kubeconfig ({type(error).__name__})") from None


def _place_in(document: Any, context: str | None, folder: Path, named: str) -> UpstreamConfig:
    chosen = context or document.get("current-context")
    if not chosen:
        raise UpstreamError(f"{named} names no current context: choose one with --context")
    found = _entry(document, "contexts", "context", chosen, named)
    cluster = _entry(document, "clusters", "cluster", found["cluster"], named)
    user = _entry(document, "users", "user", found["user"], named) if found.get("user") else {}
    if cluster.get("proxy-url"):
        raise UpstreamError(f"{named} asks for a proxy-url, which is not supported: give the API server's own address")
    place = upstream_at(str(cluster.get("server", "")), f"the server of context {chosen}")
    basic = b""
    if user.get("username"):
        basic = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode())
    return replace(
        place,
        authority=_material(cluster, "certificate-authority", folder),
        server_name=str(cluster.get("tls-server-name") or ""),
        unverified=bool(cluster.get("insecure-skip-tls-verify")),
        certificate=_material(user, "client-certificate", folder),
        key=_material(user, "client-key", folder),
        token=_token(user, folder),
        basic=basic,
        plugin=_plugin(user),
    )


def _entry(document: Any, lists: str, key: str, name: str, named: str) -> dict[str, Any]:
    for each in document.get(lists) or []:
        if each.get("name") == name:
            found: dict[str, Any] = each.get(key) or {}
            return found
    raise UpstreamError(f"{named} has no {key} {printable(str(name))!r}: choose another with --context")


def _material(section: dict[str, Any], key: str, folder: Path) -> Material:
    """Return the file or the data of ``key``; data takes precedence, as in client-go."""
    data = section.get(f"{key}-data")
    if data:
        return Material(data=base64.b64decode(data, validate=True))
    path = section.get(key)
    return Material(folder / str(path)) if path else NOTHING


def _plugin(user: dict[str, Any]) -> str:
    """Return the plugin that a user's credentials come from; empty where the kubeconfig itself has some."""
    if user.get("token") or user.get("tokenFile") or user.get("username") or user.get("client-certificate"):
        return ""
    if user.get("client-certificate-data"):
        return ""
    return next((key for key in ("exec", "auth-provider") if user.get(key)), "")


def _token(user: dict[str, Any], folder: Path) -> Material:
    """Return the token; a file takes precedence, as in client-go."""
    if user.get("tokenFile"):
        return Material(folder / str(user["tokenFile"]))
    return Material(data=str(user["token"]).encode()) if user.get("token") else NOTHING


Stamps = tuple[tuple[int, int], ...]


class Trust:
    """The TLS settings of one kind of connection. ``own``: whether it presents the proxy's client certificate.

    A client certificate authenticates every request on its connection, so requests of callers never use that one.
    """

    def __init__(self, place: UpstreamConfig, *, own: bool) -> None:
        """Read the files. Raises ``UpstreamError``."""
        self._place = place
        self._own = own and bool(place.certificate)
        self._stamps: Stamps = ()
        self._context: ssl.SSLContext | None = None
        if place.tls:
            try:
                self._stamps = self._look()
                self._context = self._make()
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                raise UpstreamError(f"the certificates for {place.url} can't be used: {_why(error)}") from None

    @property
    def server_name(self) -> str | None:
        return (self._place.server_name or self._place.host) if self._place.tls else None

    def renewed(self) -> bool:
        """Read the files again if they changed; return whether they did. Unreadable ones are retried later."""
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
        """The TLS context of new connections; None for plain HTTP."""
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
    """Yield a file with the bytes: OpenSSL reads certificates only from files."""
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

    def __init__(self, place: UpstreamConfig) -> None:
        self._place = place
        self._stamp: tuple[int, int] | None = None
        self._lines: tuple[bytes, ...] = ()

    def check(self) -> None:
        """Raise ``UpstreamError`` if the token can't be read, can't be sent, or has to come from another program."""
        if self._place.plugin:
            raise UpstreamError(
                f"the kubeconfig's user gets credentials by {self._place.plugin}, which the proxy does not "
                "run: give a kubeconfig with a token or a certificate for --use-own-credentials"
            )
        try:
            lines = self._read()
        except OSError as error:
            raise UpstreamError(f"the token of the proxy can't be read: {_why(error)}") from None
        if any(not (32 < byte < 127) for line in lines for byte in line.replace(b" ", b"")):
            raise UpstreamError("the token of the proxy contains a character that is not allowed: write it on one line")

    def lines(self) -> tuple[bytes, ...]:
        """Return the header lines with the present credentials; empty if the proxy has only a certificate."""
        token = self._place.token
        if token.path is None and self._lines:
            return self._lines
        with suppress(OSError):  # the file is being replaced: use the last one
            stamp = token.stamp()
            if stamp != self._stamp:
                self._lines, self._stamp = self._read(), stamp
        return self._lines

    def _read(self) -> tuple[bytes, ...]:
        place = self._place
        if place.token:
            return (b"Authorization: Bearer " + place.token.read().strip(),)
        return (b"Authorization: Basic " + place.basic,) if place.basic else ()
