"""An answer that is not a success, read: which lane it belongs to, and what a full quota says.

Pure: ``(status, headers, body)`` in, a ``Rejection`` out; it never raises, whatever the bytes.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

from .lanes import RETRYABLE, Lane, lane_of
from .quota_sentence import read_plain_quota_text, read_quota_text
from .status import open_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Lane", "Rejection", "read_rejection"]

LONGEST_RETRY_AFTER: Final = 3_600.0  # seconds; a server that asks for more is asked again after this
LEVEL: Final = "x-kubernetes-pf-prioritylevel-uid"


_NOTHING: Final[Mapping[str, int]] = {}


class Rejection(NamedTuple):
    """An answer, read. Amounts are nano-units and there for the lane ``quota`` only.

    ``retryable`` says whether the same create may get through later by itself; see ``never_fits`` too.
    ``retry_after`` is in seconds, as the server asked, None where it did not. ``quota`` is the name of the
    quota that the answer names, else empty.
    """

    lane: Lane
    message: str
    retryable: bool
    retry_after: float | None = None
    quota: str = ""
    requested: Mapping[str, int] = _NOTHING
    used: Mapping[str, int] = _NOTHING
    limited: Mapping[str, int] = _NOTHING

    @property
    def headroom(self) -> Mapping[str, int]:
        """What was left of each resource that the answer names: below zero where it was overdrawn already."""
        return {name: limit - self.used[name] for name, limit in self.limited.items() if name in self.used}

    @property
    def never_fits(self) -> bool:
        """True when one create asks for more than the whole quota. A limit of zero is a pause, not never."""
        return any(amount > self.limited.get(name, 0) > 0 for name, amount in self.requested.items())


def read_rejection(status: int, headers: Mapping[str, str], body: bytes | str) -> Rejection:
    """Read one answer of an API server, or of what stands before it. Never raises.

    ``status`` 0 means that it is not known (a line of a log): it is inferred from the text. ``headers`` may
    have names in any case; ``Retry-After`` is used, and the priority level's to tell a server that just begins.
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
    if refusal := read_quota_text(line):
        return Rejection(Lane.QUOTA, said.message, True, retry_after, *refusal)
    lane, quota = lane_of(code, said, line)
    if lane is Lane.RBAC and _just_begins(headers):
        lane = Lane.NOT_READY
    return Rejection(lane, said.message or said.reason, lane in RETRYABLE, retry_after, quota)


def _read_plain(headers: Mapping[str, str], body: bytes) -> Rejection | None:
    """Read a full quota's answer without parsing its JSON: it is the one that comes in thousands."""
    if not body.startswith(b'{"kind":"Status"'):
        return None
    try:
        text = body.decode("ascii")
    except UnicodeDecodeError:
        return None
    read = read_plain_quota_text(text)
    if read is None:
        return None
    quota, requested, used, limited, head, end = read
    start = text.find('"message":"', 0, head) + 11
    before = text[start:head].replace('\\"', '"')
    if start < 11 or "\\" in before:
        return None
    retry_after = _retry_after(headers, None) if "Retry-After" in headers else None
    fields = (Lane.QUOTA, before + text[head:end], True, retry_after, quota, requested, used, limited)
    return tuple.__new__(Rejection, fields)  # a third of the time that its constructor takes


def _just_begins(headers: Mapping[str, str]) -> bool:
    """Whether the server has not read its own objects yet: it knows no roles, and denies what it will allow.

    Seen on 1.36 for a moment after its start, before it says that it is ready: the priority level that it served the
    answer under has no uid yet. Where priority and fairness is off there is no such header.
    """
    return any(name.lower() == LEVEL and not value for name, value in headers.items())


def _retry_after(headers: Mapping[str, str], fallback: float | None) -> float | None:
    """Read the header in seconds; a date, or anything else that is no number, counts as not there."""
    for name, value in headers.items():
        if name.lower() == "retry-after":
            try:
                seconds = float(value)
            except (TypeError, ValueError):
                continue
            if isfinite(seconds) and seconds >= 0:
                return min(seconds, LONGEST_RETRY_AFTER)
    return fallback if fallback is None else min(fallback, LONGEST_RETRY_AFTER)
