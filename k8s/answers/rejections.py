"""Read an answer that is not a success: its lane, and for a full quota the amounts.

Pure: ``(status, headers, body)`` in, a ``Rejection`` out. It never raises, whatever the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

from .lanes import RETRYABLE, Lane, lane_of
from .quota_sentence import exceeds, read_plain_quota_text, read_quota_text, read_told_quota_text
from .status import open_answer

if TYPE_CHECKING:
    from .answer import Answer

__all__ = ["Lane", "Rejection", "read_rejection", "rejection_of"]

LONGEST_RETRY_AFTER: Final = 3_600.0  # seconds; a longer Retry-After is cut to this
LEVEL: Final = "x-kubernetes-pf-prioritylevel-uid"


_NOTHING: Final[Mapping[str, int]] = {}


class Rejection(NamedTuple):
    """The meaning of one answer. Amounts are in nano-units and only present in the lane ``quota``.

    ``retryable``: the same create may succeed later without any change. ``retry_after``: the seconds that the server
    asks to wait, None if it does not. ``quota``: the quota that the answer names, else empty.
    """

    lane: Lane
    message: str
    retryable: bool
    retry_after: float | None = None
    quota: str = ""
    requested: Mapping[str, int] = _NOTHING
    used: Mapping[str, int] = _NOTHING
    limited: Mapping[str, int] = _NOTHING

    def __reduce__(self) -> tuple[type[Rejection], tuple[object, ...]]:  # a mapping that is read-only can't be pickled
        return Rejection, tuple(dict(each) if isinstance(each, Mapping) else each for each in self)

    @property
    def headroom(self) -> Mapping[str, int]:
        """What was left of each resource that the answer names. Negative where ``used`` already exceeds the limit."""
        return {name: limit - self.used[name] for name, limit in self.limited.items() if name in self.used}

    @property
    def never_fits(self) -> bool:
        """True if this create requests more than the whole quota. A limit of zero means paused, not never."""
        return exceeds(self.requested, self.limited)


def read_rejection(status: int, headers: Mapping[str, str], body: bytes | str) -> Rejection:
    """Read one answer of an API server, or of a proxy in front of it. Never raises.

    ``status`` 0 means unknown (a line of a log): it is inferred from the text, and a quota's refusal counts wherever it
    stands. An answer's counts only in its own place in the message, for it is learned from. Header names may be in any
    case. ``Retry-After`` is used, and the priority level's uid, which shows that a server is still starting.
    """
    if status == 403 and type(body) is bytes and len(body) < 8_192:
        plain = _read_plain(headers, body)
        if plain is not None:
            return plain
    said = open_answer(body)
    code = status or said.code
    retry_after = _retry_after(headers, said.retry_after)
    if 100 <= code < 400:
        return Rejection(Lane.OTHER, said.message, retryable=False, retry_after=retry_after)
    line = said.line
    if refusal := read_told_quota_text(line) if status else read_quota_text(line):
        retryable = not exceeds(refusal.requested, refusal.limited)
        return Rejection(Lane.QUOTA, said.message, retryable, retry_after, *refusal)
    lane, quota = lane_of(code, said, line)
    if lane is Lane.RBAC and _is_starting(headers):
        lane = Lane.NOT_READY
    return Rejection(lane, said.message or said.reason, lane in RETRYABLE, retry_after, quota)


def rejection_of(answer: Answer) -> Rejection:
    """Read an answer that may be in another form than JSON."""
    return read_rejection(answer.status, answer.headers, answer.said())


def _read_plain(headers: Mapping[str, str], body: bytes) -> Rejection | None:
    """Read the 403 of a full quota without parsing its JSON: these come in thousands."""
    if not body.startswith(b'{"kind":"Status"'):
        return None
    try:
        text = body.decode("ascii")
    except UnicodeDecodeError:
        return None
    read = read_plain_quota_text(text)
    if read is None:
        return None
    start, end, retryable, quota, requested, used, limited = read
    message = text[start:end].replace('\\"', '"')
    retry_after = _retry_after(headers, None) if "Retry-After" in headers else None
    fields = (Lane.QUOTA, message, retryable, retry_after, quota, requested, used, limited)
    return tuple.__new__(Rejection, fields)  # takes a third of the constructor's time


def _is_starting(headers: Mapping[str, str]) -> bool:
    """Whether the server is still starting: it has not loaded its roles yet, so it denies what it will soon allow.

    Seen on 1.36 for a moment after the start, before the server reports ready: the priority level in the answer has no
    uid yet. Where priority and fairness is off, this header is missing.
    """
    return any(name.lower() == LEVEL and not value for name, value in headers.items())


def _retry_after(headers: Mapping[str, str], fallback: float | None) -> float | None:
    """Read ``Retry-After`` in seconds. A date, or any other text that is not a number, is ignored."""
    for name, value in headers.items():
        if name.lower() == "retry-after":
            try:
                seconds = float(value)
            except (TypeError, ValueError):
                continue
            if isfinite(seconds) and seconds >= 0:
                return min(seconds, LONGEST_RETRY_AFTER)
    return fallback if fallback is None else min(fallback, LONGEST_RETRY_AFTER)
