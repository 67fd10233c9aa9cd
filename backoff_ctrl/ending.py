"""How a command ends that Ctrl-C or SIGTERM stopped. Loads nothing: it may be asked while all else still loads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

SERVERS: Final = frozenset({"proxy", "serve", "inject", "operator", "sandbox"})
"""Commands that only end when they are stopped: that is a success."""


def stopped(arguments: Sequence[str]) -> int:
    """Return the exit code of this command line, and say that it was stopped before it was done."""
    if arguments and arguments[0] in SERVERS:
        return 0
    sys.stderr.write("backoff-ctrl: stopped\n")
    return 1
