"""Asks a cluster what this account may do: the checks of ``backoff-ctrl doctor``, and requests of other commands."""

from __future__ import annotations

import json
import ssl
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import urllib3
from kubernetes.client.rest import RESTClientObject

from backoff_ctrl.k8s.kube.answers.bounded_json import read_json
from backoff_ctrl.k8s.kube.answers.fields import metadata_of
from backoff_ctrl.k8s.kube.answers.paging import PAGE, EndlessListError, Pages, is_list
from backoff_ctrl.k8s.kube.answers.printing import printable, without_passwords
from backoff_ctrl.k8s.kube.paths import path_to
from backoff_ctrl.k8s.kube.recent import Recent
from backoff_ctrl.k8s.kube.time_limit import within

from .finding import OTHER, ClusterAccess, ReachError, find_place, one_line
from .misspelt import no_namespace
from .recognizing import PATH as VERSION
from .recognizing import REMEDY as _NO_API_SERVER
from .recognizing import SPEAKS_TLS, other_than_api_server, speaks_no_tls, speaks_tls
from .rights import CREATOR, REVIEW, Right, granted

__all__ = [
    "Check", "ClusterAccess", "Reach", "ReachError", "Recent", "UnreachableError", "find_api_server", "find_place",
]  # fmt: skip

T = TypeVar("T")
PATIENCE: Final = urllib3.Timeout(connect=5, read=10)  # seconds; read: between two chunks of an answer
_ANONYMOUS: Final = "system:anonymous"
"""The user name that a server gives to requests without valid credentials."""
ANSWER_MAX: Final = 256 << 20
"""The largest answer in bytes: 500 pods are about 4 MiB."""
ANSWER_LIMIT: Final = 60
"""Seconds for a whole answer, even a long list, so that a server that sends single bytes cannot block the caller."""


