"""What the oldest supported Kubernetes says otherwise than the one that the sandbox is held to: all that was met."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.cluster.control_plane.servers import Server

OLDER: Final = 34
"""The last minor release that speaks as the table has it."""
_OLDER_WORDS: Final = (
    ("a valid label key", "a qualified name"),
    ("no more than 63 bytes", "no more than 63 characters"),
    ("no more than 253 bytes", "no more than 253 characters"),
    ("pkg/runtime/scheme.go:111", "pkg/runtime/scheme.go:110"),
)


def is_older(server: Server) -> bool:
    """Say whether the server is of a release that differs."""
    return server.minor <= OLDER


def in_words_of(server: Server, text: str) -> str:
    """Turn a sentence of the newest release into the server's."""
    for newer, older in _OLDER_WORDS if is_older(server) else ():
        text = text.replace(newer, older)
    return text
