"""Asks an instance over HTTP. All that can go wrong on the way ends the command with one sentence."""

from __future__ import annotations

import json
import ssl
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from backoff_ctrl.api.exits import BadInput
from backoff_ctrl.k8s.answers.printing import printable
from backoff_ctrl.k8s.status.address import ENVIRONMENT

from .reading import read, read_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from http.client import HTTPResponse

    from .place import Place

T = TypeVar("T")
PAGE: Final = 1000
"""Items asked for at a time: the most that the status API gives."""
ITEMS_MAX: Final = 200_000
"""Items read of one list at most: about 200 MB."""
ANSWER_MAX: Final = 64 << 20
"""The largest answer, in bytes. A page of 1,000 waiting creates has about 500 kB."""
PROBLEM: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All pages of a list. ``items`` are what was read of ``documents``, which are as they came."""

    as_of: str
    at: datetime
    """``as_of`` of the first page, by the clock of the instance: ages are counted from it."""
    items: list[T]
    documents: list[dict[str, Any]]
    note: str | None = None
    """What the list lacks: that no gate is connected, so that an empty one does not mean that nothing waits."""


class RefusedError(BadInput):
    """The instance answers with a problem. ``status`` is that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        """``message`` says who answers what."""
        super().__init__(message)
        self.status = status


