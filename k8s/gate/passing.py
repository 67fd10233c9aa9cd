"""What a ledger learns from calls that pass it ungated: a quota's refusal, or a deletion that makes room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from backoff_ctrl.engine.outcomes import Rejected
from backoff_ctrl.k8s.creates.calls import Target, teaching

from .ledger import Ledger


class Passed(NamedTuple):
    """An answer to a call that passed. ``refusal`` is the body of a 403; ``body`` what was sent, where it is known."""

    method: str
    status: int
    headers: Mapping[str, str]
    refusal: bytes
    sent: float
    """When the call was sent, or an earlier time: of news that came since, nothing is overwritten."""
    body: object = None


def heed(ledger: Ledger, target: Target, passed: Passed) -> Rejected | None:
    """Learn from the answer; return the quota's refusal, if it is one."""
    if passed.status == 403:
        taught = teaching(target, passed.status, passed.headers, passed.refusal, passed.body)
        if taught is not None:
            ledger.learn(target.namespace, *taught, passed.sent)
            return taught[1]
    elif passed.status == 200 and passed.method.upper() == "DELETE":
        ledger.hint_release(target.namespace)
    return None
