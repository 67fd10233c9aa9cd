"""Texts of somebody else's, such as a server's or a manifest's, as a terminal may show them."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text without what would move the cursor, colour what follows or begin a line of its own."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
