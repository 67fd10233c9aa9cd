"""Where the instance is that a command asks: ``--server``, else the environment variable, else the default port."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.answers.printing import printable, without_passwords
from backoff_ctrl.k8s.status.address import ENVIRONMENT, PORT, is_loopback, read_address

if TYPE_CHECKING:
    from urllib.parse import SplitResult

EXAMPLE: Final = f"http://127.0.0.1:{PORT}"


@dataclass(frozen=True, slots=True)
class Place:
    """An instance's address."""

    https: bool
    host: str
    port: int
    path: str
    """What comes before ``/v1``, without a slash at its end: a reverse proxy may serve it there."""

    @property
    def listen(self) -> str:
        """``host:port``, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether the status of a gate in a program of this machine could be there."""
        return is_loopback(self.listen) and not self.https and not self.path

    @property
    def url(self) -> str:
        """The whole address, safe to print."""
        return printable(f"http{'s' if self.https else ''}://{self.listen}{self.path}")


def find_place(server: str | None) -> Place:
    """Return the instance to ask. Raises ``BadInput``, naming the option or the variable."""
    if server is not None:
        return read_url(server)
    listen = os.environ.get(ENVIRONMENT, "").strip()
    try:
        host, port = read_address(listen) if listen else ("127.0.0.1", PORT)
    except ValueError as error:
        raise BadInput(printable(f"{ENVIRONMENT}: {error}")) from None
    if not port:
        raise BadInput(
            f"{ENVIRONMENT}={listen} lets the program choose a port: its log says which; name it with --server"
        )
    return Place(https=False, host=host, port=port, path="")


def read_url(text: str, option: str = "--server") -> Place:
    """Read an instance's URL; ``http://`` may be left out. Raises ``BadInput``, naming the option."""
    shown = printable(without_passwords(text))
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:  # a port that is no number, brackets that don't match
        host, port = None, None
        parts = urlsplit("")
    plain = text.isascii() and text.isprintable() and " " not in text
    if parts.scheme not in ("http", "https") or not host or port == 0 or not plain:
        raise BadInput(f'{option}: "{shown}" is not the URL of an instance: write one such as {EXAMPLE}')
    _refuse_extras(parts, shown, option)
    https = parts.scheme == "https"
    return Place(https, host, port or (443 if https else 80), parts.path.rstrip("/").removesuffix("/v1"))


def _refuse_extras(parts: SplitResult, shown: str, option: str) -> None:
    if parts.username is not None or parts.password is not None:
        raise BadInput(f"{option}: leave the credentials out of the URL: the status API does not accept any ({shown})")
    if parts.query or parts.fragment:
        raise BadInput(f'{option}: "{shown}" must end before the ? or #: choose with the options -n, --quota and so on')
