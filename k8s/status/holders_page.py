"""The output of ``holders``: a page of at most 100 columns for people, a JSON document for scripts.

Both end with the next step: what helps most, or that nothing is wrong. A quota that is not full may have too little
left for a create: only gates know who waits, so without them (``waiting`` is None) it is not said that all is well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from datetime import datetime
from textwrap import wrap
from typing import Any, Final

from backoff_ctrl.k8s.kube.answers.printing import printable
from backoff_ctrl.k8s.kube.charges.attribution import RESYNC, Holder, Holding, QuotaHolders, Report
from backoff_ctrl.k8s.kube.charges.live import By, Live, Termination
from backoff_ctrl.k8s.kube.charges.resources import PODS

from .amounts import EMPTY, ago, percent, quantity_text, quantity_texts, rounded, span

WIDTH: Final = 100
_HEAD: Final = ("holder", "objects", "held", "share", "oldest", "what frees it")
_STUCK_HEAD: Final = ("pod", "for", "charged", "waits for")
_WIDTHS: Final = (34, 7, 10, 6, 6)
"""The widths of all columns but the last, which takes the rest of the line."""
_STUCK_WIDTHS: Final = (48, 7, 10)
_MANY: Final = 10
"""Holders shown of a full resource."""
_FEW: Final = 3
"""Holders shown of a resource that is not full."""
SOON: Final = f"next release, or ≤ {RESYNC / 60:.0f} min"
_SCALED: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
_PATIENCE: Final = 60.0
"""Seconds that a deletion may be overdue before it needs attention: kubelets take a few."""


def owners(report: Report) -> Iterator[str]:
    """Yield who holds something, by quota, the largest first."""
    for _, holding in report.holdings:
        yield from (holder.owner for holder in holding.holders)


def page(report: Report, *, wide: bool = False) -> str:
    """Return the page; a ``wide`` one has all columns and all holders, and cuts nothing."""
    lines = [f"namespace {report.namespace} at {report.at:%Y-%m-%d %H:%M:%S} UTC"]
    for quota in report.quotas:
        lines += ["", *_quota_lines(quota, report.at, wide)]
    if report.stuck:
        lines += ["", *_stuck_lines(report, wide)]
    notes = [f"Not listed: {why}." for why in report.unread.values()]
    if report.malformed:
        plural = "" if report.malformed == 1 else "s"
        notes.append(f"{report.malformed} object{plural} could not be read and are missing from the tables.")
    for note in (*notes, next_step(report)):
        lines += ["", *wrap(note, WIDTH, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(printable(line) for line in lines)


def _quota_lines(quota: QuotaHolders, now: datetime, wide: bool) -> Iterator[str]:
    scopes = f" (scopes: {' and '.join(quota.scopes)})" if quota.scopes else ""
    yield f"quota {quota.name}{scopes}" + (f": {quota.problem}" if quota.problem else "")
    for holding in quota.holdings:
        yield f"  {_title(holding)}"
        yield from _table(_HEAD, list(_rows(holding, now, wide)), _WIDTHS, wide)


def _title(holding: Holding) -> str:
    hard, used = _amount(holding, holding.hard), _amount(holding, holding.used)
    if holding.hard is None or holding.used is None:
        return f"{holding.resource}: {used} of {hard} used: not counted by the quota controller yet"
    words = f"{holding.resource}: {used} of {hard} used"
    if holding.hard:
        words += f" ({percent(holding.used, holding.hard)})"
    if holding.used > holding.hard:
        return f"{words}: over its limit by {_amount(holding, holding.used - holding.hard)}"
    if holding.full:
        return f"{words}: FULL"
    return f"{words}: its limit allows none" if holding.forbids else words


def _rows(holding: Holding, now: datetime, wide: bool) -> Iterator[tuple[str, ...]]:
    """Yield the holders, the largest first, then the charge that no object explains."""
    shown = holding.holders[: None if wide else _MANY if holding.full else _FEW]
    whole = holding.used or sum(holder.amount for holder in holding.holders)
    for holder in shown:
        yield (
            holder.owner,
            str(holder.objects),
            _amount(holding, holder.amount),
            percent(holder.amount, whole),
            span((now - holder.oldest).total_seconds()) if holder.oldest else "-",
            _freed_by(holding, holder, now),
        )
    if rest := holding.holders[len(shown) :]:
        amount = sum(holder.amount for holder in rest)
        objects = str(sum(holder.objects for holder in rest))
        name = f"{len(rest)} more"
        yield name, objects, _amount(holding, amount), percent(amount, whole), "", "-o wide lists them all"
    leaked = "(leaked, or creates in flight)" if holding.busy else "(leaked: held by no object)"
    for name, amount in (("(deletion overdue)", holding.overdue), (leaked, holding.leaked)):
        if amount:
            yield name, "", _amount(holding, amount), percent(amount, whole), "", SOON
    if holding.uncounted:
        yield "(not counted yet)", "", _amount(holding, holding.uncounted), "", "", "will be added to used"
    if holding.unread:
        yield f"(not listed: {', '.join(holding.unread)})", "", "?", "", "", "ask for a role, see below"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], wide: bool) -> Iterator[str]:
    """Yield the lines of a table, if there are rows. Columns without a word are left out.

    A long first cell is cut in its middle, a long last cell at its end: but not in a ``wide`` table, which is whole.
    """
    if not rows:
        return
    inner = range(1, len(head) - 1)
    kept = [n for n in inner if wide or any(row[n] not in EMPTY for row in rows)]
    first = max(len(row[0]) for row in (head, *rows)) if wide else widths[0]
    for row in (head, *rows):
        line = f"    {_cut(row[0], first).ljust(first)}"
        for n in kept:
            line += f" {row[n].rjust(widths[n])}"
        last, room = row[-1], WIDTH - len(line) - 2
        yield f"{line}  {last if wide or len(last) <= room else last[: room - 1] + '…'}".rstrip()


def _cut(name: str, width: int) -> str:
    """Shorten a name in its middle: its beginning shows the owner, its end which object it is."""
    if len(name) <= width:
        return name
    tail = width // 3
    return f"{name[: width - tail - 1]}…{name[-tail:]}"


def _freed_by(holding: Holding, holder: Holder, now: datetime) -> str:
    """Return what ends a charge first, with the amount if that is not everything."""
    words = _ending_words(holding.resource, holder, now)
    return words if holder.ends == holder.amount else f"{_amount(holding, holder.ends)}: {words}"


def _ending_words(resource: str, holder: Holder, now: datetime) -> str:
    ending = holder.ending
    left = (ending.at - now).total_seconds() if ending.at else 0.0
    when = f"in {span(left)}" if left >= 0 else ago(-left)
    after = f"{span(ending.after.total_seconds())} after it starts" if ending.after else f"deadline {when}"
    runs = holder.kind == PODS and resource != "count/pods"
    end = "wait for it, or delete it" if runs else "delete it"
    words = {
        By.DELETION: f"deletion due {when}",
        By.FINALIZERS: f"deleted; waits for {ending.detail or 'the server'}",
        By.NODE: f"deleted; waits for node {ending.detail or '?'}",
        By.DEADLINE: after,
        By.TTL: f"TTL expiry {when}",
        By.FINISHED: f"delete the {holder.finished} finished",
        By.OWNER: "scale down or delete it" if is_scaled(holder) else end,
        By.HAND: end,
    }
    return words[ending.by]


def _stuck_lines(report: Report, wide: bool) -> Iterator[str]:
    yield f"pods stuck in deletion: {len(report.stuck)}"
    yield from _table(_STUCK_HEAD, list(_stuck_rows(report, wide)), _STUCK_WIDTHS, wide)
    if len(report.stuck) > _MANY and not wide:
        yield f"    {len(report.stuck) - _MANY} more: -o wide lists them all"


def _stuck_rows(report: Report, wide: bool) -> Iterator[tuple[str, ...]]:
    for pod, deletion in report.stuck[: None if wide else _MANY]:
        late = span((report.at - deletion.since).total_seconds())
        left = (deletion.until - report.at).total_seconds()
        charged = f"{span(left)} more" if left > 0 and not pod.finished else "count only"
        name = pod.name if pod.owner == f"Pod/{pod.name}" else f"{pod.name} of {pod.owner}"
        held_by = f"node {deletion.node}" if deletion.node else "no node"
        if deletion.finalizers:
            held_by = f"finalizer {', '.join(deletion.finalizers)}"
        yield name, late, charged, held_by


def _amount(holding: Holding, amount: int | None) -> str:
    return "?" if amount is None else rounded(amount, holding.resource, holding.hard)


# -- for scripts ---------


def document(report: Report, waiting: int | None = None) -> dict[str, Any]:
    """Return the document for ``--json``: amounts are quantity strings, times RFC 3339.

    ``waiting`` is the number of creates that wait in the namespace; None: not known.
    """
    return {
        "namespace": report.namespace,
        "at": _moment(report.at),
        "ok": not report.wrong and not waiting,
        "next": printable(next_step(report, waiting)),
        "quotas": [
            {
                "name": quota.name,
                "problem": quota.problem,
                "scopes": list(quota.scopes),
                "resources": [_holding_document(holding) for holding in quota.holdings],
            }
            for quota in report.quotas
        ],
        "stuck": [_stuck_document(pod, deletion) for pod, deletion in report.stuck],
        "unread": dict(report.unread),
        "malformed": report.malformed,
    }


def _holding_document(holding: Holding) -> dict[str, Any]:
    def text(amount: int | None) -> str | None:
        return None if amount is None else quantity_text(holding.resource, amount)

    whole = holding.used or sum(holder.amount for holder in holding.holders)
    return {
        "resource": holding.resource,
        "hard": text(holding.hard),
        "used": text(holding.used),
        "overdue": text(holding.overdue),
        "leaked": text(holding.leaked),
        "uncounted": text(holding.uncounted),
        "busy": holding.busy,
        "unread": list(holding.unread),
        "holders": [
            {
                "owner": holder.owner,
                "kind": holder.kind,
                "objects": holder.objects,
                "finished": holder.finished,
                "amount": text(holder.amount),
                "percent": round(100 * holder.amount / whole, 1) if whole else None,
                "oldest": _moment(holder.oldest),
                "freed_by": str(holder.ending.by),
                "freed_at": _moment(holder.ending.at),
                "freed_first": text(holder.ends),
            }
            for holder in holding.holders
        ],
    }


def _stuck_document(pod: Live, deletion: Termination) -> dict[str, Any]:
    return {
        "pod": pod.name,
        "owner": pod.owner,
        "finished": pod.finished,
        "since": _moment(deletion.since),
        "charged_until": _moment(deletion.until),
        "node": deletion.node,
        "finalizers": list(deletion.finalizers),
        "charged": quantity_texts(pod.charged.amounts),
        "overdue": quantity_texts(pod.owed),
    }


def _moment(when: datetime | None) -> str | None:
    return f"{when:%Y-%m-%dT%H:%M:%SZ}" if when else None


# -- the next step ---------


def next_step(report: Report, waiting: int | None = None) -> str:
    """Return what helps most. ``waiting`` is the number of creates that wait in the namespace; None: not known."""
    if not report.quotas:
        return f"Namespace {report.namespace} has no quota: nothing is held, and no create can be rejected for a quota."
    full = [(quota, holding) for quota, holding in report.holdings if holding.full]
    # excess charge first: it is released without anyone giving up anything
    full.sort(key=lambda each: not each[1].overdue + each[1].leaked)
    if full:
        first, *others = [_when_full(report, quota, holding) for quota, holding in full]
        more = (
            f" ({_count(others, 'other resource')} {'is' if len(others) == 1 else 'are'} full, too)" if others else ""
        )
        return f"Next: {first}{more}."
    if step := _when_not_full(report):
        return f"No quota is full, but {step}.{_who_waits(waiting)}"
    known = f"No quota is full{_not_known(report)}"
    if not report.wrong:
        known = "No quota is full, no deletion is stuck and no charge is leaked"
        if waiting == 0:
            known = "Nothing is wrong: no quota is full, no deletion is stuck, no charge is leaked and nothing waits"
    if forbidden := [f"{holding.resource} of {quota}" for quota, holding in report.holdings if holding.forbids]:
        more = f" and {len(forbidden) - _FEW} more" if len(forbidden) > _FEW else ""
        known += f"; a limit of 0 allows no {', '.join(forbidden[:_FEW])}{more}"
    counted = [(quota, holding) for quota, holding in report.holdings if holding.hard and holding.used is not None]
    if counted:
        quota, fullest = max(counted, key=lambda each: each[1].fullness)
        share = percent(fullest.used or 0, fullest.hard or 0)
        known += f"; the fullest resource is {fullest.resource} of {quota} at {share}"
    return f"{known}.{_who_waits(waiting)}"


def _who_waits(waiting: int | None) -> str:
    """Return who waits although no quota is full, as a sentence of its own."""
    if waiting is None:
        return " What asks for more than is left waits: backoff-ctrl waiting shows it, and jobs list what is suspended."
    if not waiting:
        return ""
    creates = "1 create waits" if waiting == 1 else f"{waiting} creates wait"
    return f" Still {creates}, for more than is left or for another reason: backoff-ctrl waiting shows what for."


def _not_known(report: Report) -> str:
    """Return what prevents an all-clear though there is nothing to do."""
    words = ""
    if report.stuck:
        words += f"; the deletion of {_count(report.stuck, 'pod')} is overdue, which is normal for up to a minute"
    if unseen := [f"{holding.resource} of {quota}" for quota, holding in report.holdings if holding.used is None]:
        words += f"; the server has not counted {', '.join(unseen)}"
    if report.unread:
        words += f"; the holders of {', '.join(report.unread)} are unknown"
    if report.malformed:
        words += f"; {report.malformed} object{'' if report.malformed == 1 else 's'} could not be read"
    return words


def _when_full(report: Report, quota: str, holding: Holding) -> str:
    """Return what makes room in a full resource, the least disruptive step first."""
    what = f"{holding.resource} of {quota}"
    if step := _unheld(report, holding, what):
        return step
    if step := _stuck(report, holding) or _finished(report, holding):
        return f"{what} is full; {step}"
    if holding.holders:
        return f"{what} is full; {_wait(report, holding)}{_end_the_largest(holding)}, or ask for a larger limit"
    unread = f", and its holders are unknown because {', '.join(holding.unread)} cannot be listed"
    return f"{what} is full{unread if holding.unread else ''}: ask for a larger limit"


def _wait(report: Report, holding: Holding) -> str:
    """Return which charge ends first by itself; empty if no end is known."""
    timed = [(each.ending.at, each) for each in holding.holders if each.ending.at and each.ending.at >= report.at]
    if not timed:
        return ""
    when, first = min(timed, key=lambda each: each[0])
    left = span((when - report.at).total_seconds())
    return f"wait up to {left} until {first.owner} frees {_amount(holding, first.ends)}, or "


def _end_the_largest(holding: Holding) -> str:
    """Return the step that frees the charge of the largest holder."""
    largest = holding.holders[0]
    share = f" ({percent(largest.amount, holding.used)})" if holding.used else ""
    verb = "scale down or delete" if is_scaled(largest) else "stop or delete" if largest.kind == PODS else "delete"
    above = " (or its Deployment, if it has one)" if largest.owner.startswith("ReplicaSet/") else ""
    return f"{verb} its largest holder, {largest.owner}{above}, which holds {_amount(holding, largest.amount)}{share}"


def is_scaled(holder: Holder) -> bool:
    return holder.owner.partition("/")[0] in _SCALED


def _when_not_full(report: Report) -> str:
    """Return what needs attention although no quota is full; empty if nothing does."""
    for quota, holding in report.holdings:
        if step := _unheld(report, holding, f"{holding.resource} of {quota}"):
            return step
    for pod, deletion in report.stuck:
        if _late(report, deletion):
            return _unstick(report, pod, deletion)
    return next((f"look at quota {quota.name}: {quota.problem}" for quota in report.quotas if quota.problem), "")


def _unheld(report: Report, holding: Holding, what: str) -> str:
    """Return when excess charge is released; empty if there is none."""
    amount = holding.overdue + holding.leaked
    if not amount:
        return ""
    others = sum(1 for _, each in report.holdings if each is not holding and each.overdue + each.leaked)
    also = f" (as are amounts of {others} other resource{'' if others == 1 else 's'})" if others else ""
    busy = ", unless it belongs to creates in flight" if holding.busy else ""
    return (
        f"{_amount(holding, amount)} of {what} is charged but used by no object{also}: it is released when the next "
        "object of that kind ends or is deleted in the namespace, at the latest at the quota controller's next recount "
        f"within {RESYNC / 60:.0f} minutes{busy}"
    )


def _stuck(report: Report, holding: Holding) -> str:
    """Return what to do about a pod that holds some of the resource and is stuck in deletion."""
    for pod, deletion in report.stuck:
        if _late(report, deletion) and holding.resource in pod.charged.amounts:
            return _unstick(report, pod, deletion)
    return ""


def _late(report: Report, deletion: Termination) -> bool:
    return (report.at - deletion.since).total_seconds() > _PATIENCE


def _unstick(report: Report, pod: Live, deletion: Termination) -> str:
    late = f"pod {pod.name} should have been deleted {ago((report.at - deletion.since).total_seconds())}"
    if deletion.finalizers:
        return f"{late}: the controller that set its finalizer {', '.join(deletion.finalizers)} must remove it"
    return (
        f"{late}: check its node (kubectl get node {deletion.node or '?'}); if the node is dead, run kubectl -n "
        f"{report.namespace} delete pod {pod.name} --grace-period=0 --force"
    )


def _finished(report: Report, holding: Holding) -> str:
    """Return which objects have finished but still count; empty if there are none."""
    ended = [each for each in holding.holders if each.finished and each.ending.by is By.FINISHED]
    if not ended:
        return ""
    most = max(ended, key=lambda each: each.finished)
    pods = f" (kubectl -n {report.namespace} delete pods --field-selector=status.phase=Succeeded, then =Failed)"
    return (
        f"{sum(each.finished for each in ended)} of the counted objects have finished, {most.finished} of them owned "
        f"by {most.owner}: delete them{pods if holding.resource == 'count/pods' else ''}"
    )


def _count(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
