"""Unwrap a text that another program has wrapped: a terminal, a box, a log that begins each line with the time. Pure.

A *gutter* is what such a program puts in front of most lines: a known one, or what all lines begin with. It goes, with
the right border and the horizontal lines of a box. The first line alone may lack it: the others *hang* below it. Lines
that were cut at a fixed width, perhaps in the middle of a word, are joined without a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
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
_QUOTED: Final = re.compile(
    r"[ \t]{0,40}\(?[rbuf]{0,2}(?:\"((?:[^\"\\]|\\.){1,2000})\"|'((?:[^'\\]|\\.){1,2000})')"
    r"[ \t]?[,;+\\)]{0,2}[ \t]{0,40}"
)
"""A line of a text that a program has written as one literal a line."""
_ASIDE: Final = re.compile(r"[ \t]+[\w.-]{1,80}:[0-9]{1,6}[ \t]*$")
"""What may stand to the right of a first line: the place in a program."""
_BORDER: Final = re.compile(r"[ \t]{0,40}(?:(?:[^\w\s{}\[\]\"']|_){3,}|[╭┌╔┏].{0,300}[╮┐╗┓])[ \t]*")
_RIGHT: Final = f"{_BARS}*#█▐<>+\\"
"""What may end each line of a box, or all lines but the last: a shell's ``\\``, psql's ``+``."""
_ROUNDS: Final = 6
"""The most gutters of one line: a time, a name and a bar, say."""
_TOKEN: Final = re.compile(r"[ \t]+|[0-9]+|.", re.DOTALL)
_LONGEST: Final = 120
"""Tokens at the beginning of a line that may be a gutter."""
_REFUSAL: Final = re.compile(r"is forbidden: |cannot be fulfilled on ")
"""At most once in a refusal, however it is wrapped."""
_ABOUT: Final = re.compile(r"forbid|quota|Status|cannot")
"""In what is worth unwrapping."""
_BLOCKS: Final = 6
"""The most places of a text where a wrapped refusal is looked for."""


def unwrapped(text: str) -> str:
    """Return the text without gutters; as it is if most of its lines have no gutter.

    Of a text of which only a part is wrapped, that part alone, where it shows more of a refusal than the whole.
    """
    lines = _COLOUR.sub("", text).splitlines()
    if len(lines) < 2:
        return text
    found, whole = _as_one(lines, text)
    if _has_several(found) or not any(map(_ABOUT.search, found)) or _is_complete(whole):
        return whole
    blocks = (_as_one(block, "\n".join(block))[1] for block in (*_blocks(found), *_blocks(lines)))
    return max((whole, *blocks, *_hanging(lines)), key=_shown)


def _as_one(lines: Sequence[str], text: str) -> tuple[list[str], str]:
    """Return lines without their gutters, and what they say; ``text`` if they have no gutters."""
    found, gutter = list(lines), False
    quoted = [_QUOTED.fullmatch(line) for line in lines]
    if len(lines) > 1 and all(quoted):
        found, gutter = [each[1] or each[2] for each in quoted if each], True
    for _ in range(_ROUNDS):
        inner = [line for line in found if _BORDER.fullmatch(line) is None]
        bare = next((bare for each in _GUTTERS if (bare := _without(each, inner)) is not None), None)
        bare = _without_shared(inner, dashes=gutter) if bare is None else bare
        gutter = gutter or bare is not None or len(inner) < len(found)
        if bare is None:
            found = inner
            break
        found = _without_right_border(bare)
    return found, _joined([line for line in found if line.strip()], "\n".join(found) if gutter else text, gutter=gutter)


def _without(gutter: re.Pattern[str], lines: Sequence[str]) -> list[str] | None:
    """Return the lines without this gutter; None if less than two of them, or than half of them, have it."""
    filled = [line for line in lines if line.strip()]
    matches = [gutter.match(line) for line in filled]
    count = sum(match is not None for match in matches)
    if count < 2 or 2 * count < len(filled):
        return None
    if count < len(filled) and _without_shared(lines) is not None:
        return None  # of indented lines alone a ``>`` without a space looks like this gutter
    return [line if match is None else line[match.end() :] for line, match in zip(filled, matches, strict=True)]


def _without_shared(lines: Sequence[str], *, dashes: bool = False) -> list[str] | None:
    """Return the lines without what all of them begin with, with any numbers; None: they share no text, or no gutter.

    A gutter ends before a word. ``dashes``: they may be one alone; else the lines are a list.
    """
    filled = [line for line in lines if line.strip()]
    if len(filled) < 2 or _has_several(filled) or not any(map(_ABOUT.search, filled)):
        return None
    begun = [list(islice(_TOKEN.finditer(line), _LONGEST)) for line in filled]
    shared = list(takewhile(_is_same, zip(*begun, strict=False)))
    while shared and shared[-1][0].group().strip().isalnum():
        shared.pop()
    if not shared or ("".join(each.group() for each, *_ in shared).strip() == "-" and not dashes):
        return None
    least = min(len(each.group()) for each in shared[-1])  # further spaces are the text's
    return [line[last.start() + least :] for line, last in zip(filled, shared[-1], strict=True)]


def _is_same(tokens: Sequence[re.Match[str]]) -> bool:
    """Return whether tokens are the same, or all of them numbers, or spaces."""
    return len({"0" if each.group().isdigit() else each.group().strip() for each in tokens}) == 1


def _without_right_border(lines: Sequence[str]) -> list[str]:
    ends = [line.rstrip()[-1:] for line in lines]
    border = next((bar for bar in _RIGHT if 2 * ends.count(bar) > len(lines)), None)
    if border is None:
        return list(lines)
    return [line.rstrip()[:-1].rstrip() if end == border else line for line, end in zip(lines, ends, strict=True)]


def _blocks(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the parts of a text that may be one wrapped refusal: as long as its lines are cut at one width, or begin
    with one gutter.
    """
    about = [number for number, line in enumerate(lines) if _ABOUT.search(line)]
    for start in sorted({max(0, number - before) for number in about for before in (0, 1)})[:_BLOCKS]:
        width = len(lines[start])
        end = start + 1
        while end < len(lines) and width - 1 <= len(lines[end - 1]) <= width:
            end += 1
        yield lines[start:end]
        end = start + 1
        while end < len(lines) and end - start < _LONGEST and _without_shared(lines[start : end + 1]) is not None:
            end += 1
        yield lines[start:end]


