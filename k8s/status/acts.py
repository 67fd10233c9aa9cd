"""What an operator may do: forget a quota, pause and resume a namespace, raise or lower a waiter, cancel one.

Nothing of it outlives the process. Each action, done or not, is one line of the logger ``backoff_ctrl.audit``: a
WARNING, which Python shows even where logging is not set up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backoff_ctrl.k8s.answers.answer import GateClosed
from backoff_ctrl.k8s.answers.printing import printable
from backoff_ctrl.k8s.gate.ledger import Ledger
from backoff_ctrl.k8s.gate.unfinished import Unfinished

audit = logging.getLogger("backoff_ctrl.audit")


class NotDoneError(Exception):
    """It could not be done. ``about`` is the field that is wrong; ``known``: it exists, but its state forbids it."""

    def __init__(self, detail: str, about: str, *, known: bool = False) -> None:
        super().__init__(detail)
        self.about = about
        self.known = known


@dataclass(frozen=True, slots=True)
class Operator:
    """Who acts, as the request says, and why; for the audit line and for the caller of a cancelled create."""

    by: str = ""
    why: str = ""
    place: str = ""
    """The address that it came from."""

    @property
    def words(self) -> str:
        """Both as the end of a sentence."""
        by = f" by {self.by}" if self.by else " by an operator"
        return printable(by + (f": {self.why}" if self.why else ""))


class Acts:
    """The actions on all gates of a process. Each returns what was done, as a sentence, or raises ``NotDoneError``."""

    def __init__(self, ledgers: Callable[[], Sequence[Ledger]]) -> None:
        """``ledgers`` returns those of this process now."""
        self._ledgers = ledgers

    def forget(self, operator: Operator, namespace: str, quota: str) -> str:
        """Forget what was learned of a quota, so that it is learned again. What a watch reports can't be forgotten."""

        def forget() -> str:
            watched = None
            for ledger in self._ledgers():
                found = ledger.look(lambda engine, now: engine.namespace(namespace, now))
                if found is None or quota not in found.quotas:
                    continue
                if ledger.is_watched(namespace):
                    watched = ledger
                    continue
                ledger.forget_quota(namespace, quota)
                again = "the gate learns it again from the server's next answer"
                return f"quota {quota} of namespace {namespace} is forgotten: {again}"
            if watched is not None:
                raise NotDoneError(
                    f"quota {quota} of namespace {namespace} is watched: what is known of it comes from the API server",
                    "quota",
                    known=True,
                )
            raise NotDoneError(f"no gate knows a quota {quota} in namespace {namespace}", "quota")

        return self._audited(operator, f"forget quota {namespace}/{quota}", forget)

    def pause(self, operator: Operator, namespace: str) -> str:
        """Send no create of a namespace until ``resume``: they wait, up to their limits. Sent ones continue."""

        def pause() -> str:
            enforcing = [each for each in self._ledgers() if each.mode(namespace) == "enforce"]
            if not enforcing:
                raise NotDoneError(
                    f"namespace {namespace} is not in the mode enforce: its creates are sent whatever the gate decides",
                    "namespace",
                    known=True,
                )
            for ledger in enforcing:
                ledger.halt(namespace, halted=True)
            return f"creates in namespace {namespace} wait until you resume it"

        return self._audited(operator, f"pause namespace {namespace}", pause)

    def resume(self, operator: Operator, namespace: str) -> str:

        def resume() -> str:
            paused = [each for each in self._ledgers() if each.is_halted(namespace)]
            if not paused:
                raise NotDoneError(f"namespace {namespace} is not paused", "namespace", known=True)
            for ledger in paused:
                ledger.halt(namespace, halted=False)
            return f"creates in namespace {namespace} continue"

        return self._audited(operator, f"resume namespace {namespace}", resume)

    def prioritize(self, operator: Operator, create: str, priority: int) -> str:
        """Give a waiting create another priority, as if it had joined the line with it."""

        def prioritize() -> str:
            ledger, found = self._waiting(create)
            request = found.request
            if request is None or not ledger.prioritize(request, priority):
                raise NotDoneError(f"{found.label} does not wait in line any more", "id", known=True)
            found.creation.priority = priority
            return f"{found.label} has priority {priority} now, and place {found.wait().place} in line"

        return self._audited(operator, f"set the priority of create {create} to {priority}", prioritize)

    def cancel(self, operator: Operator, create: str) -> str:
        """End a create that waits; its caller gets ``GateClosed``. One that is being sent is answered first."""

        def cancel() -> str:
            _, found = self._waiting(create)
            found.cancel(GateClosed(f"{found.label} was cancelled{operator.words}"))
            return f"{found.label} is cancelled, and its caller was notified"

        return self._audited(operator, f"cancel create {create}", cancel)

    def _waiting(self, create: str) -> tuple[Ledger, Unfinished]:
        for ledger in self._ledgers():
            for each in ledger.under_way():
                if create and each.create_id == create:
                    if not each.waits:
                        raise NotDoneError(f"{each.label} does not wait: it is being sent", "id", known=True)
                    return ledger, each
        raise NotDoneError(f"no create with the id {create!r} is under way here: see /v1/waiting", "id")

    def _audited(self, operator: Operator, what: str, act: Callable[[], str]) -> str:
        """Do it, and log who did what, from where and why, and with which result."""
        asked = printable(what) + operator.words + (f" (from {operator.place})" if operator.place else "")
        try:
            done = act()
        except NotDoneError as error:
            audit.warning("not done: %s; %s", asked, printable(str(error)))
            raise
        audit.warning("%s; %s", asked, printable(done))
        return done
