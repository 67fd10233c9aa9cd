"""The last line of ``holders``: the one step that helps most, or that nothing is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from backoff_ctrl.k8s.charges.kinds import PODS
from backoff_ctrl.k8s.charges.live import By
from backoff_ctrl.k8s.holders.attribution import RESYNC

from .amounts import quantity_text

if TYPE_CHECKING:
    from backoff_ctrl.k8s.charges.live import Live, Termination
    from backoff_ctrl.k8s.holders.attribution import Holder, Holding, Report

SOON: Final = f"next release, or ≤ {RESYNC / 60:.0f} min"
_SCALED: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
_PATIENCE: Final = 60.0
"""Seconds after which a deletion that is not over is somebody's to look at: kubelets take a few."""


def next_step(report: Report) -> str:
    """Name the best next step."""
    if not report.quotas:
        return f"No quota limits {report.namespace}: nothing is held, and no create is refused for a quota there."
    full = [(quota, holding) for quota, holding in report.holdings if holding.full]
    full.sort(key=lambda each: not each[1].overdue + each[1].leaked)  # nobody has to give anything up for that
    if full:
        first, *others = [_when_full(report, quota, holding) for quota, holding in full]
        more = f" ({len(others)} more {_are(len(others))} full)" if others else ""
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
    return f"{known}; the fullest is {fullest.resource} of {quota} at {100 * fullest.fullness:.0f} %."


def _not_known(report: Report) -> str:
    """Say why this is no all-clear, though nothing is to be done."""
    words = ""
    if report.stuck:
        words += f"; {len(report.stuck)} of its pods should be gone, which is no worry before a minute is over"
    if unseen := [f"{holding.resource} of {quota}" for quota, holding in report.holdings if holding.used is None]:
        words += f"; the server does not count {', '.join(unseen)}"
    if report.unread:
        words += f"; who holds {', '.join(report.unread)} is not known"
    if report.malformed:
        words += f"; {report.malformed} objects could not be read"
    return words


def _when_full(report: Report, quota: str, holding: Holding) -> str:
    """Say what gives room in a resource that is full; what needs nobody comes first."""
    what = f"{holding.resource} of {quota}"
    if holding.hard == 0 and not holding.used:
        return f"{what} is paused, its limit is 0: raise it when creates may go on"
    if step := _unheld(report, holding, what):
        return step
    if step := _stuck(report, holding) or _finished(report, holding):
        return f"{what} is full; {step}"
    if holding.holders:
        return f"{what} is full; {_wait(report, holding)}{_end_the_largest(holding)}, or ask for a larger limit"
    who = f"; who holds it is not known, since {', '.join(holding.unread)} can't be listed" if holding.unread else ""
    return f"{what} is full{who}: ask for a larger limit"


def _wait(report: Report, holding: Holding) -> str:
    """Say which charge ends first by itself."""
    timed = [(each.ending.at, each) for each in holding.holders if each.ending.at and each.ending.at >= report.at]
    if not timed:
        return ""
    when, first = min(timed, key=lambda each: each[0])
    left = span((when - report.at).total_seconds())
    return f"wait {left} at most, then {first.owner} gives {_text(holding, first.ends)} back, or "


def _end_the_largest(holding: Holding) -> str:
    """Say who gives most."""
    largest = holding.holders[0]
    share = f", {100 * largest.amount / holding.used:.0f} % of it" if holding.used else ""
    verb = "scale down or delete" if is_scaled(largest) else "end or delete" if largest.kind == PODS else "delete"
    above = ", or its Deployment where it has one," if largest.owner.startswith("ReplicaSet/") else ""
    return f"{verb} its largest holder {largest.owner}{above} ({_text(holding, largest.amount)}{share})"


def is_scaled(holder: Holder) -> bool:
    """Say whether the owner makes as many as it is told."""
    return holder.owner.partition("/")[0] in _SCALED


def _when_not_full(report: Report) -> str:
    """Say what deserves a look though creates go through."""
    for quota, holding in report.holdings:
        if step := _unheld(report, holding, f"{holding.resource} of {quota}"):
            return step
    for pod, deletion in report.stuck:
        if _late(report, deletion):
            return _unstick(report, pod, deletion)
    return next((f"of {quota.name}: {quota.problem}" for quota in report.quotas if quota.problem), "")


def _unheld(report: Report, holding: Holding, what: str) -> str:
    """Say when charge that no object has comes back."""
    amount = holding.overdue + holding.leaked
    if not amount:
        return ""
    others = sum(1 for _, each in report.holdings if each is not holding and each.overdue + each.leaked)
    also = f" (as are amounts of {others} more)" if others else ""
    busy = ", if it is not creates under way" if holding.busy else ""
    return (
        f"{_text(holding, amount)} of {what} is charged for nothing that runs or exists{also}: it comes back with the "
        "next object of that kind that ends or is deleted in the namespace, else when the quota controller counts "
        f"again, in {RESYNC / 60:.0f} minutes at most{busy}"
    )


def _stuck(report: Report, holding: Holding) -> str:
    """Say what to do with a pod that holds some of it and should have been gone long ago."""
    for pod, deletion in report.stuck:
        if _late(report, deletion) and holding.resource in pod.charged.amounts:
            return _unstick(report, pod, deletion)
    return ""


def _late(report: Report, deletion: Termination) -> bool:
    return (report.at - deletion.since).total_seconds() > _PATIENCE


def _unstick(report: Report, pod: Live, deletion: Termination) -> str:
    """Say what holds a deletion up and what ends it."""
    late = f"pod {pod.name} should have been gone {ago((report.at - deletion.since).total_seconds())}"
    if deletion.finalizers:
        return f"{late}: what set its finalizer {', '.join(deletion.finalizers)} must take it off"
    return (
        f"{late}: look whether its node lives (kubectl get node {deletion.node or '?'}), and if not, kubectl -n "
        f"{report.namespace} delete pod {pod.name} --grace-period=0 --force"
    )


def _finished(report: Report, holding: Holding) -> str:
    """Say which objects have ended and still count."""
    ended = [each for each in holding.holders if each.finished and each.ending.by is By.FINISHED]
    if not ended:
        return ""
    most = max(ended, key=lambda each: each.finished)
    pods = f" (kubectl -n {report.namespace} delete pods --field-selector=status.phase=Succeeded, and =Failed)"
    return (
        f"{sum(each.finished for each in ended)} of those that count have finished, {most.finished} of them of "
        f"{most.owner}: delete them{pods if holding.resource == 'count/pods' else ''}"
    )


def _text(holding: Holding, amount: int) -> str:
    return quantity_text(holding.resource, amount)


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def ago(seconds: float) -> str:
    """Say how long ago."""
    return f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """Write a time as kubectl writes ages: two units where one would be rough."""
    left = max(0, int(seconds))
    if left < 120:
        return f"{left}s"
    if left < 3 * 3600:
        minutes, rest = divmod(left, 60)
        return f"{minutes}m{rest}s" if minutes < 10 and rest else f"{minutes}m"
    if left < 48 * 3600:
        return f"{left // 3600}h"
    return f"{left // 86400}d"
