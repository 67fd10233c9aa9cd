"""What a cluster lets this account do: the questions behind ``backoff-ctrl doctor``."""

from __future__ import annotations

import json
import ssl
import threading
import warnings
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import urllib3
from kubernetes.client import ApiClient, ApiException

from backoff_ctrl.k8s.answers.paging import is_list
from backoff_ctrl.k8s.answers.printing import printable, without_passwords

from .finding import OTHER, Place, ReachError, find_place, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["Check", "Place", "Reach", "ReachError", "Right", "answer_later", "find_place"]

T = TypeVar("T")
PATIENCE: Final = (5, 10)  # seconds to connect, and between two pieces of an answer
_ANONYMOUS: Final = "system:anonymous"
"""Whom the server takes somebody for who shows it nothing that it knows."""
ANSWER_MAX: Final = 256 << 20
"""Bytes of an answer: 500 pods are about 4 MiB."""
ANSWER_LIMIT: Final = 60
"""Seconds for a whole answer, long lists too: a server that sends byte after byte holds nobody for longer."""
REVIEW: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's: ``remedy`` says what to do where ``ok`` is false."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Right:
    """A right that the gate uses, and what is worse without it."""

    verb: str
    resource: str
    without: str


RIGHTS: Final = (
    Right("create", "pods", "nothing can be created: bind a role with create on pods to this account"),
    Right("get", "pods", "after a lost answer only names that the gate drew are safe: allow get on pods"),
    Right("watch", "pods", "ends of pods are not noticed: allow list and watch on pods"),
    Right("list", "resourcequotas", "the gate learns from refusals instead: bind the role view to this account"),
    Right("watch", "resourcequotas", "the gate learns from refusals instead: bind the role view to this account"),
)


class Reach:
    """Asks the cluster. Raises ``ReachError`` where it cannot be reached at all."""

    def __init__(self, place: Place, *, limit: float = ANSWER_LIMIT) -> None:
        """Ask once, without retries: a doctor should not take minutes. ``limit``: seconds for a whole answer."""
        self._limit = limit
        place.configuration.retries = False  # urllib3's way to say none
        if not place.configuration.verify_ssl:  # asked for in the kubeconfig: a warning for every call says no more
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self.place = place
        try:
            with warnings.catch_warnings():  # of the package that a SOCKS proxy needs: said below
                warnings.simplefilter("ignore", urllib3.exceptions.DependencyWarning)
                self._client = ApiClient(place.configuration)
        except (urllib3.exceptions.LocationValueError, ImportError) as error:
            raise _unusable(str(place.configuration.proxy), error) from error
        except (OSError, ValueError) as error:  # a certificate that is none
            raise ReachError(f"{place.found} can't be used: {one_line(error)}; {OTHER}") from error

    def checks(self) -> Iterator[Check]:
        """Answer, check by check."""
        yield Check("cluster", ok=True, detail=f"{self.version()} at {self.place.found}")
        for right in RIGHTS:
            yield self._right(right)
        yield self._quotas()

    @staticmethod
    def forbidden(checks: Iterable[Check]) -> bool:
        """Say whether nothing can be done here: not even the first right is given."""
        needed = f"{RIGHTS[0].verb} {RIGHTS[0].resource}"
        return any(check.name == needed and not check.ok for check in checks)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def version(self) -> str:
        """Return what the server says it is. Raises ``ReachError`` where the credentials are refused, too."""
        status, answer = self.ask("GET", "/version")
        self.insist_on_credentials(status, answer)
        if status != 200:
            raise ReachError(f"{self.place.url} answers {status} to /version: is it an API server?")
        return printable(str(answer.get("gitVersion", "version unknown")))

    def insist_on_credentials(self, status: int, answer: Mapping[str, Any]) -> None:
        """Raise ``ReachError`` where this answer says that the server does not know who asks."""
        if status == 401 or (status == 403 and _ANONYMOUS in str(answer.get("message"))):
            raise ReachError(
                f"{self.place.url} refuses the credentials of {self.place.found}: they are missing, have expired or "
                "are another cluster's; log in again or take a fresh token, then try again"
            )

    def allowed(self, verb: str, resource: str, namespace: str = "") -> bool | None:
        """Say whether this account may (all resources are of the core group); None: the server does not say."""
        name, _, subresource = resource.partition("/")
        attributes = {"namespace": namespace, "verb": verb, "resource": name, "subresource": subresource}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        status, answer = self.ask("POST", REVIEW, body)
        self.insist_on_credentials(status, answer)
        said = answer.get("status")
        return bool(said.get("allowed")) if status in (200, 201) and isinstance(said, dict) else None

    def _right(self, right: Right) -> Check:
        name, namespace = f"{right.verb} {right.resource}", self.place.namespace
        allowed = self.allowed(right.verb, right.resource, namespace)
        if allowed is None:
            return Check(name, ok=False, detail="cannot be asked", remedy="is this an API server?")
        words = "allowed" if allowed else "not allowed"
        return Check(name, allowed, f"{words} in {namespace}", "" if allowed else right.without)

    def _quotas(self) -> Check:
        namespace = self.place.namespace
        status, answer = self.ask("GET", f"/api/v1/namespaces/{namespace}/resourcequotas")
        if status == 200 and not answer.get("items") and self._missing(namespace):
            remedy = "create it, or name another with --namespace"
            return Check("quotas", ok=False, detail=f"there is no namespace {namespace}", remedy=remedy)
        if status != 200:
            return Check("quotas", ok=False, detail=f"the list answers {status}", remedy=RIGHTS[3].without)
        if not is_list(answer):
            remedy = "is this an API server, or does a proxy stand before it?"
            return Check("quotas", ok=False, detail="what is answered is no list", remedy=remedy)
        names = [printable(name) for name in _names(answer)]
        detail = ", ".join(names) if names else "none: creates are not limited there, and the gate only watches"
        return Check("quotas", ok=True, detail=f"{namespace} has {detail}")

    def _missing(self, namespace: str) -> bool:
        """Say whether a namespace is not there; an account that may not look at it gets the benefit."""
        return self.ask("GET", f"/api/v1/namespaces/{namespace}")[0] == 404

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Iterable[tuple[str, str]] = (),
        accept: str = "application/json",
    ) -> tuple[int, dict[str, Any]]:
        """Ask anything, with the credentials of this moment: the status, and the object in the answer if any."""
        try:
            request = self._client.param_serialize(
                method,
                path,
                query_params=list(query),
                header_params={"Accept": accept, "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
            )
            status, text = _within(self._limit, lambda: self._call(*request))
        except (urllib3.exceptions.HTTPError, ApiException, OSError, ValueError) as error:
            raise ReachError(f"{self.place.url} can't be reached: {_why(error)}") from error
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):  # nested ever deeper: nobody's object
            answer = {}
        return status, answer if isinstance(answer, dict) else {}

    def _call(self, method: str, url: str, headers: Any, body: Any, form: Any) -> tuple[int, bytes]:
        response = self._client.call_api(method, url, headers, body, form, PATIENCE).response
        text: bytes = response.read(ANSWER_MAX + 1, decode_content=True)
        if len(text) > ANSWER_MAX:
            response.close()
            raise ReachError(f"{self.place.url} answers with more than {ANSWER_MAX} bytes: is it an API server?")
        response.release_conn()
        return response.status, text


