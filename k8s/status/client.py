"""The client of the status API, of a gate or of ``serve``: it finds the address, asks, and reads the answers.

``Instance`` asks over ``http.client``: loading an HTTP library takes a fifth of a second, longer than the rest of a
command; nothing here, or in the commands that only ask, loads an event loop or the Kubernetes client either. Any error
on the way ends the command with one sentence. ``serve`` asks hundreds of gates at once, on its event loop, with a
transport of its own (``api/status/gates.py``); ``read``, ``detail_of`` and ``Events`` read the answers for both.
Unknown keys are left out: later versions may add some.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints
from urllib.parse import SplitResult, urlencode, urlsplit

from backoff_ctrl.engine.errors import BackoffError
from backoff_ctrl.k8s.gate.settings import STATUS, read_settings
from backoff_ctrl.k8s.kube.answers.fields import mapping, text
from backoff_ctrl.k8s.kube.answers.printing import printable, without_passwords
from backoff_ctrl.k8s.kube.cluster.address import PORT, is_loopback, read_address
from backoff_ctrl.k8s.kube.time_limit import within

from .shapes import Decision

T = TypeVar("T")
EXAMPLE: Final = f"http://127.0.0.1:{PORT}"
PAGE: Final = 1000
"""Items requested at a time: the most that the status API gives."""
ITEMS_MAX: Final = 200_000
"""Items read of one list at most: about 200 MB."""
ANSWER_MAX: Final = 64 << 20
"""The largest answer, in bytes. A page of 1,000 waiting creates has about 500 kB."""
LINE_MAX: Final = 1 << 20
"""The longest line of a stream, in bytes."""
PROBLEM: Final = "application/problem+json"
NOTE: Final = "Backoff-Ctrl-Note"
"""The header with what to tell people beside a text."""
FROM_THE_OLDEST: Final = "0"
"""The id that makes a stream begin with the oldest decision that is kept."""
SILENCE: Final = 40.0
"""Seconds of silence after which a stream is dead: the instance sends something every 15 s."""
CAUGHT_UP: Final = 0.5
"""Seconds of silence after which all kept decisions have come: they are sent in one go."""
FAILURES: Final = (OSError, HTTPException, ValueError)
"""The exceptions of following the decisions."""


class ClientError(BackoffError):
    """The instance can't be found or asked, or its answer can't be used; the message says what to do."""


# -- where it is ---------


@dataclass(frozen=True, slots=True)
class Address:
    https: bool
    host: str
    port: int
    path: str
    """The path before ``/v1``, without a slash at its end, for a reverse proxy."""

    @property
    def listen(self) -> str:
        """``host:port``, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def local(self) -> bool:
        """Whether this can be the address of a gate in a program of this machine."""
        return is_loopback(self.listen) and not self.https and not self.path

    @property
    def url(self) -> str:
        """The whole address, safe to print."""
        return printable(f"http{'s' if self.https else ''}://{self.listen}{self.path}")


def find_instance(gate: str | None) -> Address:
    """Return the instance to ask. Raises ``ClientError``, naming the option or the variable."""
    if gate is not None:
        return read_url(gate)
    listen = read_settings().status.strip()
    try:
        host, port = read_address(listen) if listen else ("127.0.0.1", PORT)
    except ValueError as error:
        raise ClientError(printable(f"{STATUS}: {error}")) from None
    if not port:
        raise ClientError(f"{STATUS}={listen} lets the program choose a port: its log says which; name it with --gate")
    return Address(https=False, host=host, port=port, path="")


def read_url(text: str, option: str = "--gate") -> Address:
    """Read an instance's URL; ``http://`` may be left out. Raises ``ClientError``, naming the option."""
    shown = printable(without_passwords(text))
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:  # an invalid port, or brackets that don't match
        host, port = None, None
        parts = urlsplit("")
    plain = text.isascii() and text.isprintable() and " " not in text
    if parts.scheme not in ("http", "https") or not host or port == 0 or not plain:
        raise ClientError(f'{option}: "{shown}" is not the URL of an instance: write one such as {EXAMPLE}')
    _refuse_extras(parts, shown, option)
    https = parts.scheme == "https"
    return Address(https, host, port or (443 if https else 80), parts.path.rstrip("/").removesuffix("/v1"))


