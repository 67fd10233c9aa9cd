"""The table of URLs of ``serve``: shapes of answers that it alone gives, and examples of all answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from backoff_ctrl.k8s.status import endpoints, shapes
from backoff_ctrl.k8s.status.endpoints import OfHolders
from backoff_ctrl.k8s.status.serving import own_version

from .describing import Row

Item = TypeVar("Item")


@dataclass
class Unreachable:
    """A gate that does not answer."""

    gate: str
    """Its URL."""
    why: str


@dataclass
class SeenPage(Generic[Item]):
    """A part of a list, from the gates that answer. ``next`` is the cursor of the following part."""

    as_of: str
    items: list[Item]
    next: str | None = None
    unreachable: list[Unreachable] = field(default_factory=list)
    note: str | None = None
    """A note that no gate is connected; else null."""


@dataclass
class SeenNamespace:
    """One namespace, from the cluster and the gates."""

    namespace: str
    watch: shapes.Watch | None
    quotas: int
    fullest: float | None
    """The used share of its fullest quota, from 0 to 1 and above; null: it has no quota.

    A limit of 0 of which nothing is used counts as 1 where a create waits for it, else as 0.
    """
    waiting: int | None
    """Creates that wait, in all gates together. Null: no gate is connected that answers."""
    oldest_since: str | None
    in_flight: int | None


@dataclass
class SeenCeiling(shapes.Ceiling):
    """One ceiling, and the gate that reported it."""

    gate_url: str | None = None
    """Null: ``serve`` watches the quota itself. Else the gate with the latest news of it."""


@dataclass
class SeenGate(shapes.Gate):
    """One gate, and its URL."""

    gate_url: str = ""


@dataclass
class SeenOverload(shapes.Overload):
    """One overload window, and the gate that has it."""

    gate_url: str = ""


@dataclass
class SeenPolicy:
    """The settings in force at one gate; ``mode`` is by namespace, and ``*`` stands for the others."""

    gate_url: str
    mode: dict[str, shapes.Mode]
    policy: dict[str, Any]


AT: Final = "2026-01-01T12:00:00.000Z"
CEILING: Final = shapes.Ceiling(
    "team", "compute", "requests.cpu", "10", "9500m", "0", "0", "500m", "0", kept=False, source="observed",
    heard_at=AT, block=None, trend="1500m",
)  # fmt: skip
LEARNED: Final = shapes.Ceiling(
    "team", "gpus", "requests.nvidia.com/gpu", "4", "4", "0", "0", "0", "0", kept=False, source="learned", heard_at=AT,
    block=shapes.Block("shut", 3, "2026-01-01T12:00:07.000Z"),
)  # fmt: skip
BLOCKER: Final = shapes.Blocker("compute", "requests.cpu", "2", "500m", "10")
WAITING: Final = shapes.Waiting(
    "f3b2", "worker-0", "team", "pods", "train-x7k2m", shapes.Owner("batch/v1", "Job", "train", "6f1c"),
    {"app": "train"}, None, 0, AT, 1, "quota", [BLOCKER], None, "2026-01-01T12:01:30.000Z",
)  # fmt: skip
EXPLAINED: Final = shapes.Explained(
    AT, "wait", [BLOCKER], None, shapes.Footprint("Pod", False, {"pods": "1", "requests.cpu": "2"}, [], []),
    [shapes.ExplainedPart("create", "wait", [BLOCKER], None)],
)  # fmt: skip
NAMESPACE: Final[dict[str, Any]] = {
    "namespace": "team", "watch": {"state": "watching quotas", "since": AT, "why": ""}, "quotas": 1, "fullest": 0.95,
    "waiting": 3, "oldest_since": AT, "in_flight": 1,
}  # fmt: skip
MANIFEST: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train", "namespace": "team"},
    "spec": {"containers": [{"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "2"}}}]},
}


GATE: Final = SeenGate(
    "worker-0", "https://10.0.0.1:6443", "0.1.0", AT, 12, 3, 1, 0, 0.002, gate_url="http://127.0.0.1:9096"
)
OVERLOAD: Final = SeenOverload("6f1c", "https://10.0.0.1:6443", None, 16.0, 1, None, gate_url=GATE.gate_url)
POLICY: Final = SeenPolicy(GATE.gate_url, {"*": "enforce"}, {"base": 1.0, "cap": 20.0})
HISTORY: Final = shapes.RequestHistory(
    AT, "f3b2", "worker-0", "team", "pods", "train-x7k2m", "waiting", WAITING,
    [shapes.Decision(1, AT, "worker-0", "waits", "f3b2", "team", "pods", "train-x7k2m", reason="quota")], complete=True,
)  # fmt: skip


ACTION: Final[dict[str, Any]] = {"namespace": "team", "why": "the node pool is drained"}
ACTED: Final = shapes.Acted(AT, "pause", "namespace team is paused")


def page(*items: Any) -> dict[str, Any]:
    """Return a page of these items."""
    return {"as_of": AT, "items": list(items), "next": None, "unreachable": [], "note": None}


def _row(name: str, example: Any = None, shape: Any = None, **more: Any) -> Row:
    """Return a row of the table of gates, with the shape over all gates where it has one."""
    of = next(each for each in endpoints.ENDPOINTS if each.name == name)
    return Row(of.path, name, of.query, of.answers, shape or of.shape, of.method, example, **more)


ENDPOINTS: Final = (
    _row("ceilings", page(CEILING, LEARNED), SeenPage[SeenCeiling]),
    _row("waiting", page(WAITING), SeenPage[shapes.Waiting]),
    _row("namespaces", page(NAMESPACE), SeenPage[SeenNamespace]),
    _row("overload", page(OVERLOAD), SeenPage[SeenOverload]),
    _row("policy", page(POLICY), SeenPage[SeenPolicy]),
    _row("gates", page(GATE), SeenPage[SeenGate]),
    _row("request", HISTORY),
    _row("decisions", words={200: "Server-sent events: `decision`, and `gap` where some are missing."}),
    _row("explain", EXPLAINED, body=MANIFEST),
    _row("act", ACTED, body=ACTION),
    _row("metrics"),
    _row("livez"),
    _row("readyz", words={503: "Not ready: a reason in each line."}),
    _row("version", {"version": own_version()}),
    Row("/v1/holders", "holders", OfHolders, "document", dict[str, Any], example={"namespace": "team", "quotas": []}),
)