class Instance:
    """A running instance. Never asked through a proxy: those of the environment are for other hosts."""

    def __init__(self, place: Place, timeout: float, token: str = "") -> None:
        """``timeout``: seconds for each answer, looking up its host and connecting included. ``token``: to act."""
        self.place = place
        self._timeout = timeout
        self._token = token

    def everything(
        self, path: str, query: Mapping[str, str | None], shape: type[T], most: int | None = None
    ) -> Listed[T]:
        """Read a list page by page; stop behind ``most`` items, if that is given. Raises ``BadInput``."""
        given = {name: value for name, value in query.items() if value}
        whole: Listed[T] | None = None
        after: str | None = None
        while whole is None or after is not None:
            more = {} if after is None else {"after": after}
            page = self._page(self._get(f"{path}?{urlencode({**given, 'limit': PAGE, **more})}"), shape)
            if page.next is not None and (page.next == after or not page.listed.items):
                raise self.not_ours("its pages lead nowhere")
            after = page.next
            if whole is None:
                whole = page.listed
            else:
                whole.items.extend(page.listed.items)
                whole.documents.extend(page.listed.documents)
            if most is not None and len(whole.items) >= most:
                break
            if len(whole.items) > ITEMS_MAX:
                raise BadInput(f"{self.place.url} lists more than {ITEMS_MAX:,}: choose a namespace with -n")
        return whole

    def whole(self, path: str, shape: type[T]) -> Listed[T]:
        """Read a list that has no pages. Raises ``BadInput``."""
        return self._page(self._get(path), shape).listed

    def stream(self, target: str, headers: Mapping[str, str], silence: float) -> HTTPResponse:
        """Open a stream of events; ``silence`` is how many seconds it may say nothing. Raises as ``http.client``."""
        connection = self._connect(silence)
        try:
            connection.request("GET", self.place.path + target, headers={"Accept": "text/event-stream", **headers})
            response: HTTPResponse = connection.getresponse()
            if response.status != 200 or response.headers.get_content_type() != "text/event-stream":
                raise HTTPException(f"{response.status} instead of a stream of events")  # noqa: TRY301
        except BaseException:
            connection.close()
            raise
        return response

    def one(self, path: str, shape: type[T]) -> T:
        """Read one document. Raises ``BadInput``."""
        found = self._get(path)
        try:
            return read(shape, found)  # type: ignore[no-any-return]
        except ValueError as error:
            raise self.not_ours(f"it answers with unexpected JSON: {error}") from None

    def post(self, target: str, body: bytes, shape: type[T]) -> tuple[T, dict[str, Any]]:
        """POST JSON; return the answer in its shape, and as it came. Raises ``BadInput``."""
        found = self._get(target, body)
        try:
            return read(shape, found), found
        except ValueError as error:
            raise self.not_ours(f"it answers with unexpected JSON: {error}") from None

    def delete(self, target: str, shape: type[T]) -> T:
        """DELETE; return what is told of what was there. Raises ``BadInput``."""
        found = self._get(target, method="DELETE")
        try:
            return read(shape, found)  # type: ignore[no-any-return]
        except ValueError as error:
            raise self.not_ours(f"it answers with unexpected JSON: {error}") from None

    def text(self, target: str) -> Iterator[bytes]:
        """Yield a text as it comes, however long that takes. Raises ``BadInput``."""
        url, connection = self.place.url, self._connect(self._timeout)
        try:
            with self._told():
                headers = {"Accept": f"text/plain, {PROBLEM}", **self._authorization()}
                connection.request("GET", self.place.path + target, headers=headers)
                if connection.sock is not None:
                    connection.sock.settimeout(None)  # a program may write nothing for hours
                response: HTTPResponse = connection.getresponse()
                if response.status != 200 or response.headers.get_content_type() != "text/plain":
                    self._document(response.status, response.headers.get_content_type(), response.read(ANSWER_MAX + 1))
                    raise self.not_ours("it answers no text")
            while piece := response.read1(1 << 16):
                yield piece
        except (OSError, HTTPException) as error:
            raise BadInput(f"{url} broke off: {printable(str(error) or type(error).__name__)}") from None
        finally:
            connection.close()

    def _page(self, found: Any, shape: type[T]) -> _Page[T]:
        try:
            documents = read(list[dict[str, Any]], found["items"])
            as_of = read(str, found["as_of"])
            items, note = [read(shape, each) for each in documents], read(str | None, found.get("note"))
            listed = Listed(as_of, read_time(as_of), items, documents, note)
            return _Page(listed, read(str | None, found["next"]))
        except (ValueError, TypeError, KeyError) as error:
            raise self.not_ours(f"it answers with unexpected JSON: {error}") from None

    def _get(self, target: str, body: bytes | None = None, method: str = "") -> Any:
        """GET a document, or POST JSON for it. Raises ``BadInput``."""
        with self._told():
            status, content_type, found = _within(self._timeout, lambda: self._ask(target, body, method))
        return self._document(status, content_type, found)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn whatever goes wrong on the way into a sentence, as ``BadInput``."""
        url = self.place.url
        try:
            yield
        except TimeoutError:
            raise BadInput(
                f"{url} did not answer within {self._timeout:g} s: check whether the program there is stopped or "
                "overloaded, or wait longer with --timeout"
            ) from None
        except ConnectionRefusedError:
            raise BadInput(self._nobody()) from None
        except ssl.SSLCertVerificationError as error:
            words = printable(error.verify_message or str(error))
            raise BadInput(
                f"{url} has a certificate that is not trusted ({words}): check --server, or name its "
                "certificate authority with SSL_CERT_FILE"
            ) from None
        except ssl.SSLError as error:
            words = error.reason or str(error)
            raise BadInput(f"{url} can't be asked over TLS ({printable(words)}): check --server") from None
        except ConnectionError:
            raise BadInput(
                f"{url} closed the connection without an answer: try again, since it may be overloaded; otherwise "
                "check --server"
            ) from None
        except HTTPException as error:
            raise self.not_ours(f"it does not speak HTTP: {error!r}") from None
        except (OSError, UnicodeError) as error:
            words = getattr(error, "strerror", None) or str(error)
            raise BadInput(f"{url} can't be reached ({printable(words)}): check --server") from None

    def _ask(self, target: str, sent: bytes | None, method: str) -> tuple[int, str, bytes]:
        """Send one request and read its answer, in a thread that may be left behind."""
        connection = self._connect(self._timeout)
        try:
            headers = {"Accept": f"application/json, {PROBLEM}", **self._authorization()}
            if sent is not None:
                headers["Content-Type"] = "application/json"
            method = method or ("GET" if sent is None else "POST")
            connection.request(method, self.place.path + target, sent, headers)
            response: HTTPResponse = connection.getresponse()
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
        detail = found.get("detail") if isinstance(found, dict) and content_type == PROBLEM else None
        if not isinstance(detail, str):
            raise self.not_ours(f"it answers {status}")
        again = ": try again" if status >= 500 else ""
        raise RefusedError(printable(f"{self.place.url} answers {status}: {detail}{again}"), status)

    def _nobody(self) -> str:
        if not self.place.local:
            return f"nothing listens at {self.place.url}: check --server, and that the instance runs there"
        return (
            f"nothing listens at {self.place.url}: set {ENVIRONMENT}={self.place.listen} in the program that contains "
            "the gate, or name another address with --server (the program's log says where its status is)"
        )

    def not_ours(self, why: str) -> BadInput:
        """Return the error that something else answers there."""
        return BadInput(printable(f"{self.place.url} is not the status API of a gate ({why}): check --server"))


@dataclass(frozen=True, slots=True)
class _Page(Generic[T]):
    listed: Listed[T]
    next: str | None


def _within(seconds: float, ask: Callable[[], T]) -> T:
    """Return what ``ask`` returns. Raises ``TimeoutError`` even where it hangs, such as at a server that trickles."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            answer.set_exception(error)

    threading.Thread(target=run, name="backoff-ctrl-ask", daemon=True).start()
    return answer.result(seconds)
