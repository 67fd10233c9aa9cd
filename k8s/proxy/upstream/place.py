"""Where the API server is: an address, a kubeconfig, or the service account of this pod. Loads no Kubernetes client."""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from backoff_ctrl.k8s.answers.printing import printable, without_passwords

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class PlaceError(Exception):
    """The API server cannot be used as asked. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Material:
    """Bytes that are in a file, which may be replaced while we run, or were given as they are."""

    path: Path | None = None
    data: bytes = b""

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self.path is not None or bool(self.data)

    def stamp(self) -> tuple[int, int]:
        """Return what differs after the file was replaced. Raises ``OSError``."""
        if self.path is None:
            return (0, 0)
        found = self.path.stat()
        return (found.st_mtime_ns, found.st_ino)

    def read(self) -> bytes:
        """Return the bytes. Raises ``OSError``."""
        return self.data if self.path is None else self.path.read_bytes()


NOTHING: Final = Material()


@dataclass(frozen=True, slots=True)
class Place:
    """An API server, whom to trust there, and who the proxy itself is.

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
    """By what the user's credentials are had, where only another program can tell them."""

    @property
    def url(self) -> str:
        """The address, safe to print."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}{self.prefix}"

    @property
    def netloc(self) -> bytes:
        """What its ``Host`` header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}").encode("idna")


def place_at(url: str, option: str = "--upstream") -> Place:
    """Read an address. Raises ``PlaceError``."""
    shown = without_passwords(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise PlaceError(f"{option} must be a URL such as http://127.0.0.1:8001, not {shown!r}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise PlaceError(f"{option} must be a URL such as http://127.0.0.1:8001, not {shown!r}")
    if parts.username is not None:
        raise PlaceError(f"{option} must not hold a password: creators bring their own credentials")
    tls = parts.scheme == "https"
    return Place(parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/"))


def find_place(upstream: str | None, kubeconfig: str | None, context: str | None = None) -> Place:
    """Find the API server: the address given, else the kubeconfig, else the account of this pod.

    An address alone is trusted as the machine trusts; a kubeconfig beside it gives whom to trust, and who we are.
    Raises ``PlaceError``.
    """
    if upstream is not None and kubeconfig is None and context is None:
        return place_at(upstream)
    file = kubeconfig or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or str(Path.home() / ".kube" / "config")
    if kubeconfig is None and context is None and not Path(file).is_file():
        return place_of_account()
    place = place_of_kubeconfig(Path(file), context)
    if upstream is None:
        return place
    given = place_at(upstream)
    return Place(given.host, given.port, given.tls, given.prefix, *_rest(place))


def _rest(place: Place) -> tuple[Any, ...]:
    return (
        place.authority,
        place.server_name,
        place.unverified,
        place.certificate,
        place.key,
        place.token,
        place.basic,
        place.plugin,
    )


def place_of_account(folder: Path = ACCOUNT) -> Place:
    """Return the API server of the cluster that this runs in. Raises ``PlaceError``."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "ca.crt").is_file() or not port.isdecimal():
        raise PlaceError(
            "found neither a kubeconfig nor a pod's service account: give the server with --upstream or --kubeconfig"
        )
    return Place(host, int(port), True, authority=Material(folder / "ca.crt"), token=Material(folder / "token"))


def place_of_kubeconfig(file: Path, context: str | None = None) -> Place:
    """Read a kubeconfig. Raises ``PlaceError``, which shows nothing secret of it."""
    import yaml  # noqa: PLC0415 - 20 ms of the start, and no pod has a kubeconfig

    named = f"the kubeconfig {printable(str(file))}"
    try:
        document = yaml.load(file.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except OSError as error:
        raise PlaceError(f"{named} can't be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise PlaceError(f"{named} is not valid YAML: choose another file with --kubeconfig") from None
    try:
        return _place_in(document, context, file.parent, named)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        if isinstance(error, binascii.Error):
            raise PlaceError(f"{named} holds data that is not base64: correct it") from None
        raise PlaceError(f"{named} does not have the structure of a kubeconfig ({type(error).__name__})") from None


def _place_in(document: Any, context: str | None, folder: Path, named: str) -> Place:
    chosen = context or document.get("current-context")
    if not chosen:
        raise PlaceError(f"{named} names no current context: choose one with --context")
    found = _entry(document, "contexts", "context", chosen, named)
    cluster = _entry(document, "clusters", "cluster", found["cluster"], named)
    user = _entry(document, "users", "user", found["user"], named) if found.get("user") else {}
    if cluster.get("proxy-url"):
        raise PlaceError(f"{named} asks for a proxy-url, which is not supported: give the API server's own address")
    place = place_at(str(cluster.get("server", "")), f"the server of context {chosen}")
    basic = b""
    if user.get("username"):
        basic = base64.b64encode(f"{user['username']}:{user.get('password', '')}".encode())
    return Place(
        place.host,
        place.port,
        place.tls,
        place.prefix,
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
    raise PlaceError(f"{named} has no {key} {printable(str(name))!r}: choose another with --context")


def _material(section: dict[str, Any], key: str, folder: Path) -> Material:
    """Return what ``key`` names as a file, or holds as data; data wins, as in client-go."""
    data = section.get(f"{key}-data")
    if data:
        return Material(data=base64.b64decode(data, validate=True))
    path = section.get(key)
    return Material(folder / str(path)) if path else NOTHING


def _plugin(user: dict[str, Any]) -> str:
    """Return what a user's credentials must be asked of; nothing where the kubeconfig itself has some."""
    if user.get("token") or user.get("tokenFile") or user.get("username") or user.get("client-certificate"):
        return ""
    if user.get("client-certificate-data"):
        return ""
    return next((key for key in ("exec", "auth-provider") if user.get(key)), "")


def _token(user: dict[str, Any], folder: Path) -> Material:
    """Return the token; a file wins, as in client-go."""
    if user.get("tokenFile"):
        return Material(folder / str(user["tokenFile"]))
    return Material(data=str(user["token"]).encode()) if user.get("token") else NOTHING
