"""How long creates are held, and what their callers get then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from backoff_ctrl.k8s.gate.creates.calls import read_query
from backoff_ctrl.k8s.gate.creates.creation import OptionError
from backoff_ctrl.k8s.sidecar.http.messages import LARGEST

Answering = Literal["wait", "error", "quota"]
"""The answer to a create whose hold is over.

``wait``: 429 with ``Retry-After``, so that client-go sends it again. ``error``: 429 that leaves this to the caller.
``quota``: the 403 of the full quota, as without the proxy.
"""
HOLD: Final = 8.0
"""Seconds for which callers with an unknown time limit are held: some give up after 10."""
PATIENT: Final = re.compile(
    rb" \([a-z0-9]+/[a-z0-9_]+\) kubernetes/"  # client-go, kubectl: a limit of theirs is in the query
    rb"|^OpenAPI-Generator/[0-9.]+/python|^kr8s/"  # the official Python clients, kr8s: without a limit
)
"""User agents of clients that wait without limit, unless the ``timeout`` of their request sets one."""
WAITS: Final = re.compile(rb"^kubectl/")
"""User agents of programs that stop until the create ends: a person, or a script, waits for this create alone."""
HOLD_TOTAL: Final = 30.0
"""Seconds for all others: while a controller's create is held, a delete that would make room may wait behind it."""
DAY: Final = 86_400.0
RESTART: Final = 5
"""``Retry-After`` of creates that an ending proxy hands back, in seconds: longer than a restart takes."""
RETRY_AFTER: Final = 1
"""Seconds. Until its caller comes again a create is not sent, though room is held for it: the shorter the better."""

MARGIN: Final = 2.0
"""Seconds of the caller's own time-out that are left for the create itself, at most half of it."""
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:h|ms|m|s|us|ns)")
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True)
class HoldSettings:
    """The settings of the sidecar that concern creates. Raises ``OptionError`` for a wrong one.

    ``hold``: seconds that one request is held at most; None: ``HOLD``, and as long as ``hold_total`` for callers that
    are known to have no limit of their own. ``hold_total``: all requests that belong to one call of a client together;
    None: ``HOLD_TOTAL``, and a ``DAY`` for programs of ``WAITS``.
    ``mark``: draw names and add create ids, so that no object is created twice. ``held_bytes_max``: bytes of
    all bodies that are held, those of a namespace no more than they leave free; a create beyond that is answered 429
    and should come again.
    """

    hold: float | None = None
    hold_total: float | None = None
    answer: Answering = "wait"
    mark: bool = True
    held_bytes_max: int = 64 * 2**20

    def longest(self, user_agent: bytes) -> float:
        """Return the seconds that a request of this client may be held, unless its ``timeout`` says less."""
        if self.hold is not None:
            return self.hold
        total = self.total(user_agent)
        return total if PATIENT.search(user_agent) else min(HOLD, total)

    def total(self, user_agent: bytes) -> float:
        """Return the seconds that all requests of one call of this client may be held together."""
        if self.hold_total is not None:
            return self.hold_total
        return DAY if WAITS.search(user_agent) else HOLD_TOTAL

    @property
    def again(self) -> bool:
        """Whether the answer makes clients that act on ``Retry-After`` send the create again by themselves."""
        return self.answer == "wait"

    def __post_init__(self) -> None:
        """Raise ``OptionError`` for seconds outside of a day, an unknown answer, and a bound below one body."""
        for name, seconds in (("hold", self.hold), ("hold-total", self.hold_total)):
            if seconds is not None and not 0 <= seconds <= DAY:  # nan is not
                raise OptionError(f"--{name} must be a number of seconds between 0 and 86400, not {seconds!r}")
        if self.answer not in get_args(Answering):
            raise OptionError(f"--answer must be one of {', '.join(get_args(Answering))}, not {self.answer!r}")
        if self.held_bytes_max < LARGEST:
            raise OptionError(f"the bytes that are held must be at least {LARGEST}, not {self.held_bytes_max!r}")


def patience_of(target: bytes, hold: float) -> float:
    """Return the seconds that a request may be held: ``hold``, or less where its ``timeout`` says so."""
    query = target.partition(b"?")[2].decode("latin-1")
    if not query:
        return hold
    found = next((value for name, value in read_query(query) if name == "timeout"), "")
    timeout = _seconds(found)
    return hold if timeout is None else min(hold, timeout - min(MARGIN, timeout / 2))


def _seconds(duration: str) -> float | None:
    """Read a duration as Go writes it (``1m30s``); None: it is malformed, or means no limit."""
    parts = _DURATION.findall(duration)
    if not parts or "".join(parts) != duration:
        return None
    total = 0.0
    for part in parts:
        number = part.rstrip("hmsun")
        total += float(number) * _UNITS[part[len(number) :]]
    return total or None
