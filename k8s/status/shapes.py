"""The shapes of the status API's JSON: one class per object, one field per key, in the order they are written.

Times are RFC 3339 texts in UTC, amounts are Quantities (``"1500m"``, ``"4Gi"``), and what is unknown is ``None``, in
JSON ``null``. Keys may be added in later versions; these stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from backoff_ctrl.engine.look.explaining import WaitReason

Source = Literal["learned", "observed"]
BlockState = Literal["shut", "ready", "probing"]
Mode = Literal["enforce", "shadow", "off"]
Reason = WaitReason | Literal["same-key"]
"""Why a create waits. ``quota``: too little is left; ``kept-for-another``: what is left is kept for one that waited
longer; ``never-fits``: it asks for more than the limit; ``paused``: the limit is 0; ``paused-by-operator``: an operator
paused the namespace; ``first-contact``: nothing is known of the namespace yet, and enough of its creates are in flight;
``overload``: the API server asked for patience; ``namespace-slowed``: a webhook or the evaluation of quotas fails
there; ``not-counted-yet``: a quota names it, and its usage is still to be counted; ``comes-back``: its caller was asked
to come again, and has not yet; ``same-key``: another create with its idempotency key goes first; ``its-turn``: it will
be sent in a moment."""
Event = Literal[
    "waits", "admitted", "created", "refused", "declined", "timed-out", "cancelled", "failed", "failed-open",
]  # fmt: skip
"""What happened to a create. ``waits``: it joined the line, perhaps again; ``admitted``: it left it with a ticket and
is sent; ``created``: the server stored it; ``refused``: the server's answer, by lane, after which it may wait again;
``declined``: the gate itself refuses it; ``timed-out``, ``cancelled``: its caller's limit, or its caller;
``failed``: it ended without an object, with the server's answer or with none; ``failed-open``: an internal error."""
State = Literal["waiting", "sent", "over"]

Item = TypeVar("Item")


@dataclass
class Page(Generic[Item]):
    """A part of a list. ``next`` is the cursor (``after``) of the following part; null: this is the last one."""

    as_of: str
    """When it was read. It does not count for the ETag."""
    items: list[Item]
    next: str | None = None


@dataclass
class Block:
    """What creates wait for at a ceiling that is full."""

    state: BlockState
    attempts: int
    """Probes in a row that found it full."""
    next_probe_at: str | None


@dataclass
class Ceiling:
    """One resource of one quota. ``headroom`` is limited - used - held - reserved, as far as they are known: a hint."""

    namespace: str
    quota: str
    resource: str
    limited: str
    used: str
    held: str | None
    """What creates in flight, or answered a moment ago, will be charged. Null: no gate reports it."""
    reserved: str | None
    """What gangs may still draw. Null: no gate reports it."""
    headroom: str
    unsettled: str
    """The part of the headroom that was reported so lately that the server may not know of it."""
    kept: bool | None
    """Whether its room is kept for a create that was overtaken often. Null: no gate reports it."""
    source: Source
    """``observed`` in the ResourceQuota, or ``learned`` from a refusal."""
    heard_at: str
    block: Block | None
    trend: str | None = None
    """By how much ``used`` rose in the last minutes (2.5 to 5): ``"4"``, ``"-500m"`` if it fell, ``"0"``. Null: it is
    not known for that long, or there was no news of it since."""
    waiting: int | None = None
    """Creates that wait for it. Null: no gate reports it."""


@dataclass
class Blocker:
    """One ceiling that a create waits for."""

    quota: str
    resource: str
    asked: str
    left: str
    limited: str


@dataclass
class Owner:
    """The controller that the manifest names, else its first owner."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass
class Waiting:
    """One create that waits."""

    id: str
    """Also the object's annotation ``backoff-ctrl.dev/create-id``, once it is created."""
    gate: str
    namespace: str
    kind: str
    """The resource: ``pods``, ``jobs.batch``."""
    name: str
    """It ends with ``*`` where the name was left to the server."""
    owner: Owner | None
    labels: dict[str, str]
    gang: str | None
    priority: int
    since: str
    place: int | None
    """1 for the first in line of its namespace. Null: another create with its key goes first."""
    reason: Reason
    blockers: list[Blocker]
    next_probe_at: str | None
    estimated_at: str | None
    """When it is likely to be admitted, by what was released lately. Null: there is no basis for an estimate."""
    estimated_by: str | None = None
    """The time by which it is admitted in 19 of 20 cases at that rate; also for the first few, whose wait is chance."""


@dataclass
class Decision:
    """One thing that happened to a create: an item of the stream and of a request's history."""

    seq: int
    """Grows by one from decision to decision of this gate: the event's id in the stream."""
    at: str
    gate: str
    event: Event
    id: str
    namespace: str
    kind: str
    name: str
    lane: str | None = None
    """The class of the server's answer, as ``backoff-ctrl classify`` says it."""
    reason: str | None = None
    """Why it waits, or why the gate declined it."""
    quota: str | None = None
    resource: str | None = None
    probe: bool | None = None
    """Whether it was admitted to test for room."""
    waited_seconds: float | None = None


@dataclass
class RequestHistory:
    """One create: what happened to it so far."""

    as_of: str
    id: str
    gate: str
    namespace: str
    kind: str
    name: str
    state: State
    waiting: Waiting | None
    """How it waits now."""
    history: list[Decision]
    complete: bool
    """False: older decisions are forgotten, so the history begins after the create did."""


