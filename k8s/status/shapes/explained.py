"""The shapes of ``POST /v1/explain``: what would happen to a manifest, and what the API server itself says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .documents import Blocker

Verdict = Literal["now", "wait", "never", "refused", "unknown"]


@dataclass
class Part:
    """Objects that the manifest's controller will make; ``amounts`` are those of one of them."""

    kind: str
    amounts: dict[str, str]
    scopes: list[str]
    count: int | None
    """Null: only the cluster knows, such as for a DaemonSet."""
    made_by: str


@dataclass
class Footprint:
    """What a manifest will be charged; as ``backoff-ctrl footprint --json`` says it."""

    kind: str
    estimated: bool
    amounts: dict[str, str]
    scopes: list[str]
    parts: list[Part] = field(default_factory=list)


@dataclass
class ExplainedPart:
    """What would happen to the create itself (``create``), or to the pods that its controller makes (``pods``)."""

    part: Literal["create", "pods"]
    verdict: Verdict
    blockers: list[Blocker]
    """What is in the way. For pods, ``asked`` is what all of them ask together."""
    estimated_at: str | None
    why: list[str] = field(default_factory=list)
    """Why it is refused, whatever room there is: a sentence each."""


@dataclass
class Confirmation:
    """What the API server answered to a dry run of the create, with the rights of whoever asked."""

    verdict: Verdict
    """What its answer means; ``unknown`` where it says nothing about room."""
    agrees: bool | None
    """Whether ``verdict`` of the explanation says the same; null where the server's answer can't be compared."""
    status: int
    lane: str | None
    """The class of a refusal, as ``backoff-ctrl classify`` says it."""
    message: str
    blockers: list[Blocker]
    untold: list[str]
    """What a dry run can't tell: a sentence each."""


@dataclass
class Explained:
    """What would happen if a manifest were created now. ``verdict`` and ``blockers`` are those of the create.

    ``now``: it fits; ``wait``: it does not fit yet; ``never``: one object asks for more than a quota's limit;
    ``refused``: the API server refuses it whatever room there is; ``unknown``: too little is known of the quotas.
    """

    as_of: str
    verdict: Verdict
    blockers: list[Blocker]
    estimated_at: str | None
    footprint: Footprint
    parts: list[ExplainedPart]
    note: str | None = None
    """What this answer rests on, and what it can't know."""
    confirmation: Confirmation | None = None
    """The API server's own answer; null unless it was asked for (``confirm=true``)."""
