"""Which calls of a client are creates that a quota may refuse, and what they create. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, unquote

from backoff_ctrl.k8s.answers.rejections import Lane, read_rejection
from backoff_ctrl.k8s.charges.footprint import FootprintError, footprint

from .conversation import Creation
from .treatments import rejected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backoff_ctrl.engine.outcomes import Rejected

    from .creation import Options

PATH: Final = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)/namespaces/(?P<namespace>[^/]+)/(?P<resource>[^/]+)(?P<rest>(?:/[^/]+)*)"
)
UNSTORED: Final = frozenset({"bindings", "localsubjectaccessreviews.authorization.k8s.io"})
"""Collections whose POST asks or orders something and stores no object: there is nothing to look up or charge."""
URGENT: Final = frozenset({"events", "events.events.k8s.io", "leases.coordination.k8s.io"})
"""Written by the machinery around the work, and late ones do harm (a lease lost): never behind a full namespace."""


@dataclass(frozen=True, slots=True)
class Target:
    """A namespaced path: ``resource`` with its group (``jobs.batch``), ``rest`` the name and subresource if any."""

    namespace: str
    resource: str
    rest: str
    dry_run: bool


@lru_cache(maxsize=1024)
def read_target(host: str, url: str) -> Target | None:
    """Take a URL apart; nothing if it is not a namespaced path of that host."""
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
    """Return where a namespace's quotas are listed."""
    return f"{host}/api/v1/namespaces/{quote(namespace, safe='')}/resourcequotas"


def is_gated(method: str, target: Target, body: object) -> bool:
    """Say whether a call is a create that takes its turn: POST of an object to a namespaced collection."""
    return (
        method.upper() == "POST"
        and not target.rest
        and not target.dry_run
        and isinstance(body, dict)
        and target.resource not in UNSTORED
        and target.resource not in URGENT
    )


def creation(host: str, target: Target, headers: Mapping[str, str], body: dict[str, Any], options: Options) -> Creation:
    """Describe the create to the gate."""
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
    )


def teaching(
    target: Target, status: int, headers: Mapping[str, str], answer: bytes, body: object
) -> tuple[frozenset[str], Rejected] | None:
    """Read what an ungated call's refusal teaches: the scope facts of what was sent, and the amounts."""
    if status != 403:
        return None
    rejection = read_rejection(status, headers, answer)
    if rejection.lane is not Lane.QUOTA:
        return None
    try:
        scopes = footprint(body, resource=target.resource).scopes if isinstance(body, dict) else frozenset()
    except FootprintError:
        scopes = frozenset()  # a patch says too little: most objects have no special scope
    return scopes, rejected(rejection, None)


def _credential(headers: Mapping[str, str]) -> str:
    """Tell two credentials apart without keeping one: the API server limits each user's requests apart."""
    secret = headers.get("authorization") or headers.get("Authorization") or ""
    return hashlib.sha256(secret.encode()).hexdigest()[:16] if secret else ""
