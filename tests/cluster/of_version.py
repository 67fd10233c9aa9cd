"""All known differences between the oldest supported Kubernetes and the release that the sandbox implements."""

from __future__ import annotations

from typing import Final

from tests.cluster.control_plane.servers import Server

OLDER: Final = 34
"""The last minor release with the older wording in this table."""
_OLDER_WORDS: Final = (
    ("a valid label key", "a qualified name"),
    ("no more than 63 bytes", "no more than 63 characters"),
    ("no more than 253 bytes", "no more than 253 characters"),
    ("pkg/runtime/scheme.go:111", "pkg/runtime/scheme.go:110"),
)


def is_older(server: Server) -> bool:
    """Whether the server is of a release with the older wording."""
    return server.minor <= OLDER


def in_words_of(server: Server, text: str) -> str:
    """A message of the newest release, in the wording of this server."""
    for newer, older in _OLDER_WORDS if is_older(server) else ():
        text = text.replace(newer, older)
    return text
