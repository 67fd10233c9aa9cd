"""Unwrap a text that another program has wrapped: a terminal, a box, a log that begins each line with the time. Pure.

A *gutter* is what such a program puts in front of most lines. It goes, with the right border and the horizontal lines
of a box. Lines that were cut at a fixed width, perhaps in the middle of a word, are joined without a space.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .quota_sentence import QuotaText, read_quota_text, read_unspecified

_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]{0,32}[A-Za-z]")
_BARS: Final = "|│┃║▌▏▎┆┊╎¦"
_CLOCK: Final = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?"
_TIME: Final = (
    rf"(?:[0-9]{{4}}[-/][0-9]{{2}}[-/][0-9]{{2}}(?:[T ]{_CLOCK})?"
    rf"|(?:[A-Z][a-z]{{2}} )?[A-Z][a-z]{{2}} {{1,2}}[0-9]{{1,2}} {_CLOCK}"
    rf"|[0-9]{{2}}/[A-Z][a-z]{{2}}/[0-9]{{4}}[: ]{_CLOCK}|{_CLOCK}|[0-9]{{10}}(?:\.[0-9]{{1,9}}|[0-9]{{3}})?)"
    r"(?:Z| ?[+-][0-9]{2}:?[0-9]{2}| UTC)?"
)
_GUTTERS: Final = tuple(
    map(
        re.compile,
        (
            rf"[ \t]{{0,40}}(?:[\w./-]{{1,60}}[ \t]{{0,40}})?[{_BARS}](?:[ \t]|$)",  # also docker's "web-1  | "
            r"[ \t]{0,40}(?:>{1,9}|#{1,9}|//|\*)(?:[ \t]|$)",
            rf"[ \t]{{0,40}}[\[(]?{_TIME}[\])]?[:,]?(?:[ \t]|$)",
            r"[ \t]{0,40}[IWEF][0-9]{4} [0-9:.]{8,18} {1,9}[0-9]{1,9} [\w.-]{1,80}:[0-9]{1,6}\] ?",  # klog
            r"[\w.-]{1,80} [\w./-]{1,80}(?:\[[0-9]{1,9}\]): ",  # syslog, behind the time
            r"\[[^\]\s]{1,250}\](?:[ \t]|$)",  # kubectl logs --prefix
            r"\[?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\]?:?(?:[ \t]|$)",
            r"(?:std(?:out|err)) [FP] ",  # a container runtime's log file
        ),
    )
)
_BORDER: Final = re.compile(r"[ \t]{0,40}(?:[-=+*_─━═╌┄╭╮╰╯┌┐└┘├┤╔╗╚╝╠╣┏┓┗┛]{3,}|[╭┌╔┏].{0,300}[╮┐╗┓])[ \t]*")
_ROUNDS: Final = 6
"""The most gutters of one line: a time, a name and a bar, say."""
_REFUSAL: Final = re.compile(r"is forbidden: |cannot be fulfilled on ")
"""At most once in a refusal, however it is wrapped."""


def unwrapped(text: str) -> str:
    """Return the text without gutters; as it is if most of its lines have none."""
    lines = _COLOUR.sub("", text).splitlines()
    if len(lines) < 2:
        return text
    found, gutter = lines, False
    for _ in range(_ROUNDS):
        inner = [line for line in found if _BORDER.fullmatch(line) is None]
        bare = next((bare for each in _GUTTERS if (bare := _without(each, inner)) is not None), None)
        gutter = gutter or bare is not None or len(inner) < len(found)
        if bare is None:
            found = inner
            break
        found = _without_right_border(bare)
    return _joined([line for line in found if line.strip()], "\n".join(found) if gutter else text, gutter=gutter)


def _without(gutter: re.Pattern[str], lines: Sequence[str]) -> list[str] | None:
    """Return the lines without this gutter; None if less than two of them, or than half of them, have it."""
    filled = [line for line in lines if line.strip()]
    matches = [gutter.match(line) for line in filled]
    count = sum(match is not None for match in matches)
    if count < 2 or 2 * count < len(filled):
        return None
    return [line if match is None else line[match.end() :] for line, match in zip(filled, matches, strict=True)]


def _without_right_border(lines: Sequence[str]) -> list[str]:
    ends = [line.rstrip()[-1:] for line in lines]
    border = next((bar for bar in f"{_BARS}*#" if 2 * ends.count(bar) > len(lines)), None)
    if border is None:
        return list(lines)
    return [line.rstrip()[:-1].rstrip() if end == border else line for line, end in zip(lines, ends, strict=True)]


def _joined(lines: Sequence[str], spaced: str, *, gutter: bool) -> str:
    """Return ``spaced``, the lines one below the other, or all on one line if they were cut at a fixed width."""
    if len(lines) < 2 or sum(_REFUSAL.search(line) is not None for line in lines) > 1:
        return spaced  # nothing is wrapped, or a log with several refusals
    *full, _ = lines
    width = max(map(len, full))
    glued = "".join(f"{line} " if len(line) == width - 1 else line for line in full) + lines[-1]
    if gutter and len(full) > 1 and width > 20 and all(width - 1 <= len(line) for line in full):
        return glued
    return glued if _shown(glued) > _shown(spaced) else spaced


def _shown(text: str) -> int:
    """Return how much of a quota's refusal the text shows: all amounts, or the fields that a quota requires."""
    line = " ".join(text.split()).replace(" =", "=")
    read: QuotaText | None = read_quota_text(line)
    if read is not None:
        return int(read.requested.keys() == read.used.keys() == read.limited.keys())
    return sum(1 + len("".join(containers)) for containers in read_unspecified(line).values())
