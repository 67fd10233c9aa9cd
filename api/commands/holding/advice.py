"""The last line of ``holders``: the step that helps most, or that nothing is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from backoff_ctrl.api.commands.amounts import ago, quantity_text, span
from backoff_ctrl.k8s.charges.live import By
from backoff_ctrl.k8s.charges.resources import PODS
from backoff_ctrl.k8s.holders.attribution import RESYNC

if TYPE_CHECKING:
    from collections.abc import Sized

    from backoff_ctrl.k8s.charges.live import Live, Termination
    from backoff_ctrl.k8s.holders.attribution import Holder, Holding, Report

SOON: Final = f"next release, or ≤ {RESYNC / 60:.0f} min"
_SCALED: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
_PATIENCE: Final = 60.0
"""Seconds that a deletion may be overdue before it needs attention: kubelets take a few."""


def next_step(report: Report) -> str:
    """Return the sentence for the last line."""
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
        return f"No quota is full, but {step}."
    known = "Nothing is wrong: no quota is full, no deletion is stuck and no charge is leaked"
    if report.wrong:
        known = f"No quota is full{_not_known(report)}"
    counted = [(quota, holding) for quota, holding in report.holdings if holding.hard and holding.used is not None]
    if not counted:
        return f"{known}."
    quota, fullest = max(counted, key=lambda each: each[1].fullness)
    return f"{known}; the fullest resource is {fullest.resource} of {quota} at {100 * fullest.fullness:.0f}%."


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
    if holding.hard == 0 and not holding.used:
        return f"{what} is paused (its limit is 0): raise the limit to allow creates"
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
    return f"wait up to {left} until {first.owner} frees {_text(holding, first.ends)}, or "


def _end_the_largest(holding: Holding) -> str:
    """Return the step that frees the charge of the largest holder."""
    largest = holding.holders[0]
    share = f" ({100 * largest.amount / holding.used:.0f}%)" if holding.used else ""
    verb = "scale down or delete" if is_scaled(largest) else "stop or delete" if largest.kind == PODS else "delete"
    above = " (or its Deployment, if it has one)" if largest.owner.startswith("ReplicaSet/") else ""
    return f"{verb} its largest holder, {largest.owner}{above}, which holds {_text(holding, largest.amount)}{share}"


def is_scaled(holder: Holder) -> bool:
    """Return whether the owner has a number of replicas that can be scaled."""
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
        f"{_text(holding, amount)} of {what} is charged but used by no object{also}: it is released when the next "
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
    """Return what blocks a deletion and how to finish it."""
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


def _text(holding: Holding, amount: int) -> str:
    return quantity_text(holding.resource, amount)


def _count(things: Sized, name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
