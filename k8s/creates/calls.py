"""Decides which API calls of a client are creates that a quota may refuse, and describes them. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

from backoff_ctrl.engine.outcomes import Rejected
from backoff_ctrl.k8s.answers.rejections import Lane, read_rejection
from backoff_ctrl.k8s.charges.footprint import FootprintError, footprint

from .creation import Creation, Options
from .treatments import rejected

PATH: Final = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)/namespaces/(?P<namespace>[^/]+)/(?P<resource>[^/]+)(?P<rest>(?:/[^/]+)*)"
)
UNSTORED: Final = frozenset({"bindings", "localsubjectaccessreviews.authorization.k8s.io"})
"""Collections whose POST stores no object, so that there is nothing to look up or to charge."""
URGENT: Final = frozenset({"events", "events.events.k8s.io", "leases.coordination.k8s.io"})
"""Written by controllers rather than users, and harmful when late (a lost lease): they never wait."""


@dataclass(frozen=True, slots=True)
class Target:
    """A namespaced path: ``resource`` with its group (``jobs.batch``), ``rest`` the name and subresource, if any."""

    namespace: str
    resource: str
    rest: str
    dry_run: bool


@lru_cache(maxsize=1024)
def read_target(host: str, url: str) -> Target | None:
    """Parse a URL; None if it is not a namespaced path of that host."""
    if not url.startswith(host):
        return None
    path, _, query = url[len(host) :].partition("?")
    match = PATH.fullmatch(path)
    if match is None:
        return None
    group = match["group"]
    resource = match["resource"] if group is None else f"{match['resource']}.{group}"
    dry_run = any(name == "dryRun" for name, _ in parse_qsl(query))
    return Target(unquote(match["namespace"]), resource, match["rest"], dry_run)


def quotas_url(host: str, namespace: str) -> str:
    """Return the URL that lists a namespace's quotas."""
    return f"{host}/api/v1/namespaces/{quote(namespace, safe='')}/resourcequotas"


def is_gated(method: str, target: Target, body: object) -> bool:
    """Say whether a call is a create that waits its turn: a POST of an object to a namespaced collection."""
    return (
        method.upper() == "POST"
        and not target.rest
        and not target.dry_run
        and isinstance(body, dict)
        and target.resource not in UNSTORED
        and target.resource not in URGENT
    )


def creation(host: str, target: Target, headers: Mapping[str, str], body: dict[str, Any], options: Options) -> Creation:
    """Describe a gated call to the gate."""
    return Creation(
        server=host,
        credential=_credential(headers),
        namespace=target.namespace,
        resource=target.resource,
        body=body,
        priority=options.priority,
        timeout=options.timeout,
        key=options.key,
        on_wait=options.on_wait,
        gang=options.gang if options.gang is not None and options.gang.namespace == target.namespace else None,
    )


def teaching(
    target: Target, status: int, headers: Mapping[str, str], answer: bytes, body: object
) -> tuple[frozenset[str], Rejected] | None:
    """Read a quota refusal of an ungated call: the scope facts of what was sent, and the amounts; else None."""
    if status != 403:
        return None
    rejection = read_rejection(status, headers, answer)
    if rejection.lane is not Lane.QUOTA:
        return None
    try:
        scopes = footprint(body, resource=target.resource).scopes if isinstance(body, dict) else frozenset()
    except FootprintError:
        scopes = frozenset()  # a patch does not show the scopes, and most objects have no special one
    return scopes, rejected(rejection, None)


def _credential(headers: Mapping[str, str]) -> str:
    """Identify a credential without keeping it: the API server limits the requests of each user separately."""
    secret = headers.get("authorization") or headers.get("Authorization") or ""
    return hashlib.sha256(secret.encode()).hexdigest()[:16] if secret else ""