@dataclass
class Watch:
    """How a gate finds out about room in a namespace."""

    state: Literal["watching quotas", "watching pods", "learning"]
    since: str
    why: str
    """Why quotas are not watched; empty while they are."""


@dataclass
class Counted:
    """What was counted in one namespace since the gate began to count."""

    sent: int = 0
    """Creates sent to the API server, again and again included."""
    created: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """The server's refusals by lane."""
    declined: int = 0
    """Creates that the gate itself refused: they never fit, or waited too long."""
    waits: int = 0
    """Creates that waited in line and have ended waiting."""
    waited_seconds: float = 0.0
    """The sum of their waits."""
    calls_saved_estimate: float = 0.0
    """An estimate: the attempts that a retry loop of 1 to 20 s would have made in the time waited."""
    probes: int = 0
    overtakings: int = 0
    stale_refusals: int = 0
    """Refusals based on an older state of the quota than ours: sent again at once."""
    shadow: Shadow | None = None


@dataclass
class Shadow:
    """In shadow mode everything is sent; this counts what enforcing would have done."""

    creates: int = 0
    would_have_waited: int = 0
    would_have_been_refused: int = 0


@dataclass
class Namespace:
    """One namespace."""

    namespace: str
    mode: Mode
    watch: Watch | None
    """Null: this gate does not watch its quotas."""
    waiting: int
    oldest_since: str | None
    """When the create that has waited longest began to wait."""
    in_flight: int
    quotas: int
    holding: bool
    """Whether anything is held or reserved there: ``ceilings`` has the amounts."""
    paused: bool
    """An operator paused it: its creates wait until it is resumed."""
    slowed_until: str | None
    """A failing webhook or slow evaluation of quotas pauses its creates until then."""
    counted: Counted


@dataclass
class Overload:
    """One overload window: how many creates may be in flight for a server, credential and priority level."""

    flow: str
    """A name for the window that reveals nothing of the credential."""
    server: str
    priority_level: str | None
    window: float
    in_flight: int
    paused_until: str | None


@dataclass
class PolicyDocument:
    """The settings in force."""

    as_of: str
    mode: dict[str, Mode]
    """By namespace; ``*`` stands for the others."""
    policy: dict[str, Any]
    """The settings of ``Policy`` by name; times are seconds."""


@dataclass
class Gate:
    """One gate that answers here."""

    gate: str
    """Its name: ``BACKOFF_CTRL_GATE``, else host and process."""
    server: str | None
    """The API server whose creates pass it."""
    version: str
    started_at: str
    namespaces: int
    waiting: int
    in_flight: int
    failed_open: int
    """Internal errors that let creates through ungated."""
    settle_seconds: float
    """How long room that was just reported is not used yet, as learned."""


@dataclass
class Acted:
    """What an operator's action did."""

    as_of: str
    action: str
    done: str
    """A sentence."""


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
    suspended: bool = False
    """Made only when the manifest is resumed."""


@dataclass
class Footprint:
    """What a manifest will be charged, as in ``backoff-ctrl footprint --json``."""

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
    """What they wait for. For pods, ``asked`` is what all of them ask together."""
    estimated_at: str | None
    why: list[str] = field(default_factory=list)
    """Why it is refused however much room there is: a sentence each."""


@dataclass
class Confirmation:
    """What the API server answered to a dry run of the create, with the caller's rights."""

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
    """What a dry run can't show: a sentence each."""


@dataclass
class LetIn:
    """Whether the operator lets an object in that waits suspended.

    ``now``: it fits; ``wait``: it waits in line, or for an operator; ``never``: as things are it is not let in;
    ``left``: the operator leaves it alone; ``unknown``: not known by whoever was asked.
    """

    verdict: Literal["now", "wait", "never", "left", "unknown"]
    why: list[str] = field(default_factory=list)
    """A sentence each."""
    blockers: list[Blocker] = field(default_factory=list)
    """What it waits for; ``asked`` is what all that it makes asks together."""
    behind: list[str] = field(default_factory=list)
    """What goes before it in the line of its namespace, the first first: ``Job team/a``."""
    place: int | None = None
    """Its place as the operator has noted it on the object; null where it has not."""


@dataclass
class Explained:
    """What would happen if a manifest were created now. ``verdict`` and ``blockers`` are those of the create.

    ``now``: it fits; ``wait``: it does not fit yet; ``never``: one object asks for more than a quota's limit;
    ``refused``: the API server refuses it however much room there is; ``unknown``: too little is known of the quotas.
    """

    as_of: str
    verdict: Verdict
    blockers: list[Blocker]
    estimated_at: str | None
    footprint: Footprint
    parts: list[ExplainedPart]
    note: str | None = None
    """What this answer is based on, and what it can't know."""
    confirmation: Confirmation | None = None
    """The API server's own answer; null unless it was asked for (``confirm=true``)."""
    let_in: LetIn | None = None
    """Whether the operator lets it in; null for what does not wait suspended, and where a gate is asked."""


@dataclass
class Pointed:
    """One error in the request."""

    pointer: str
    """A JSON Pointer into ``{"path", "query", "headers", "body"}``: ``#/query/limit``."""
    detail: str


@dataclass
class Problem:
    """An error, as ``application/problem+json`` (RFC 9457). It is always one of these."""

    title: str
    status: int
    detail: str
    """What is wrong and what to do."""
    type: str = "about:blank"
    errors: list[Pointed] = field(default_factory=list)
