"""Texts of somebody else's, such as a server's or a manifest's, as a terminal may show them."""

from __future__ import annotations

import re
from typing import Final

_USER: Final = re.compile(r"(?<=//)[^/\s]*@")


def printable(text: str) -> str:
    """Return the text without what would move the cursor, colour what follows or begin a line of its own."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def without_passwords(text: str) -> str:
    """Return the text with no user name and no password in its URLs: what is printed ends up in logs."""
    return _USER.sub("", text)
