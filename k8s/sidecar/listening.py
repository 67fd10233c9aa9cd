"""The sockets that creators connect to: loopback, a unix socket, or with TLS any address; and the end of listening."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from backoff_ctrl.k8s.gate.settings import read_settings
from backoff_ctrl.k8s.kube.cluster.address import is_loopback
from backoff_ctrl.k8s.sidecar.http.transports import accepted

from .caller import Caller, address_of
from .crowding import make_room
from .door import BACKLOG, Door, let_fail
from .passing import Shared

_FIRST: Final = 3
"""The descriptor of the first socket that is handed over: SD_LISTEN_FDS_START."""
_OTHERS: Final = 64
"""Descriptors for everything but callers: files, the loop, watches, probes."""
_LOOK_S: Final = 0.5
_STEP_S: Final = 0.02
IDLE_S: Final = 0.5
"""Seconds that a connection without a request is kept at the end."""


class BindError(Exception):
    """The proxy can't listen there. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, or the path of a unix socket."""

    host: str = ""
    port: int = 0
    path: Path | None = None

    @property
    def of_this_machine(self) -> bool:
        """Whether only this machine can reach it."""
        return self.path is not None or is_loopback(f"[{self.host}]" if ":" in self.host else self.host)

    def __str__(self) -> str:
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
    """Return the listening socket that the parent process, such as systemd, passed under this name, if any.

    Without names, the first is ``listen``. Connections wait in it while the proxy restarts. The protocol is that of
    sd_listen_fds(3): LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES. Raises ``BindError`` for any other descriptor.
    """
    given = read_settings()
    if given.listen_pid != str(os.getpid()):
        return None
    count = given.listen_fds
    if not (count.isascii() and count.isdecimal()):
        raise BindError(f"LISTEN_FDS must be a number of sockets, not {count!r}")
    names = given.listen_names.split(":")[: int(count)]
    number = next((at for at, each in enumerate(names) if each == name), None)
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
    """Raise ``BindError`` for an address that others can reach and must not. ``what`` names it in the error."""
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
    """Raise ``BindError`` for a passed socket that others can reach and must not."""
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
    """Return a socket that is bound there and does not serve yet. Raises ``BindError``.

    ``private``: a socket at a path is for this user alone; else the umask decides. ``shared``: other processes of
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
    """Bind a unix socket, replacing one that an ended process left behind."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _answers(path):
            path.unlink()
        bound.bind(str(path))
        if private:
            path.chmod(0o600)  # no client can connect before it listens
        bound.listen()
    except OSError as error:
        bound.close()
        raise BindError(f"{option}: can't listen on unix:{path} ({error.strerror or error}): choose another") from None
    return bound


def leave_path(path: Path) -> Callable[[], None]:
    """Return a function that removes the socket or file, unless the next process has made its own there since."""
    ours = _made(path)

    def leave() -> None:
        with suppress(OSError):  # the next start replaces what is left
            if _made(path) == ours:
                path.unlink()

    return leave


def _made(path: Path) -> tuple[int, int, int]:
    """Return what distinguishes a file from a later one at its path, which may get the same inode."""
    found = path.lstat()
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked, suppress(ConnectionRefusedError):
        asked.connect(str(path))
        return True
    return False


def url_of(bound: socket.socket, *, tls: bool) -> str:
    """Return the URL of a socket."""
    if bound.family == socket.AF_UNIX:
        return f"unix:{bound.getsockname()}"
    host, port = bound.getsockname()[:2]
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


@dataclass(slots=True, eq=False)
class Handshake:
    """One that is under way."""

    shared: Shared
    near: socket.socket
    address: str
    task: asyncio.Task[None] | None = None

    def give_way(self) -> None:
        self.shared.is_over(self)
        let_fail(self.near)


class Handshakes:
    """Accepts TLS connections at a socket. Handshakes take places, too: see ``crowding``."""

    def __init__(self, shared: Shared, bound: socket.socket, tls: ssl.SSLContext) -> None:
        self._shared = shared
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._door = Door(bound, self._take)

    def start(self) -> None:
        self._door.open()

    def close(self) -> None:
        """Stop accepting, and give up the handshakes under way."""
        self._door.close()
        for each in list(self._shared.handshakes):
            each.give_way()

    def _take(self, near: socket.socket) -> None:
        shared, address = self._shared, ""
        with suppress(OSError):  # it is gone
            address = address_of(near.getpeername())
        if shared.places_taken >= shared.limits.connections:
            shared.counts.turned_away += 1
            if not make_room(shared, address, self._loop.time()):
                near.close()
                return
        handshake = Handshake(shared, near, address)
        shared.begins(handshake, self._loop.time())
        handshake.task = self._loop.create_task(self._shake(near))
        handshake.task.add_done_callback(lambda _: shared.is_over(handshake))

    async def _shake(self, near: socket.socket) -> None:
        limit = self._shared.limits.head_s
        try:
            await accepted(self._tls, Caller(self._shared, self._loop), near, limit)
        except OSError:  # it speaks no TLS, trusts another authority, took too long, or is gone: it was never served
            near.close()


def descriptors_for(connections: int, idle: int) -> int:
    """Raise this process's limit of descriptors if need be; return how many connections of callers it allows.

    Each caller may need one more connection, to the API server.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + idle + _OTHERS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    return max(1, (soft - _OTHERS - min(idle, soft // 4)) // 2)


class Listener:
    """Serves callers on a socket that is bound already."""

    def __init__(self, shared: Shared, bound: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self._shared = shared
        self._bound = bound
        self._tls = tls
        self._server: asyncio.Server | Handshakes | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        shared = self._shared
        if self._tls is not None:
            self._server = Handshakes(shared, self._bound, self._tls)
            self._server.start()
        else:
            make: Any = loop.create_unix_server if self._bound.family == socket.AF_UNIX else loop.create_server
            self._server = await make(lambda: Caller(shared, loop), sock=self._bound, backlog=BACKLOG)
        self._look()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for caller in list(self._shared.callers):
            caller.look(now)
        self._sweep = loop.call_later(_LOOK_S, self._look)

    async def close(self, within: float) -> None:
        """Wait for requests under way, for so many seconds at most, and close.

        A client that connects meanwhile is served one request: a refused connection would be an error for it, a 429 is
        not. A connection without a request is kept for a moment, since its caller may be sending one; its answer then
        closes it.
        """
        shared = self._shared
        shared.draining = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        before = set(shared.callers)
        for caller in before:
            caller.drain(at_once=False)
        await _until(lambda: not before & shared.callers, min(deadline, loop.time() + IDLE_S))
        for caller in before & shared.callers:
            caller.drain(at_once=True)
        await _until(lambda: not before & shared.callers, deadline)
        if self._server is not None:
            self._server.close()
        self._bound.close()  # no client waits in its backlog for an answer that never comes
        await _until(lambda: not shared.callers, min(deadline, loop.time() + IDLE_S))  # the last may yet ask
        for caller in list(shared.callers):
            caller.drain(at_once=True)
        await _until(lambda: not shared.callers, deadline)
        for caller in list(shared.callers):
            caller.transport.abort()
        if self._sweep is not None:
            self._sweep.cancel()
        await asyncio.sleep(0)


async def _until(over: Callable[[], bool], deadline: float) -> None:
    while not over() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - once in a process's life
        await asyncio.sleep(_STEP_S)
