"""``POST /v1/explain`` of ``serve``: the quotas as observed, what the gates hold and who waits there, and on demand the
API server's own answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from backoff_ctrl.engine.facts.demand import Demand
from backoff_ctrl.engine.look.outlook import Outlook
from backoff_ctrl.k8s.status import explaining
from backoff_ctrl.k8s.status.client import read
from backoff_ctrl.k8s.status.shapes import Explained, ExplainedPart

from .gates import Gates
from .observing import Cluster

NO_GATE: Final = "no gate connected: waiting creates and held amounts are not known"
SILENT: Final = "gates that do not answer are left out: {}"
IN_LINE: Final = "others wait already, or room is kept for them: {}"


async def explained(cluster: Cluster, gates: Gates, manifest: Mapping[str, Any], namespace: str) -> Explained:
    """Explain what would happen to a manifest: quotas and LimitRanges as the cluster has them, lines as its gates do.

    Raises ``ProblemError`` for a malformed one.
    """
    await gates.renew(namespace)
    elsewhere = {key: hold.amount for key, hold in (gates.holds(namespace) or {}).items()}
    found, filled = await run_in_threadpool(_by_quotas, cluster, manifest, namespace, elsewhere)
    asked = await gates.explained(namespace, dict(filled))
    told = [(gate.url, each) for gate, answer in asked if (each := _explained(answer)) is not None]
    notes = [found.note] if found.note else []
    heard = {url for url, _ in told}
    if gates.unlisted:
        notes.append(gates.note() or "")
    elif not gates.gates:
        notes.append(NO_GATE)
    elif silent := [gate.url for gate in gates.gates if gate.url not in heard]:
        notes.append(SILENT.format(", ".join(silent)))
    if longer := merge(found, told):
        notes.append(IN_LINE.format(", ".join(longer)))
    if explaining.is_suspended(found):
        notes.append(explaining.LET_IN)
    if found.verdict == "never":
        said = " ".join(each.note or "" for _, each in told)
        notes += [words for words in explaining.NEVER.values() if words in said]
    found.note = "; ".join(notes) or None
    return found


async def confirmed(
    cluster: Cluster, manifest: Mapping[str, Any], namespace: str, found: Explained, token: str
) -> None:
    """Add the API server's answer to a dry run with the rights of the token's owner."""
    found.confirmation = await run_in_threadpool(explaining.confirm, manifest, namespace, found, cluster.dry_run(token))


def _by_quotas(
    cluster: Cluster, manifest: Mapping[str, Any], namespace: str, elsewhere: Mapping[tuple[str, str], int]
) -> tuple[Explained, Mapping[str, Any]]:
    def ask(wanted: Sequence[tuple[Demand, int]]) -> Outlook:
        return cluster.source.outlook(namespace, wanted, elsewhere)

    ranges, devices = cluster.limit_ranges(namespace), explaining.devices_of(namespace, cluster.ask)
    return explaining.explain(manifest, ask, ranges, time.time(), devices, explaining.classes_of(cluster.ask))


def merge(found: Explained, told: Iterable[tuple[str, Explained]]) -> list[str]:
    """Merge the gates' answers into an explanation; return the gates whose line makes a fitting create wait.

    The quotas decide whether it fits; a gate may have learned what is not known of them here. A line makes it wait even
    if it fits. The estimate is the latest of all gates where it waits, and null if one of them has none.
    """
    longer = []
    for part in found.parts:
        waits = []
        for gate, answer in told:
            other = next((each for each in answer.parts if each.part == part.part), None)
            if other is None or part.verdict == "refused" or other.verdict in ("unknown", "refused"):
                continue
            if part.verdict == "unknown" or (part.verdict == "now" and other.verdict == "wait"):
                longer += [gate] if part.verdict == "now" else []
                part.verdict, part.blockers = other.verdict, other.blockers
            if other.verdict == "wait":
                waits.append(other)
        part.estimated_at = _latest(waits) if part.verdict == "wait" else None
    create = found.parts[0]
    found.verdict, found.blockers, found.estimated_at = create.verdict, create.blockers, create.estimated_at
    return list(dict.fromkeys(longer))


def _latest(waits: Sequence[ExplainedPart]) -> str | None:
    times = [each.estimated_at for each in waits if each.estimated_at is not None]
    return max(times) if times and len(times) == len(waits) else None


def _explained(answer: Any) -> Explained | None:
    try:
        found: Explained = read(Explained, answer)
    except ValueError:
        return None
    return found