def answer_later(answer: Future[T], call: Callable[[], T]) -> None:
    """Have a daemon thread call, and answer with what comes of it: whoever waits for that may stop waiting."""

    def run() -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the answer raises it
            answer.set_exception(error)

    threading.Thread(target=run, name="backoff-ctrl-ask", daemon=True).start()


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Return what a call returns or raise what it raises; ``TimeoutError`` where it takes longer, and it is left.

    A thread, since urllib3 limits only the wait for the next piece of an answer.
    """
    answer: Future[T] = Future()
    answer_later(answer, call)
    if not wait([answer], timeout=seconds).done:
        raise TimeoutError(f"not whole after {seconds:g} s")
    return answer.result()


def _names(listed: dict[str, Any]) -> Iterator[str]:
    """Go through the names of a list's objects, whatever they are."""
    for item in listed["items"] or ():
        metadata = item.get("metadata") if isinstance(item, dict) else None
        if isinstance(metadata, dict) and metadata.get("name"):
            yield str(metadata["name"])


def _unusable(proxy: str, error: Exception) -> ReachError:
    """Say why a proxy can't be used, and that it need not be the kubeconfig that names it."""
    named = f"the proxy {printable(without_passwords(proxy))!r} (of HTTPS_PROXY, or proxy-url in the kubeconfig)"
    if isinstance(error, ImportError):
        return ReachError(f"{named} is a SOCKS proxy, which needs a package: pip install pysocks")
    return ReachError(f"{named} can't be used: it must be a URL such as http://127.0.0.1:3128")


_CHECK: Final = "check the address and the network"
_WHYS: Final = (
    (ssl.SSLCertVerificationError, "its certificate is not trusted", "name its authority in the kubeconfig"),
    (ssl.SSLError, "no TLS with it", "check the address, http or https, and the certificates"),
    (urllib3.exceptions.NameResolutionError, "there is no such host", _CHECK),
    (urllib3.exceptions.ProxyError, "the proxy fails", "check proxy-url and HTTPS_PROXY"),
    (urllib3.exceptions.NewConnectionError, "nothing listens there", "check the address, and that the server runs"),
    (urllib3.exceptions.ConnectTimeoutError, "no connection in time", _CHECK),
    (urllib3.exceptions.ReadTimeoutError, "no answer in time", "is it an API server, and is it well?"),
    (TimeoutError, "no answer in time", "is it an API server, and is it well?"),
    (Exception, "the connection fails", _CHECK),
)
"""What a connection may fail of, what to call it and what to do: the first that is among the causes."""


def _why(error: BaseException) -> str:
    """Say why a connection failed and what to do, in words."""
    causes: list[BaseException] = []
    todo: list[object] = [error]
    while todo:
        each = todo.pop()
        if isinstance(each, BaseException) and each not in causes:
            causes.append(each)
            todo += [each.__context__, each.__cause__, getattr(each, "reason", None)]
    kind, words, remedy = next(why for why in _WHYS if any(isinstance(each, why[0]) for each in causes))
    found = one_line(next(each for each in reversed(causes) if isinstance(each, kind)))
    if kind is ssl.SSLCertVerificationError and "mismatch" in found:
        words, remedy = "its certificate is another host's", "check the address, and tls-server-name in the kubeconfig"
    return f"{words} ({found}); {remedy}"
