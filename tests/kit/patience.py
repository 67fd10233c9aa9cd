"""How long a test waits for what must come: so long that only a hang takes longer, on a busy machine, too.

A wait ends by what it waits for. Its limit only turns a hang into a failure that says what was waited for: no test
proves with it how quickly something happens. How quickly is a benchmark's question.
"""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 240.0
"""Seconds; less than the ``timeout`` of pytest, which would end the test without a word.

The quota controller alone may pause for 30: it discovers new kinds that often, counts nothing until it has listed them,
and waits that long for one that is gone already (``Sync`` of ``resource_quota_controller.go``).
"""


def pause_after(look: float, least: float = 0.005) -> float:
    """Return how long to pause before the next look, if the last one took so long: to look shall cost little.

    A list takes the client and the server some milliseconds each: looked at every five, it keeps both cores busy, and
    what is waited for comes later.
    """
    return min(1.0, max(least, 5 * look))
