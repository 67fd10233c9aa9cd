"""Events about the pod that a sidecar runs in: who looks at a pod that does not go on sees there what it waits for.

They are written with the pod's own account. Most accounts may not: that is logged once, without other effects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from backoff_ctrl.engine.look.explaining import Explanation
from backoff_ctrl.k8s.gate.creates.creation import Owner
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.unfinished import Unfinished
from backoff_ctrl.k8s.kube.answers.answer import WaitedTooLong

from .correlator import Reason, Report
from .sender import EventSender, Reporter

LATE: Final = 30.0
"""Seconds that a create of the pod waits before its pod has an event."""
PASSING: Final = frozenset({"its-turn", "comes-back"})
"""Reasons that pass by themselves in a moment, and are no news."""
ALMOST: Final = 1.0
"""Seconds by which one that is given up may have waited less: a sidecar may hold each create for just as long."""


class OwnPod(Reporter):
    """Reports about one pod each reason that keeps a create of it waiting, since its caller first asked for it."""

    def __init__(self, ledger: Ledger, report: Callable[[Report], object], namespace: str, pod: Owner) -> None:
        super().__init__(ledger, report)
        self._pod = namespace, pod

    def ended(self, create: Unfinished) -> None:
        """Report one that was given up, too, and one that was created after its wait was reported."""
        waiting = self._waiting.get(create)
        late = self._until_late(create) <= ALMOST and isinstance(create.error, WaitedTooLong)
        if waiting is not None and waiting.reported is None and late:
            wait = create.error.wait if isinstance(create.error, WaitedTooLong) else None
            why = "" if wait is None else f": {wait.why}"
            note = f"{create.label} was not created in {LATE:.0f} s{why}"
            quota, resource = ("", "") if wait is None else (wait.quota, wait.resource)
            self._pass_on(Report(Reason.WAITS, *self._about(create), quota, resource, lambda: note))
        super().ended(create)

    def _until_late(self, create: Unfinished) -> float:
        since = create.creation.noticed_at
        return max(0.0, (create.began if since is None else since) + LATE - self.ledger.now())

    def _about(self, create: Unfinished) -> tuple[str, Owner | None]:  # noqa: ARG002 - the same for each
        return self._pod

    def _is_told(self, why: Explanation) -> bool:
        return why.reason not in PASSING


def tell_pod(ledger: Ledger, configuration: Any, namespace: str, name: str, uid: str) -> Callable[[], None]:
    """Write events about a pod while creates of a ledger wait; return what ends that.

    ``configuration`` has the server, and the credentials of the pod.
    """
    sender = EventSender(configuration)
    unsubscribe = ledger.subscribe(OwnPod(ledger, sender.report, namespace, Owner("v1", "Pod", name, uid)))

    def end() -> None:
        unsubscribe()
        sender.stop()

    return end