class UnreachableError(ReachError):
    """No answer of the API server now; it may give one later."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of ``doctor``. ``remedy``: what to do if ``ok`` is false."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


class Reach:
    """Sends requests to the cluster. Raises ``ReachError`` if the cluster cannot be reached or used."""

    def __init__(self, place: ClusterAccess, *, limit: float = ANSWER_LIMIT) -> None:
        """Prepare a client without retries, since a check should not take minutes. ``limit``: seconds per answer."""
        self._limit = limit
        place.configuration.retries = False  # urllib3's value for no retries
        if not place.configuration.verify_ssl:  # set in the kubeconfig, so no warning is needed for every call
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self.place = place
        try:
            with warnings.catch_warnings():  # the package that a SOCKS proxy needs is reported below
                warnings.simplefilter("ignore", urllib3.exceptions.DependencyWarning)
                self._connections: Any = RESTClientObject(place.configuration).pool_manager  # of any version
        except (urllib3.exceptions.LocationValueError, ImportError) as error:
            raise _unusable(str(place.configuration.proxy), error) from error
        except (OSError, ValueError) as error:  # a malformed certificate
            raise ReachError(f"{place.found} cannot be used: {one_line(error)}; {OTHER}") from error

    def checks(self, rights: Sequence[Right] = CREATOR) -> Iterator[Check]:
        """Run the checks one by one: the cluster, a note for sidecars, the namespace, each right, the quotas.

        If the namespace does not exist, the checks after it are left out. ``rights``: check these instead of a
        creator's, and no other after them.
        """
        yield Check("cluster", ok=True, detail=f"{self.version()} at {self.place.url} ({self.place.found})")
        if rights is CREATOR and (note := self._behind_a_sidecar()):
            yield Check("sidecar", ok=True, detail=note)
        namespace = self.place.namespace
        if namespace and self._lacks(namespace):
            remedy = f"create it (kubectl create namespace {namespace}), or choose another with --namespace"
            yield Check("namespace", ok=False, detail=f"namespace {namespace} does not exist", remedy=remedy)
            return
        for right in rights:
            yield self._right(right)
        if rights is CREATOR:
            yield self._quotas()

    def lacking(self, rights: Sequence[Right]) -> list[str]:
        """Return a line for each right that the server reports as missing. Raises ``ReachError``."""
        namespace = self.place.namespace
        return [right.lacking(namespace) for right in rights if self._granted(right) is False]

    def _behind_a_sidecar(self) -> str:
        """Return a warning if creators with these credentials can't work behind ``backoff-ctrl proxy``, else empty."""
        configuration = self.place.configuration
        if configuration.cert_file and not configuration.api_key:
            return "a client certificate can't be passed on by backoff-ctrl proxy: behind it this account needs a token"
        if configuration.api_key and self.place.url.startswith("http://"):  # clientcmd in client-go
            return "kubectl and Go programs send no token over plain HTTP: behind a proxy they need its TLS mode"
        return ""

    @staticmethod
    def forbidden(checks: Iterable[Check]) -> bool:
        """Return whether the account lacks the right to create pods, without which the gate is useless."""
        return any(check.name == str(CREATOR[0]) and not check.ok for check in checks)

    def close(self) -> None:
        self._connections.clear()

    def version(self) -> str:
        """Return the version of the API server.

        Raises ``ReachError``, also if it is no API server, or if it rejects the credentials.
        """
        status, text = self._answer("GET", VERSION)
        if flaw := other_than_api_server(status, text):
            raise ReachError(f"{self.place.url} {flaw}")
        answer = _object_in(text)
        self.insist_on_credentials(status, answer)
        if status == 429 or status >= 500:
            raise UnreachableError(f"{self.place.url} answered {status} to {VERSION}: try again")
        return printable(str(answer.get("gitVersion", "unknown version")))

    def insist_on_credentials(self, status: int, answer: Mapping[str, Any]) -> None:
        """Raise ``ReachError`` if this answer means that the server did not accept the credentials."""
        if status == 401 or (status == 403 and _ANONYMOUS in str(answer.get("message"))):
            raise ReachError(
                f"{self.place.url} rejected the credentials ({self.place.found}): they are missing, expired or for "
                "another cluster; log in again or get a fresh token, then try again"
            )

    def allowed(self, verb: str, resource: str, namespace: str = "") -> bool | None:
        """Return whether this account has a right on a resource of the core group; None if the server does not say."""
        return self._granted(Right(verb, resource, "", namespace=namespace))

    def _granted(self, right: Right) -> bool | None:
        status, answer = self.ask("POST", REVIEW, right.review(self.place.namespace))
        self.insist_on_credentials(status, answer)
        return granted(status, answer)

    def _right(self, right: Right) -> Check:
        allowed = self._granted(right)
        if allowed is None:
            return Check(str(right), ok=False, detail="the access review failed", remedy=_NO_API_SERVER)
        words = "allowed" if allowed else "not allowed"
        detail = f"{words} {right.where(self.place.namespace)}"
        return Check(str(right), allowed, detail, "" if allowed else right.without)

    def _quotas(self) -> Check:
        namespace = self.place.namespace
        status, answer = self.ask("GET", path_to("/api/v1", "resourcequotas", namespace=namespace))
        if status != 200:
            return Check(
                "quotas", ok=False, detail=f"listing them failed with status {status}", remedy=CREATOR[3].without
            )
        if not is_list(answer):
            return Check("quotas", ok=False, detail="the answer is not a list", remedy=_NO_API_SERVER)
        names = [printable(name) for name in _names(answer)]
        if not names:
            return Check("quotas", ok=True, detail=f"namespace {namespace} has no quota: creates are not limited there")
        return Check("quotas", ok=True, detail=f"{', '.join(names)} in {namespace}")

    def absence(self, namespace: str) -> str | None:
        """Return that a namespace does not exist, and which may be meant if this account may list them.

        None if it exists, or this account may not read it.
        """
        if not self._lacks(namespace):
            return None
        known: list[str] = []
        with suppress(EndlessListError):  # the names of the first pages are hints enough
            for status, page in self.pages(path_to("/api/v1", "namespaces")):
                if status != 200 or not is_list(page):
                    break
                known += _names(page)
        return no_namespace(namespace, known)

    def _lacks(self, namespace: str) -> bool:
        status, answer = self.ask("GET", path_to("/api/v1", "namespaces", name=namespace))
        return status == 404 and answer.get("kind") == "Status"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Sequence[tuple[str, str]] = (),
        accept: str = "application/json",
    ) -> tuple[int, dict[str, Any]]:
        """Send a request with the current credentials. Return the status and the JSON object, or an empty one.

        Raises ``ReachError``.
        """
        status, text = self._answer(method, path, body, query=query, accept=accept)
        return status, _object_in(text)

    def _answer(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Sequence[tuple[str, str]] = (),
        accept: str = "application/json",
    ) -> tuple[int, bytes]:
        try:
            url = f"{self.place.configuration.host}{path}"
            headers = {"Accept": accept, "Content-Type": "application/json", **self.place.headers()}
            options = {"headers": headers, "body": None if body is None else json.dumps(body)}
            if query:
                url += f"?{urlencode(query)}"
            return within(self._limit, lambda: self._call(method, url, options))
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> ReachError:
        """Return the error that no answer came."""
        causes, said = _causes(error), f"cannot reach {self.place.url}: "
        if speaks_no_tls(causes):
            return ReachError(
                f"{said}TLS failed: the server there speaks plain text; write http:// instead of https://"
            )
        if any(isinstance(each, ssl.SSLCertVerificationError) for each in causes):
            return ReachError(f"{said}{_why(causes)}")
        closed = any(isinstance(each, urllib3.exceptions.ProtocolError) for each in causes)
        if closed and not self.place.configuration.proxy and speaks_tls(str(self.place.configuration.host)):
            return ReachError(f"{said}it {SPEAKS_TLS}")
        return UnreachableError(f"{said}{_why(causes)}")

    def pages(
        self, path: str, *, query: Sequence[tuple[str, str]] = (), accept: str = "application/json"
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the pages of a list, each with its status, refusals too: the caller has to check it.

        Raises ``EndlessListError``, and ``ReachError``.
        """
        pages, more = Pages(), True
        while more:
            after = [("continue", pages.token)] if pages.token else []
            status, page = self.ask("GET", path, query=[*query, ("limit", str(PAGE)), *after], accept=accept)
            yield status, page
            metadata = page.get("metadata")
            more = pages.go_on(metadata if isinstance(metadata, dict) else {})

    def _call(self, method: str, url: str, options: Mapping[str, Any]) -> tuple[int, bytes]:
        response = self._connections.request(method, url, timeout=PATIENCE, preload_content=False, **options)
        text: bytes = response.read(ANSWER_MAX + 1, decode_content=True)
        if len(text) > ANSWER_MAX:
            response.close()
            raise ReachError(f"{self.place.url} answered with more than {ANSWER_MAX} bytes: {_NO_API_SERVER}")
        response.release_conn()
        return response.status, text


def find_api_server(
    server: str | None, kubeconfig: str | None, context: str | None, namespace: str | None, *, patient: bool = False
) -> ClusterAccess:
    """Find the cluster, as ``find_place`` does, and ask its API server for its version.

    Raises ``ReachError`` also for another server, and for one that rejects the credentials. ``patient``: one that does
    not answer now may do so later.
    """
    place = find_place(server, kubeconfig, context, namespace)
    reach = Reach(place)
    try:
        reach.version()
    except UnreachableError:
        if not patient:
            raise
    finally:
        reach.close()
    return place


def _names(listed: dict[str, Any]) -> Iterator[str]:
    for item in listed["items"] or ():
        if name := metadata_of(item).get("name"):
            yield str(name)


def _object_in(text: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer, or an empty one."""
    try:
        found = read_json(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _unusable(proxy: str, error: Exception) -> ReachError:
    """Return the error for an unusable proxy, which may come from the environment as well as from the kubeconfig."""
    named = f"the proxy {printable(without_passwords(proxy))!r} (HTTPS_PROXY, or proxy-url in the kubeconfig)"
    if isinstance(error, ImportError):
        return ReachError(f"{named} is a SOCKS proxy, which needs another package: pip install pysocks")
    return ReachError(f"{named} cannot be used: it must be a URL such as http://127.0.0.1:3128")


_CHECK: Final = "check the address and the network"
_WHYS: Final = (
    (ssl.SSLCertVerificationError, "its certificate is not trusted", "set certificate-authority in the kubeconfig"),
    (ssl.SSLError, "TLS failed", "check the address (http or https) and the certificates"),
    (urllib3.exceptions.NameResolutionError, "the host name cannot be resolved", _CHECK),
    (urllib3.exceptions.ProxyError, "the proxy failed", "check proxy-url and HTTPS_PROXY"),
    (
        urllib3.exceptions.NewConnectionError,
        "no server is listening there",
        "check the address and that the server is running",
    ),
    (urllib3.exceptions.ConnectTimeoutError, "connecting timed out", _CHECK),
    (urllib3.exceptions.ReadTimeoutError, "the answer timed out", "check that it is a healthy API server"),
    (TimeoutError, "the answer timed out", "check that it is a healthy API server"),
    (Exception, "the connection failed", _CHECK),
)
"""Connection errors, with a description and a remedy. The first one that is among the causes applies."""


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error, and what it was made of."""
    causes: list[BaseException] = []
    todo: list[object] = [error]
    while todo:
        each = todo.pop()
        if isinstance(each, BaseException) and each not in causes:
            causes.append(each)
            todo += [each.__context__, each.__cause__, getattr(each, "reason", None)]
    return causes


def _why(causes: Sequence[BaseException]) -> str:
    """Return why a connection failed and what to do, by the causes of its error."""
    kind, words, remedy = next(why for why in _WHYS if any(isinstance(each, why[0]) for each in causes))
    found = one_line(next(each for each in reversed(causes) if isinstance(each, kind)))
    if kind is ssl.SSLCertVerificationError and "mismatch" in found:
        words, remedy = "its certificate is for another host", "check the address and tls-server-name in the kubeconfig"
    elif kind is ssl.SSLCertVerificationError and "expired" in found:
        words, remedy = "its certificate has expired", "have it renewed"
    return f"{words} ({found}); {remedy}"
