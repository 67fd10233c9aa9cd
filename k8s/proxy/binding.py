"""Where the proxy listens: an address of this machine, a unix socket, or with TLS any address."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backoff_ctrl.k8s.status.address import is_loopback

_FIRST: Final = 3
"""The descriptor of the first socket that is handed over: SD_LISTEN_FDS_START."""


class BindError(Exception):
    """It can't listen there. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, or the path of a unix socket."""

    host: str = ""
    port: int = 0
    path: Path | None = None

    @property
    def of_this_machine(self) -> bool:
        """Whether nobody else can reach it."""
        return self.path is not None or is_loopback(f"[{self.host}]" if ":" in self.host else self.host)

    def __str__(self) -> str:
        """As the option is written."""
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(listen: str, option: str = "--listen") -> Address:
    """Read ``HOST:PORT``, ``[HOST]:PORT`` or ``unix:/path``. Raises ``BindError``."""
    if listen.startswith("unix:"):
        path = Path(listen.removeprefix("unix:"))
        if not path.is_absolute() or len(os.fsencode(path)) > 107:
            raise BindError(f"{option} unix:PATH needs an absolute path of at most 107 bytes, not {str(path)!r}")
        return Address(path=path)
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise BindError(f"{option} must be HOST:PORT, such as 127.0.0.1:8001, or unix:/path, not {listen!r}")
    return Address("127.0.0.1" if host.lower() == "localhost" else host, int(port))


def handed_over(name: str) -> socket.socket | None:
    """Return the listening socket that the process's starter holds under this name, as systemd does; None: none.

    Where it has no names, the first is ``listen``. Connections wait in it while the proxy restarts. The protocol is
    that of sd_listen_fds(3): LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES. Raises ``BindError`` for what is no such socket.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    given = os.environ.get("LISTEN_FDS", "0")
    if not (given.isascii() and given.isdecimal()):
        raise BindError(f"LISTEN_FDS must be a number of sockets, not {given!r}")
    count = int(given)
    names = os.environ.get("LISTEN_FDNAMES", "").split(":") if "LISTEN_FDNAMES" in os.environ else ["listen"]
    number = next((at for at, each in enumerate(names[:count]) if each == name), None)
    if number is None:
        return None
    try:
        found = socket.socket(fileno=_FIRST + number)
        if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise BindError(f"the socket {name!r} that was handed over does not listen: set Accept=no, and a stream")
    except OSError as error:
        raise BindError(f"the socket {name!r} that was handed over can't be used: {error.strerror or error}") from None
    os.set_inheritable(found.fileno(), False)
    return found


def check_reach(address: Address, what: str, *, use_own: bool, tls: bool) -> None:
    """Raise ``BindError`` for an address that others can reach though they must not. ``what``: what of ours it is."""
    if address.of_this_machine:
        return
    if use_own:
        raise BindError(
            f"--use-own-credentials would let everybody who reaches {address} act as the proxy: listen on 127.0.0.1"
        )
    if not tls:
        raise BindError(
            f"{what} can be reached from other machines, and without TLS they would read its tokens: "
            "listen on 127.0.0.1 or unix:/path, or in TLS mode, or give --tls-cert and --tls-key"
        )


def check_given(bound: socket.socket, *, use_own: bool, tls: bool) -> None:
    """Raise ``BindError`` for a socket that was handed over, and that others can reach though they must not."""
    name = bound.getsockname()
    if bound.family != socket.AF_UNIX:
        address = Address(*name[:2])
        check_reach(address, f"the socket {address} that was handed over", use_own=use_own, tls=tls)
    elif use_own and (not name or Path(os.fsdecode(name)).stat().st_mode & 0o077):
        raise BindError(
            f"--use-own-credentials would let others who reach the socket {os.fsdecode(name)!r} act as the proxy: set "
            "SocketMode=0600 where it is made"
        )


def bind(address: Address, option: str = "--listen", *, private: bool = False, shared: bool = False) -> socket.socket:
    """Return a socket that is bound there, and that nobody is served on yet. Raises ``BindError``.

    ``private``: at a path, it is for this user alone; else the umask says for whom. ``shared``: other processes of
    this user may listen on that port, too (SO_REUSEPORT).
    """
    if address.path is not None:
        return _bind_path(address.path, option, private=private)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((address.host, address.port))
        bound.listen()  # a second process that binds the port fails now, not when this one is ready
    except OSError as error:
        bound.close()
        raise BindError(f"{option}: can't listen on {address} ({error.strerror or error}): choose another") from None
    return bound


def _bind_path(path: Path, option: str, *, private: bool) -> socket.socket:
    """Bind a unix socket; one that a process left behind which is gone is replaced."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _answers(path):
            path.unlink()
        bound.bind(str(path))
        if private:
            path.chmod(0o600)  # nobody is let in before it listens
        bound.listen()
    except OSError as error:
        bound.close()
        raise BindError(f"{option}: can't listen on unix:{path} ({error.strerror or error}): choose another") from None
    return bound


def leave_path(path: Path) -> Callable[[], None]:
    """Return what removes the socket or file that was made there, unless the next process has made its own since."""
    ours = _made(path)

    def leave() -> None:
        with suppress(OSError):
            if _made(path) == ours:
                path.unlink()

    return leave


def _made(path: Path) -> tuple[int, int, int]:
    """Return what tells a file from a later one of its path: that may get the same inode."""
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked, suppress(ConnectionRefusedError):
        asked.connect(str(path))
        return True
    return False


def url_of(bound: socket.socket, *, tls: bool) -> str:
    """Return where a socket is reached."""
    if bound.family == socket.AF_UNIX:
        return f"unix:{bound.getsockname()}"
    host, port = bound.getsockname()[:2]
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"
