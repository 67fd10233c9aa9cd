"""Text for people and for Prometheus: safe on a terminal or in a log, and the exposition format.

Metrics are written here because the programs that we run in may not have prometheus-client installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_USER: Final = re.compile(r"(?<=//)[^/\s]*@")


def printable(text: str) -> str:
    """Return the text with ``?`` for control characters: they could move the cursor, set colours or forge lines."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def in_one_line(text: str) -> str:
    """Return the text in one line, safe to print: each run of white space is one space."""
    return printable(" ".join(text.split()))


def without_passwords(text: str) -> str:
    """Return the text without the user names and passwords in its URLs: printed text ends up in logs."""
    return _USER.sub("", text)


def metric_head(name: str, kind: str, about: str) -> str:
    """Return the two lines that begin a metric; ``kind`` is ``counter``, ``gauge`` or ``histogram``."""
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def metric_sample(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    """Return the line of one sample."""
    pairs = ",".join([f'{label}="{_escaped(text)}"' for label, text in labels])
    whole = int(value)
    number = str(whole) if whole == value else repr(value)
    return f"{name}{{{pairs}}} {number}\n" if pairs else f"{name} {number}\n"


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return text