def token_in(file: str, hint: str) -> str:
    """Return the token in the file of ``--token-file``; ``hint`` says where one comes from. Raises ``ClientError``."""
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ClientError(printable(f"--token-file: {file} can't be read: {why}")) from None
    if not (token and token.isascii() and token.isprintable()):
        raise ClientError(printable(f"--token-file: {file} holds no token: {hint}"))
    return token


def _refuse_extras(parts: SplitResult, shown: str, option: str) -> None:
    if parts.username is not None or parts.password is not None:
        raise ClientError(
            f"{option}: leave the credentials out of the URL: the status API does not accept any ({shown})"
        )
    if parts.query or parts.fragment:
        raise ClientError(
            f'{option}: "{shown}" must end before the ? or #: choose with the options -n, --quota and so on'
        )


# -- its answers ---------


def read(kind: Any, found: Any) -> Any:
    """Return ``found`` as ``kind``: a type, or a class of ``shapes``. Raises ``ValueError`` if it is something else."""
    if is_dataclass(kind):
        return _object(kind, found)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if found is None and NoneType in parts else read(parts[0], found)
    if origin is list and isinstance(found, list):
        return [read(parts[0], each) for each in found]
    if origin is dict and isinstance(found, dict):
        return {name: read(parts[1], each) for name, each in found.items()}
    plain = str if origin is Literal else kind  # a later version may know more literals
    if plain is not Any and type(found) is not plain:
        raise ValueError(f"{_shown(found)} is not of type {getattr(plain, '__name__', plain)}")
    return found


def read_time(text: str) -> datetime:
    """Read a time of RFC 3339. Raises ``ValueError``."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{_shown(text)} has no time zone")
    return found


def _object(shape: Any, found: Any) -> Any:
    document = read(dict[str, Any], found)
    kinds = _hints(shape)
    values = {}
    for field in fields(shape):
        if field.name in document:
            values[field.name] = read(kinds[field.name], document[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{field.name} is missing")
    return shape(**values)


_hints = cache(get_type_hints)


def _shown(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= 40 else f"{text[:39]}…"


def detail_of(problem: Any) -> str | None:
    """Return the detail of a problem; None for any other answer."""
    return text(mapping(problem).get("detail")) or None


class Events:
    """Puts server-sent events together, line by line. ``last`` is the id of the last one."""

    def __init__(self, last: str = "") -> None:
        self.last = last
        self._fields: dict[str, str] = {}

    def take(self, line: bytes) -> tuple[str, str] | None:
        """Take the next line; return the name and the data of the event that it completes."""
        name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
        if name:
            self._fields[name] = value.removeprefix(" ")
            return None
        if line.startswith(b":") or not self._fields:  # a keep-alive
            return None
        found, self._fields = self._fields, {}
        self.last = found.get("id", self.last)
        return found.get("event", ""), found.get("data", "")


# -- asking ---------


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All pages of a list. ``items`` are parsed from ``documents``."""

    as_of: str
    at: datetime
    """``as_of`` of the first page, by the clock of the instance: ages are counted from it."""
    items: list[T]
    documents: list[dict[str, Any]]
    note: str | None = None
    """A note on an incomplete list: no gate is connected, so an empty one does not mean that nothing waits."""


