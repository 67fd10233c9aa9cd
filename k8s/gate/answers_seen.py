"""What is kept of the server's answers to creates: their number, and the priority level that serves each flow.

Each answer is counted once, with the create's next step in line: that costs no lock of its own.
"""

from __future__ import annotations

import sys
from typing import Final

from backoff_ctrl.k8s.gate.creates.creation import Creation

from .locked_engine import LockedEngine
from .unfinished import Unfinished

LEVEL_HEADER: Final = "X-Kubernetes-Pf-Prioritylevel-Uid"
LEVELS_MAX: Final = 4096
"""Flows whose priority level is remembered."""


class AnswersSeen:
    """Counts the answers of one ledger, in the counts of its engine."""

    def __init__(self, engine: LockedEngine) -> None:
        self._engine = engine
        self.reset()

    def reset(self) -> None:
        self._levels: dict[tuple[str, str, str], str] = {}

    def flow(self, creation: Creation) -> str:
        """Name the overload window of a create: by server, credential, and the priority level that served it last."""
        level = self._levels.get((creation.server, creation.credential, creation.resource), "")
        return sys.intern(f"{creation.server}|{creation.credential}|{level}")

    def saw(self, create: Unfinished) -> None:
        """Count the answer to a create now, as its next step is not in line."""
        self._engine.ask(lambda *_: self.count(create))

    def count(self, create: Unfinished) -> None:
        """Count the answer to a create, and remember the priority level that served it. The lock is held."""
        answer, create.word = create.word, None
        if answer is None:
            return
        counts = self._engine.counts
        counts.sent += 1
        if answer.status < 300:
            counts.admitted += 1
        elif create.rejection is not None:
            counts.refused[create.rejection.lane] += 1
        level = answer.headers.get(LEVEL_HEADER) or answer.headers.get(LEVEL_HEADER.lower())
        if level:
            subject = create.creation
            flow = subject.server, subject.credential, subject.resource
            self._levels.pop(flow, None)
            self._levels[flow] = level
            if len(self._levels) > LEVELS_MAX:  # forget the one that was seen last the longest ago
                del self._levels[next(iter(self._levels))]
