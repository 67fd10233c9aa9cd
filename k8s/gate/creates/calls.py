"""Decides which API calls of a client are creates that a quota may refuse, and describes them. Pure."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, unquote_plus

from backoff_ctrl.engine.facts.outcomes import Rejected
from backoff_ctrl.k8s.kube.answers.fields import FieldError
from backoff_ctrl.k8s.kube.answers.rejections import Lane, read_rejection
from backoff_ctrl.k8s.kube.charges.footprint import footprint
from backoff_ctrl.k8s.kube.paths import path_to

from .creation import Creation, Options
from .treatments import rejected

PATH: Final = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)/namespaces/(?P<namespace>[^/]+)/(?P<resource>[^/]+)(?P<rest>(?:/[^/]+)*)/*"
)
_MALFORMED: Final = re.compile("%(?![0-9A-Fa-f]{2})")
UNSTORED: Final = frozenset({"bindings", "localsubjectaccessreviews.authorization.k8s.io"})
"""Collections whose POST stores no object, so that there is no object to look up or to charge."""
NO_SCOPES: Final[frozenset[str]] = frozenset()
URL_MAX: Final = 1024
"""Characters of a URL that is remembered: all of them together take a few megabytes at most."""
URGENT: Final = frozenset({"events", "events.events.k8s.io", "leases.coordination.k8s.io"})
"""Written by controllers rather than users, and harmful when late (a lost lease): they never wait."""


@dataclass(frozen=True, slots=True)
class Target:
    """A namespaced path: ``resource`` with its group (``jobs.batch``), ``rest`` the name and subresource, if any.

    ``dry_run``: it stores no object, or is refused at once for a ``dryRun`` without a meaning.
    """

    namespace: str
    resource: str
    rest: str
    dry_run: bool

    @property
    def name(self) -> str:
        """The name in the path; empty for a collection."""
        return self.rest.split("/")[1] if self.rest else ""

    @property
    def is_subresource(self) -> bool:
        """Whether ``rest`` names a subresource."""
        return self.rest.count("/") > 1


def _remembered(read: Callable[[str, str], Target | None]) -> Callable[[str, str], Target | None]:
    """Cache what was read of a URL, if the URL is short."""
    remembered = lru_cache(maxsize=1024)(read)

    @wraps(read)
    def reading(host: str, url: str) -> Target | None:
        return remembered(host, url) if len(url) <= URL_MAX else read(host, url)

    return reading


@_remembered
def read_target(host: str, url: str) -> Target | None:
    """Parse a URL as the API server does; None if it is not a namespaced path of that host.

    Like the API server, it decodes the whole path once before splitting it, and ignores slashes at the end.
    """
    if not url.startswith(host):
        return None
    path, _, query = url[len(host) :].partition("?")
    match = PATH.fullmatch(unquote(path) if "%" in path else path)
    if match is None or path[0] != "/" or _MALFORMED.search(path):
        return None
    group = match["group"]
    resource = match["resource"] if group is None else f"{match['resource']}.{group}"
    dry_run = any(name == "dryRun" for name, _ in read_query(query))
    return Target(match["namespace"], resource, match["rest"], dry_run)


def read_query(query: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of a query as Go reads it: it drops what it can't decode, and what has a semicolon."""
    for part in query.split("&"):
        if part and ";" not in part and not _MALFORMED.search(part):
            name, _, value = part.partition("=")
            yield unquote_plus(name), unquote_plus(value)


def quotas_url(host: str, namespace: str) -> str:
    """Return where the quotas of a namespace are listed. Raises ``PathError``."""
    return host + path_to("/api/v1", "resourcequotas", namespace=namespace)


@_remembered
def read_collection(host: str, url: str) -> Target | None:
    """Parse the URL of a POST; None if it creates no object of a namespaced collection, which would wait its turn."""
    target = read_target(host, url)
    if target is None or target.rest or target.dry_run or target.resource in UNSTORED or target.resource in URGENT:
        return None
    return target


def creation(host: str, target: Target, headers: Mapping[str, str], body: dict[str, Any], options: Options) -> Creation:
    """Describe a create to the gate.

    Credentials are compared by a hash, and not kept: the API server limits the requests of each user separately. All
    waiting creates share the text of it.
    """
    secret = headers.get("authorization") or headers.get("Authorization")
    made = Creation(
        server=host,
        credential=sys.intern(hashlib.sha256(secret.encode()).hexdigest()[:16]) if secret else "",
        namespace=target.namespace,
        resource=target.resource,
        body=body,
        priority=options.priority,
        timeout=options.timeout,
        key=options.key,
        on_wait=options.on_wait,
    )
    gang = options.gang
    if gang is not None and gang.namespace == target.namespace:
        made.gang, made.asked, made.body = gang, body, gang.labelled(target.resource, body)
    return made


class Passed(NamedTuple):
    """An answer to a call that passed ungated. ``refusal`` is the body of a 403; ``body`` what was sent, if known."""

    method: str
    status: int
    headers: Mapping[str, str]
    refusal: bytes
    sent: float
    """When the call was sent, or an earlier time: news that came after it is not overwritten."""
    body: object = None

    def taught(self, target: Target) -> tuple[frozenset[str], Rejected] | None:
        """Read a quota's refusal: the scope facts of what was sent, and the amounts; None: it is no such refusal.

        The refusal of a subresource teaches no fact: anybody may ask for ``exec`` in any namespace, and no quota
        refuses it. The exception is the resize of a pod, which a quota may refuse.
        """
        if self.status != 403 or (target.is_subresource and not target.rest.endswith("/resize")):
            return None
        rejection = read_rejection(self.status, self.headers, self.refusal)
        if rejection.lane is not Lane.QUOTA:
            return None
        try:
            scopes = footprint(self.body, resource=target.resource).scopes if isinstance(self.body, dict) else NO_SCOPES
        except FieldError:
            scopes = NO_SCOPES  # a patch does not show the scopes, and most objects have no special one
        return scopes, rejected(rejection, None)
