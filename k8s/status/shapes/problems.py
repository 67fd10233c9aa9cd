"""The shapes of errors, as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Pointed:
    """One thing that is wrong with what was asked."""

    pointer: str
    """A JSON Pointer into ``{"path", "query", "headers", "body"}``: ``#/query/limit``."""
    detail: str


@dataclass
class Problem:
    """An error, as ``application/problem+json`` (RFC 9457). It is always one of these."""

    title: str
    status: int
    detail: str
    """What is wrong and what to do."""
    type: str = "about:blank"
    errors: list[Pointed] = field(default_factory=list)