def _hanging(lines: Sequence[str]) -> Iterator[str]:
    """Yield what a text may say whose lines hang below the first that is about a refusal.

    The first may begin with something else, as wide as the others are indented or not.
    """
    start = next(number for number, line in enumerate(lines) if _ABOUT.search(line))
    first, rest = lines[start], list(takewhile(_is_indented, lines[start + 1 :]))
    if not rest:
        return
    indent = min(len(line) - len(line.lstrip()) for line in rest)
    inner = [line[indent:] for line in rest]
    for begin in (first, first[indent:]):  # all lines were cut at one width
        yield _joined([begin, *inner], "\n".join([begin, *inner]), gutter=True)
    for begin in (first, _ASIDE.sub("", first)):
        for below in ("\n".join(inner), _glued(inner)):
            yield f"{begin}\n{below}"
            yield f"{begin}{below}"


def _is_indented(line: str) -> bool:
    return line[:1] in {" ", "\t"} and bool(line.strip())


def _has_several(lines: Sequence[str]) -> bool:
    """Return whether it is a log with several refusals."""
    return sum(_REFUSAL.search(line) is not None for line in lines) > 1


def _joined(lines: Sequence[str], spaced: str, *, gutter: bool) -> str:
    """Return ``spaced``, the lines one below the other, or all on one line if they were cut at a fixed width."""
    if len(lines) < 2 or _has_several(lines):
        return spaced
    full, glued = lines[:-1], _glued(lines)
    width = max(map(len, full))
    if gutter and len(full) > 1 and width > 20 and all(width - 1 <= len(line) for line in full):
        return glued
    return glued if _shown(glued) > _shown(spaced) else spaced


def _glued(lines: Sequence[str]) -> str:
    """Return lines that were cut at one width as one; those that are shorter ended with a space."""
    *full, last = lines
    width = max(map(len, full), default=0)
    return "".join(line if len(line) == width else f"{line} " for line in full) + last


def _shown(text: str) -> int:
    """Return how much of a quota's refusal the text shows: all amounts, or the fields that a quota requires."""
    line = " ".join(text.split()).replace(" =", "=")
    if read_quota_text(line) is not None:
        return int(_is_complete(text))
    return sum(1 + len("".join(containers)) for containers in read_unspecified(line).values())


def _is_complete(text: str) -> bool:
    """Return whether a refusal has all its amounts."""
    read: QuotaText | None = read_quota_text(" ".join(text.split()).replace(" =", "="))
    return read is not None and read.requested.keys() == read.used.keys() == read.limited.keys()