class RefusedError(ClientError):
    """The instance answers with a problem. ``status`` is that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Instance:
    """A running instance. It is never reached through a proxy: those of the environment are for other hosts."""

    def __init__(self, place: Address, timeout: float, token: str = "") -> None:
        """``timeout``: seconds for each answer, name resolution and connecting included. ``token``: for actions."""
        self.place = place
        self._timeout = timeout
        self._token = token

    def everything(
        self, path: str, query: Mapping[str, str | None], shape: type[T], most: int | None = None
    ) -> Listed[T]:
        """Read a list page by page; stop after ``most`` items, if given. Raises ``ClientError``."""
        given = {name: value for name, value in query.items() if value}
        whole: Listed[T] | None = None
        after: str | None = None
        while whole is None or after is not None:
            more = {} if after is None else {"after": after}
            page, following = self._page(self._get(f"{path}?{urlencode({**given, 'limit': PAGE, **more})}"), shape)
            if following is not None and (following == after or not page.items):
                raise self.not_ours("its pages lead nowhere")
            after = following
            if whole is None:
                whole = page
            else:
                whole.items.extend(page.items)
                whole.documents.extend(page.documents)
            if most is not None and len(whole.items) >= most:
                break
            if len(whole.items) > ITEMS_MAX:
                raise ClientError(f"{self.place.url} lists more than {ITEMS_MAX:,}: choose a namespace with -n")
        return whole

    def whole(self, path: str, shape: type[T]) -> Listed[T]:
        """Read a list without pages. Raises ``ClientError``."""
        return self._page(self._get(path), shape)[0]

    def decisions(self, namespace: str | None, last: str = "", silence: float = SILENCE) -> Stream:
        """Follow the decisions after the id ``last``; ``silence``: the longest silence, in seconds.

        Raises ``OSError`` and ``HTTPException``.
        """
        target = "/v1/decisions" + (f"?{urlencode({'namespace': namespace})}" if namespace else "")
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        connection = self._connect(silence)
        try:
            connection.request("GET", self.place.path + target, headers=headers)
            response: HTTPResponse = connection.getresponse()
            if response.status != 200 or response.headers.get_content_type() != "text/event-stream":
                response.close()
                raise HTTPException(f"{response.status} instead of a stream of events")  # noqa: TRY301
        except BaseException:
            connection.close()
            raise
        return Stream(response, last)

    def latest(self, namespace: str | None, until: datetime, most: int) -> list[Decision]:
        """Return the last ``most`` decisions that are kept, up to the time ``until``, oldest first.

        Raises ``OSError``, ``HTTPException`` and ``ValueError``.
        """
        found: list[Decision] = []
        stream = self.decisions(namespace, FROM_THE_OLDEST, CAUGHT_UP)
        with closing(stream), suppress(TimeoutError):  # by then nothing more comes
            for each in stream:
                if read_time(each.at) > until:
                    break
                found.append(each)
                del found[:-most]
        return found

    def one(self, path: str, shape: type[T]) -> T:
        return self._shaped(self._get(path), shape)

    def post(self, target: str, body: bytes, shape: type[T]) -> tuple[T, dict[str, Any]]:
        """POST JSON; return the answer, parsed and raw. Raises ``ClientError``."""
        found = self._get(target, body)
        return self._shaped(found, shape), found

    def delete(self, target: str, shape: type[T]) -> T:
        """DELETE; return the document of what was deleted. Raises ``ClientError``."""
        return self._shaped(self._get(target, method="DELETE"), shape)

    def text(self, target: str, say: Callable[[str], object]) -> Iterator[bytes]:
        """Yield a text as it comes, however long that takes; ``say`` gets the note in its head. Raises
        ``ClientError``."""
        url, connection = self.place.url, self._connect(self._timeout)
        response: HTTPResponse | None = None
        try:
            with self._told():
                headers = {"Accept": f"text/plain, {PROBLEM}", **self._authorization()}
                connection.request("GET", self.place.path + target, headers=headers)
                if connection.sock is not None:
                    connection.sock.settimeout(None)  # a program may write nothing for hours
                response = connection.getresponse()
                if response.status != 200 or response.headers.get_content_type() != "text/plain":
                    self._document(response.status, response.headers.get_content_type(), response.read(ANSWER_MAX + 1))
                    raise self.not_ours("its answer is not text")
            if note := response.headers.get(NOTE):
                say(printable(note))
            while piece := response.read1(1 << 16):
                yield piece
        except (OSError, HTTPException) as error:
            raise ClientError(f"{url} broke off: {printable(str(error) or type(error).__name__)}") from None
        finally:
            if response is not None:
                response.close()
            connection.close()

    def _shaped(self, found: Any, shape: type[T]) -> T:
        try:
            return read(shape, found)  # type: ignore[no-any-return]
        except ValueError as error:
            raise self._unexpected(error) from None

    def _page(self, found: Any, shape: type[T]) -> tuple[Listed[T], str | None]:
        """Return a page of a list, and the cursor of the next one."""
        try:
            documents = read(list[dict[str, Any]], found["items"])
            as_of = read(str, found["as_of"])
            items, note = [read(shape, each) for each in documents], read(str | None, found.get("note"))
            return Listed(as_of, read_time(as_of), items, documents, note), read(str | None, found["next"])
        except (ValueError, TypeError, KeyError) as error:
            raise self._unexpected(error) from None

    def _get(self, target: str, body: bytes | None = None, method: str = "") -> Any:
        """GET a document, or POST JSON for it. Raises ``ClientError``."""
        with self._told():
            status, content_type, found = within(self._timeout, lambda: self._ask(target, body, method))
        return self._document(status, content_type, found)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn any error on the way into a sentence, as ``ClientError``."""
        url = self.place.url
        try:
            yield
        except TimeoutError:
            raise ClientError(
                f"{url} did not answer within {self._timeout:g} s: check whether the program there is stopped or "
                "overloaded, or wait longer with --timeout"
            ) from None
        except ConnectionRefusedError:
            raise ClientError(self._nobody()) from None
        except ssl.SSLCertVerificationError as error:
            words = printable(error.verify_message or str(error))
            raise ClientError(
                f"{url} has a certificate that is not trusted ({words}): check --gate, or name its "
                "certificate authority with SSL_CERT_FILE"
            ) from None
        except ssl.SSLError as error:
            words = error.reason or str(error)
            raise ClientError(f"{url} can't be asked over TLS ({printable(words)}): check --gate") from None
        except ConnectionError:
            raise ClientError(
                f"{url} closed the connection without an answer: try again, since it may be overloaded; otherwise "
                "check --gate"
            ) from None
        except HTTPException as error:
            raise self.not_ours(f"it does not speak HTTP: {error!r}") from None
        except (OSError, UnicodeError) as error:
            words = getattr(error, "strerror", None) or str(error)
            raise ClientError(f"{url} can't be reached ({printable(words)}): check --gate") from None

    def _ask(self, target: str, sent: bytes | None, method: str) -> tuple[int, str, bytes]:
        """Send one request and read its answer, in a thread that may be abandoned."""
        connection = self._connect(self._timeout)
        try:
            headers = {"Accept": f"application/json, {PROBLEM}", **self._authorization()}
            if sent is not None:
                headers["Content-Type"] = "application/json"
            method = method or ("GET" if sent is None else "POST")
            connection.request(method, self.place.path + target, sent, headers)
            with connection.getresponse() as response:  # where the connection ends with it, it holds the socket
                body = response.read(ANSWER_MAX + 1)
            return response.status, response.headers.get_content_type(), body
        finally:
            connection.close()

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _connect(self, timeout: float) -> HTTPConnection:
        kind = HTTPSConnection if self.place.https else HTTPConnection
        return kind(self.place.host, self.place.port, timeout=timeout)

    def _document(self, status: int, content_type: str, body: bytes) -> Any:
        if len(body) > ANSWER_MAX:
            raise self.not_ours(f"its answer has more than {ANSWER_MAX >> 20} MiB")
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            raise self.not_ours(f"it answers {status} with {content_type}, which is not JSON") from None
        if status in (200, 201):
            return found
        detail = detail_of(found) if content_type == PROBLEM else None
        if detail is None:
            raise self.not_ours(f"it answers {status}")
        raise RefusedError(printable(f"{self.place.url} answers {status}: {detail}{self._remedy(status)}"), status)

    def _remedy(self, status: int) -> str:
        """Return what a person can do about a refusal that does not say so."""
        if status >= 500:
            return ": try again, and look at its log"
        if status in (401, 403) and not self._token:
            return ": if the command takes --token-file, name a token that may; else ask those who run it for access"
        return ""

    def _nobody(self) -> str:
        if not self.place.local:
            return f"nothing listens at {self.place.url}: check --gate, and that the instance runs there"
        return (
            f"nothing listens at {self.place.url}: set {STATUS}={self.place.listen} in the program that contains "
            "the gate, or name another address with --gate (the program's log says where its status is)"
        )

    def _unexpected(self, error: Exception) -> ClientError:
        return self.not_ours(f"it answers with unexpected JSON: {error}")

    def not_ours(self, why: str) -> ClientError:
        """Return the error that another program answers there."""
        return ClientError(printable(f"{self.place.url} is not the status API of a gate ({why}): check --gate"))


class Stream:
    def __init__(self, response: HTTPResponse, last: str) -> None:
        self._response = response
        self._events = Events(last)

    @property
    def last(self) -> str:
        """The id of the last decision: a new stream continues after it."""
        return self._events.last

    def __iter__(self) -> Iterator[Decision]:
        """Yield decisions until the instance ends the stream. Raises ``OSError``, ``HTTPException``, ``ValueError``."""
        with self._response:
            while line := self._response.readline(LINE_MAX):
                event = self._events.take(line)
                if event is not None and event[0] == "decision":
                    found: Decision = read(Decision, json.loads(event[1]))
                    yield found

    def close(self) -> None:
        """End it, from any thread, and wake its reader."""
        connection = getattr(getattr(self._response.fp, "raw", None), "_sock", None)
        if isinstance(connection, socket.socket):
            with suppress(OSError):  # it has ended by itself
                connection.shutdown(socket.SHUT_RDWR)
