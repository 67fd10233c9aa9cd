"""Make text from servers and manifests safe to print on a terminal or in a log."""

from __future__ import annotations

import re
from typing import Final

_USER: Final = re.compile(r"(?<=//)[^/\s]*@")


def printable(text: str) -> str:
    """Return the text with ``?`` for control characters: they could move the cursor, set colours or forge lines."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def without_passwords(text: str) -> str:
    """Return the text without the user names and passwords in its URLs: printed text ends up in logs."""
    return _USER.sub("", text)
