"""Which shape is at which URL of the status API."""

from __future__ import annotations

from .documents import (
    Acted,
    Ceiling,
    Decision,
    Gate,
    Namespace,
    Overload,
    PolicyDocument,
    RequestHistory,
    Waiting,
)
from .explained import Explained

URLS: dict[str, type] = {
    "/v1/ceilings": Ceiling,
    "/v1/waiting": Waiting,
    "/v1/requests/{id}": RequestHistory,
    "/v1/namespaces": Namespace,
    "/v1/overload": Overload,
    "/v1/policy": PolicyDocument,
    "/v1/gates": Gate,
    "/v1/decisions": Decision,
    "/v1/explain": Explained,
    "/v1/actions/{action}": Acted,
}
"""What is at each URL: a ``Page`` of it, except for one request, the policy and an explanation. Decisions are a stream
of server-sent events, whose data is one ``Decision`` each."""
